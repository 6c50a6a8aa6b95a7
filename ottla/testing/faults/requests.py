"""Requests that rules act on: parked, served by the plain route with a context of their own, and answered as the rules
say.

    rules hit ── the connection's request is parked, so that answers keep their order
      ├── delay, hold ──┐
      ├── error, drop: request, disconnect: before ── not served
      └── served ── the plain handler gets what is left of the request, and an `InnerContext`
            └── its response ── errors put in, bytes changed, delay ── answered

What waits is copied out of the receive buffer first, and belongs to the world that it came in: when that ends, by a
reset or a restore, it is never applied. Nor does a broker that has ended serve it.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.dispatch import PreparedFrame, Route
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.testing.faults.actions import Call, Disconnect, Drop, Error, Hold, ThrottleClient
from ottla.testing.faults.calls import FaultCall, FaultParts
from ottla.testing.faults.error_places import refused
from ottla.testing.faults.frames import send_in_pieces, set_linger
from ottla.testing.faults.plan import FaultPlan, plan_of
from ottla.testing.faults.responses import FaultyResponse
from ottla.testing.faults.state import FaultState

NO_FRAME: Final = b""
LOOK_AGAIN_MS: Final = 1


def serve(plain: Route, parts: FaultParts, states: list[FaultState], context: RequestContext, request: Any) -> Any:
    """In place of the plain route's handler."""
    call = FaultCall(parts, plain, context, request)
    plan = plan_of(states, call, parts)
    if plan is None or plan.changes_nothing:
        return plain.handle(context, request)
    if plan.top is not None and not plan.is_delayed and not _is_applied(plan) and not call.has_no_response:
        plain.errors[int(plan.top.code)] += 1
        return refused(plain.api, plain.version, request, plan.top)
    FaultyRequest(plain, parts, plan, call).start()
    return None


