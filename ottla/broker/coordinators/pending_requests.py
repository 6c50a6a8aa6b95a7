"""Requests that wait for their coordinator, by token, and the one way for a handler to ask it.

    request = Heartbeat(groups.new_token(), ...)
    return groups.ask(context, request, build_response)

A response about thousands is built in slices: `build_response` then gives the coroutine that builds it.

`ask` gives the response if it is known at once. Otherwise it parks the request, and the context is completed later. A
request whose client has gone is forgotten with its token; a group itself learns of it by the session timeout, as it
must.

What comes in hundreds takes several steps of the loop: the requests about the groups that one client names, and the
responses to the members of a group that a rebalance has kept waiting. A group has gone on by then, and its timers run:
its members see the same as if the network had taken a moment longer.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from types import CoroutineType
from typing import Any, Protocol

# A request may append, which takes some 200 µs; a response is a system call, and takes less than 100.
REQUESTS_PER_STEP = 16
RESPONSES_PER_STEP = 32

Soon = Callable[[Callable[[], None]], None]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class ParkingContext(Protocol):
    """What is needed of the context of a request."""

    on_disconnect: Callable[[], object] | None

    def park(self) -> None: ...

    def complete(self, response: Any) -> None: ...

    def complete_later(self, spawn: Spawn, response: Coroutine[Any, Any, Any]) -> None: ...


class _WaitingRequest:
    """One request of a client."""

    __slots__ = ("_build_response", "_context", "_is_parked", "_outbox", "response")

    def __init__(self, outbox: "_Outbox", context: ParkingContext, build_response: Callable[[Any], Any]) -> None:
        self._outbox = outbox
        self._context = context
        self._build_response = build_response
        # If it is known before the request is parked.
        self.response: Any = None
        self._is_parked = False

    def answer(self, result: Any) -> None:
        if self._is_parked:
            self._outbox.complete(self, result)
        else:
            self.response = self._build_response(result)

    def complete(self, result: Any) -> None:
        response = self._build_response(result)
        if response.__class__ is CoroutineType:
            self._context.complete_later(self._outbox.spawn, response)
        else:
            self._context.complete(response)

    def response_or_park(self, pending: "PendingRequests", tokens: Sequence[int]) -> Any | None:
        """The response, or None after parking the request; its tokens are forgotten if its connection goes first."""
        if self.response is None:
            self._is_parked = True
            self._context.on_disconnect = partial(pending.forget, tokens)
            self._context.park()
        elif self.response.__class__ is CoroutineType:
            self._context.park()
            self._context.complete_later(self._outbox.spawn, self.response)
            return None
        return self.response


class _WaitingForAll(_WaitingRequest):
    """One request of a client that has asked for several results."""

    __slots__ = ("_missing", "_results")

    def __init__(
        self, outbox: "_Outbox", context: ParkingContext, build_response: Callable[[list[Any]], Any], count: int
    ) -> None:
        super().__init__(outbox, context, build_response)
        self._results: list[Any] = [None] * count
        self._missing = count

    def put(self, index: int, result: Any) -> None:
        self._results[index] = result
        self._missing -= 1
        if not self._missing:
            self.answer(self._results)


class _Outbox:
    """Responses to parked requests leave at once, RESPONSES_PER_STEP at most in a step of the loop."""

    def __init__(self, soon: Soon, spawn: Spawn) -> None:
        self._soon = soon
        self.spawn = spawn
        # Invariant: empty unless no response may leave now, and then the next step is on its way.
        self._waiting: deque[tuple[_WaitingRequest, Any]] = deque()
        # It is not reset in every step, which would be one more action of the loop for each, but when it has come to 0.
        self._left = RESPONSES_PER_STEP

    def complete(self, request: _WaitingRequest, result: Any) -> None:
        if not self._left:
            self._waiting.append((request, result))
            return
        self._left -= 1
        if not self._left:
            self._soon(self._next_step)
        request.complete(result)

    def send_all(self) -> None:
        self._send(len(self._waiting))

    def _next_step(self) -> None:
        count = min(len(self._waiting), RESPONSES_PER_STEP)
        self._left = RESPONSES_PER_STEP - count
        if not self._left:
            self._soon(self._next_step)
        self._send(count)

    def _send(self, count: int) -> None:
        for request, result in [self._waiting.popleft() for _ in range(count)]:
            request.complete(result)


class PendingRequests:
    def __init__(self, soon: Soon, spawn: Spawn) -> None:
        """`soon` runs an action in the next step of the loop, `spawn` a coroutine whose steps are events."""
        self._soon = soon
        self._outbox = _Outbox(soon, spawn)
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self.new_token: Callable[[], int] = count(1).__next__

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(
        self, send: Callable[[Any], None], context: ParkingContext, request: Any, build_response: Callable[[Any], Any]
    ) -> Any | None:
        """Hands the request to `send`; `build_response` makes the response of the result."""
        waiting = _WaitingRequest(self._outbox, context, build_response)
        token = request.token
        self._waiting[token] = waiting.answer
        send(request)
        return waiting.response_or_park(self, (token,))

    def ask_here(self, send: Callable[[Any], None], request: Any, answered: Callable[[Any], None]) -> Any | None:
        """For a part of this broker, which has no context: the result if it is known at once, else None, and `answered`
        gets it, in the middle of a step of the coordinator."""
        results: list[Any] = []
        token = request.token
        self._waiting[token] = results.append
        send(request)
        if results:
            return results[0]
        self._waiting[token] = answered
        return None

    def ask_each(
        self,
        send: Callable[[Any], None],
        context: ParkingContext,
        requests: Iterable[Any],
        count: int,
        build_response: Callable[[list[Any]], Any],
    ) -> Any | None:
        """As `ask`, for one response to `count` requests: `build_response` gets their results in the same order.

        The requests are taken when they are sent."""
        if not count:
            return build_response([])
        if count == 1:
            return self.ask(send, context, next(iter(requests)), lambda result: build_response([result]))
        waiting = _WaitingForAll(self._outbox, context, build_response, count)
        tokens: list[int] = []
        self._send_some(send, waiting, iter(requests), count, tokens)
        return waiting.response_or_park(self, tokens)

    def _send_some(
        self,
        send: Callable[[Any], None],
        waiting: _WaitingForAll,
        requests: Iterator[Any],
        count: int,
        tokens: list[int],
    ) -> None:
        """`tokens` gets those of the requests that are sent."""
        for request in islice(requests, REQUESTS_PER_STEP):
            self._waiting[request.token] = partial(waiting.put, len(tokens))
            tokens.append(request.token)
            send(request)
        if len(tokens) < count:
            self._soon(partial(self._send_some, send, waiting, requests, count, tokens))

    def deliver(self, token: int, result: Any) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting(result)

    def clear(self) -> None:
        """What is known is answered now; nothing else is any more."""
        self._outbox.send_all()
        self._waiting.clear()

    def forget(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._waiting.pop(token, None)