class FaultyRequest:
    def __init__(self, plain: Route, parts: FaultParts, plan: FaultPlan, call: FaultCall) -> None:
        self._plain = plain
        self._parts = parts
        self._plan = plan
        self._call = call
        self._context = call.context
        self._runtime = parts.runtime
        self._connection: Any = call.context.connection
        self._response = FaultyResponse(plain, parts, plan, call)
        self._timer: Any = None
        """Of the delay before it."""
        self._calling: asyncio.Task[None] | None = None
        """Of the function that decides about it."""
        self._is_dropped = False

    def start(self) -> None:
        action = self._plan.action
        if isinstance(action, Drop | Disconnect):
            # What notes answers has none to note: the client gets none.
            self._context.route = self._plain
        if isinstance(action, Disconnect) and action.when == "before" and not self._plan.before_ms:
            self._end_connection(action)
            return
        self._context.park()
        self._call.keep_views()
        self._parts.waiting[self] = None
        self._timer = self._after(self._plan.before_ms, self._begin)

    def end_wait(self) -> None:
        """Its world ends. One of a client is never applied, and its connection is the caller's to close; one of a
        broker is not held up any longer. A function that decides about it is cancelled."""
        is_of_broker = self._call.peer == "broker"
        self._is_dropped = not is_of_broker
        if self._timer is not None and self._timer.cancel() and is_of_broker:
            self._runtime.soon(self._begin)
        if self._calling is not None and self._calling.cancel() and is_of_broker:
            self._context.close_connection("a fault that decides about it has ended")

    def _goes_on(self) -> bool:
        """It has waited long enough; says whether it is to be served."""
        self._parts.waiting.pop(self, None)
        return not self._is_dropped

    def _begin(self) -> None:
        """What was received is looked at, with all delays that come before."""
        action = self._plan.action
        if not isinstance(action, Hold | Call) and not self._goes_on():
            return
        match action:
            case Hold():
                state = self._plan.terminal
                assert state is not None, "a rule holds it"
                state.held.append(lambda: self._runtime.soon(self._serve_held))
            case Drop(what="request"):
                self._context.complete(None, NO_FRAME)
            case Disconnect(when="before"):
                self._end_connection(action)
            case Error(after=False) if self._plan.top is not None:
                self._refuse()
            case Call():
                self._calling = self._runtime.spawn(self._call_function(action), f"fault {self._call.api}")
            case _:
                self._serve()

    def _refuse(self) -> None:
        """The whole request fails, and is not applied."""
        assert self._plan.top is not None, "there is an error of the whole request"
        if self._call.has_no_response:
            self._close_without_answer()
            return
        self._plain.errors[int(self._plan.top.code)] += 1
        self._answer(refused(self._plain.api, self._plain.version, self._call.body, self._plan.top), None)

    def _serve_held(self) -> None:
        if self._goes_on():
            self._serve()

    def _serve(self) -> None:
        """By the plain route, as far as it is to be applied."""
        if not self._response.take_out():
            self._served(self._response.empty(), None)
            return
        run_plain(self._plain, self._runtime, self._context, self._call.body, self._served)

    def _served(self, response: Any, frame: Any) -> None:
        if response is None and frame is not None and not len(frame):
            # It has no answer: acks=0.
            if self._plan.errors or self._plan.top is not None:
                self._close_without_answer()
            else:
                self._after(self._plan.after_ms, partial(self._send, NO_FRAME))
            return
        if self._call.has_no_response:
            self._close_without_answer()
            return
        self._answer(*self._response.changed(response, frame))

    def _answer(self, response: Any, frame: Any) -> None:
        """Sends the response when its time has come; `frame` has it where it is built."""
        if frame is None:
            frame = self._context.route.build_frame(response, self._context.correlation_id)
        data = frame if isinstance(frame, bytes) else b"".join(frame)
        self._after(self._plan.after_ms, partial(self._send, self._response.corrupted(data)))

    def _send(self, frame: bytes) -> None:
        action = self._plan.action
        if isinstance(action, Drop):
            self._context.complete(None, NO_FRAME)
        elif isinstance(action, Disconnect):
            self._in_turn(partial(self._end_connection, action))
        elif self._response.ends_after is not None:
            self._in_turn(partial(self._truncate, frame[: self._response.ends_after]))
        elif self._plan.bytes_per_s or self._plan.slices:
            self._in_turn(partial(send_in_pieces, self._runtime, self._plan, self._context, frame))
        else:
            self._context.complete(None, frame)
            if isinstance(action, ThrottleClient) and action.enforce:
                self._parts.muted.mute(self._connection, action.ms)

    def _truncate(self, data: bytes) -> None:
        self._context.complete(None, data)
        self._connection.close(CloseReason.REQUEST_FAILED, "a fault cuts its response")

    async def _call_function(self, action: Call) -> None:
        async def proceed() -> Any:
            if self._is_dropped:
                # The function goes on though it was cancelled.
                raise asyncio.CancelledError
            return await served_by(self._plain, self._runtime, self._context, self._call.body)

        try:
            response = self._checked(await action.function(self._call, proceed))
        except KafkaError as error:
            response = self._plain.error_response(error)
            if response is None:
                self._context.close_connection(f"{self._call.api} failed: {error}")
                return
        except Exception as error:
            assert self._plan.terminal is not None, "a rule has the function"
            self._plan.terminal.fail(error)
            self._context.fail(error)
            raise
        finally:
            self._parts.waiting.pop(self, None)
        if response is None or self._call.has_no_response:
            self._context.complete(None, NO_FRAME)
        else:
            self._answer(response, None)

    def _checked(self, response: Any) -> Any:
        """What a function has returned. Raises TypeError where that is no answer to the request, and what the encoder
        raises for fields that it cannot write."""
        if response is None or isinstance(response, PreparedFrame):
            return response
        expected = self._plain.api.response_class()
        if not isinstance(response, expected):
            raise TypeError(f"it returned {response!r:.100}, expected a {expected.__name__} or None")
        self._plain.build_frame(response, self._context.correlation_id)
        return response

    def _in_turn(self, action: Callable[[], None]) -> None:
        """When all requests before it have been answered."""
        parked = self._connection.parked
        if self._connection.is_closed or not parked or parked[0] is self._context:
            action()
        else:
            self._runtime.schedule(LOOK_AGAIN_MS, partial(self._in_turn, action))

    def _after(self, wait_ms: int, action: Callable[[], None]) -> Any:
        """Gives the timer, where the action waits for one."""
        if wait_ms:
            return self._runtime.schedule(wait_ms, action)
        action()
        return None

    def _end_connection(self, action: Disconnect) -> None:
        if action.reset:
            set_linger(self._connection)
            self._connection.abort(CloseReason.REQUEST_FAILED, "a fault resets it")
        else:
            self._connection.close(CloseReason.REQUEST_FAILED, "a fault ends it")

    def _close_without_answer(self) -> None:
        """An error of a produce request with acks=0 closes its connection, as in Kafka."""
        self._connection.close(CloseReason.REQUEST_FAILED, "produce with acks=0 failed by a fault")


class InnerContext(RequestContext):
    """The context that the plain handler gets for a request whose own one is parked: it answers to `served`."""

    __slots__ = ("_served",)

    def __init__(self, outer: RequestContext, served: Callable[[Any, Any], None]) -> None:
        super().__init__(outer.connection)
        self._served = served
        self.route = outer.route
        self.api_version = outer.api_version
        self.correlation_id = outer.correlation_id
        self.size_bytes = outer.size_bytes
        self.client_id_length = outer.client_id_length
        self._client_id = outer._client_id
        self._principal = outer._principal
        outer.on_disconnect = self.disconnected

    @property
    def client_id(self) -> str | None:
        return None if self.client_id_length < 0 else str(self._client_id, "utf-8", "replace")

    @property
    def principal(self) -> Any:
        return self._principal

    def park(self, *, mutes: bool = True) -> None:
        """The connection waits for the outer context."""
        assert not self.is_parked, "a request can be parked once"
        self.is_parked = True
        self.mutes = mutes

    def expect_response(self, size_bytes: int) -> None:
        """It is counted when it is there."""

    def complete(self, response: Any, frame: Any = None) -> None:
        assert self.is_parked, "only a parked request is completed; others return their response"
        if frame is None:
            if self.access is not None:
                response = self.access.amended(response)
            if self.quotas is not None:
                response = self.quotas.answered(self, response)
        elif response is None and self.quotas is not None:
            self.quotas.answered(self, None)
        self._served(response, frame)


def run_plain(
    plain: Route, runtime: Any, outer: RequestContext, request: Any, served: Callable[[Any, Any], None]
) -> None:
    """Serves the request of a parked context; `served` gets the response, its frame where it is built, or
    (None, b"") for none."""
    context = InnerContext(outer, served)
    try:
        response = plain.handle(context, request)
    except KafkaError as error:
        response = plain.error_response(error)
        if response is None:
            context.close_connection(f"{plain.api.name} failed: {error}")
            return
    except Exception as error:
        runtime.log.exception("a handler failed", api=plain.api.name, version=plain.version)
        response = context.answer_to_bug(error)
        if response is None:
            return
    if context.is_parked or context.connection.is_closed:
        return
    if plain.defers_answer:
        # What was appended is written first, which may still change the answer.
        runtime.end_event()
    served(response, NO_FRAME if response is None else None)


async def served_by(plain: Route, runtime: Any, outer: RequestContext, request: Any) -> Any:
    """The response of the plain route to the request of a parked context; None where it has none."""
    done = runtime.loop.create_future()

    def served(response: Any, frame: Any) -> None:
        if not done.done():
            done.set_result((response, frame))

    run_plain(plain, runtime, outer, request, served)
    response, frame = await done
    if response is not None or not frame:
        return response
    return FaultyResponse.decoded(plain, frame)


def _is_applied(plan: FaultPlan) -> bool:
    return isinstance(plan.action, Error) and plan.action.after
