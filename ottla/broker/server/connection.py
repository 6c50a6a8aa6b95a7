"""One client connection: bytes in, requests in order to their handlers, responses out in the same order.

A read event delivers what the socket had into a buffer shared by all connections of the loop. Every complete frame in
it is handled at once; handlers see views into that buffer. Before the callback returns, the appends of all those
requests are written, one system call per partition, and then the responses leave in one call. What follows the last
complete frame is kept in a buffer of the connection's own: one of the few that are lent for large frames, or one that
grows with the bytes received and never with the size a client merely announces.

A *hold* stops the handling: a parked request, a client that does not read its responses, a throttled newcomer, a turn
that is over (`Turns`). Bytes that arrive during it are kept, up to `KEPT_WHILE_HELD`; then the socket is not read until
it ends. What waits on the way out is bounded by `ResponseQueue`, the sum over all connections by `ConnectionMemory`.
"""

import asyncio
from typing import Any, cast

from ottla.broker.histogram import SUM_NS, UNIT_BITS
from ottla.broker.server.close_reasons import CloseReason, why_no_frame, why_not_served
from ottla.broker.server.connection_interfaces import (
    CLOSED,
    HEADER_START,
    HEADER_START_BYTES,
    HELD_BY_PARKED,
    HELD_BY_TURN,
    HELD_BY_WRITING,
    SMALLEST_FRAME_SIZE,
    ClientIdentity,
    ConnectionOwner,
    LoginGate,
)
from ottla.broker.server.dispatch import Route
from ottla.broker.server.receive_buffers import KEPT_WHILE_HELD, SHORT_READ_MAX, SMALLEST_OWN_BUFFER, KeptBytes
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.request_times import SLOW_EVENT_NS
from ottla.broker.server.response_queue import RESPONSE_BYTES_MAX, ResponseQueue
from ottla.broker.server.turns import LITTLE_BYTES, LONG_REQUEST, REQUESTS_PER_LOOK
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import DecodeError, skip_header_tags
from ottla.security.authentication import ANONYMOUS
from ottla.timer.wheel import TimerEntry

NOTHING = memoryview(b"")


class Connection(asyncio.BufferedProtocol):
    # fmt: off
    __slots__ = (
        "_buffers", "_context", "_deferred", "_handling", "_held_bytes", "_kept", "_memory", "_now_ns",
        "_owner", "_reading_paused", "_responses", "_routes", "_runs", "_runtime", "_times", "_turns",
        "buffer", "client", "fetch_room", "gate", "holds", "idle_timer", "is_inter_broker", "last_event_ns",
        "listener_name", "peer_host", "principal", "run_count", "run_route", "transport",
    )
    # fmt: on

    def __init__(self, owner: ConnectionOwner, listener_name: str) -> None:
        self.listener_name = listener_name
        self.is_inter_broker = listener_name == owner.inter_broker_listener
        self._owner, self._runtime, self._times = owner, owner.runtime, owner.times
        self._now_ns = owner.runtime.clock.now_ns
        # How many requests of the present read event had its last route; those before are in `_runs`.
        self.run_route: Route | None = None
        self.run_count = 0
        self._runs, self._routes, self._buffers = owner.times.runs, owner.dispatcher.routes, owner.receive_buffers
        self._memory, self._turns, self.fetch_room = owner.memory, owner.turns, owner.memory.fetch_room
        self.transport: asyncio.Transport | None = None
        self.peer_host, self.principal, self.buffer = "", ANONYMOUS, NOTHING
        self.client: ClientIdentity | None = None
        self.gate: LoginGate | None = None
        self.last_event_ns = 0  # When the last read event began, or responses were read.
        # The server's, which closes connections that are idle, and aborts those that do not get closed.
        self.idle_timer: TimerEntry | None = None
        self._context: RequestContext | None = None
        self._kept: KeptBytes | None = None  # The beginning of a frame, or whatever arrives during a hold.
        self.holds = self._held_bytes = 0
        self._reading_paused = self._handling = False
        # Of the produce requests that were handled last: they are built when the records are in the log.
        # Invariant: empty when a request is parked, and while one is.
        self._deferred: list[tuple[Route, int, Any]] = []
        self._responses = ResponseQueue(owner.times.count_parked)

    @property
    def is_closed(self) -> bool:
        """Whether responses go nowhere any more."""
        return bool(self.holds & CLOSED)

    @property
    def active_ns(self) -> int:
        """When a request came last, or one that was parked was answered; on the monotonic clock."""
        return max(self.last_event_ns, self._responses.answered_ns)

    @property
    def parked(self) -> tuple[RequestContext, ...]:
        """Requests that have no answer yet, or wait for one that has none, in order."""
        return tuple(self._responses.parked or ())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._responses.open(self.transport)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the transport says why; nothing depends on it
        if not self.holds & CLOSED:
            self._owner.lost(self)
        self.holds |= CLOSED
        self._drop_kept()
        parked = self._responses.drop()
        self._count_held()
        for context in parked:
            context.disconnected()
        self._context = None  # It refers to the connection.
        self._owner.disconnected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what there is room for matters more
        kept = self._kept
        return self._buffers.shared if kept is None else kept.room()

    def buffer_updated(self, nbytes: int) -> None:
        kept = self._kept
        if kept is None:
            shared = self._buffers.shared
            handled = 0 if self.holds else self._handle(shared, 0, nbytes)
            if handled < nbytes:
                self._keep(shared, handled, nbytes)
            if nbytes > SHORT_READ_MAX:
                del shared  # `renew` takes another buffer where a view of this one is left.
                self._buffers.renew()
            return
        kept.filled += nbytes
        if kept.filled < len(kept.view):
            return
        if not self.holds and kept.will_grow:
            self._count_held()
        elif not self.holds:
            self._handle_kept()
        elif kept.filled < KEPT_WHILE_HELD:
            self._keep(kept.view, 0, kept.filled)
        else:
            self.pause_reading()

    def eof_received(self) -> bool:
        if not self.holds & CLOSED:
            self._end(CloseReason.CLIENT, None)
        return False  # The transport closes itself, once it has sent what it has.

    def pause_writing(self) -> None:
        self.holds |= HELD_BY_WRITING
        self.count_unread()

    def resume_writing(self) -> None:
        self._responses.unread_bytes = 0
        self._count_held()
        # A client that has read its responses is not idle.
        self.last_event_ns = self._now_ns()
        self.release(HELD_BY_WRITING)

    def _handle(self, buffer: memoryview, position: int, end: int) -> int:
        """Handles the complete frames of `buffer[position:end]` until a hold; returns where the rest begins."""
        self.buffer = buffer
        self.last_event_ns = began_ns = self._now_ns()
        self._handling = True
        handle = self.handle_frames if self.gate is None else self.gate.handle_frames
        try:
            while True:
                position = handle(buffer, position, end)
                held = self.holds
                self._runtime.end_event()
                if self._deferred:
                    self._append_deferred()
                # The end of the event may have completed the very request that held the connection.
                if not held or self.holds:
                    break
                self.end_run()
        except Exception:
            self._runtime.log.exception("unhandled error in a connection", peer=self.peer_host)
            self._abandon_event()
        self._handling = False
        self.buffer = NOTHING
        if self._responses.ready:
            self._responses.send()
        duration_ns = self._now_ns() - began_ns
        route = self.run_route
        if route is not None:
            # All requests of the event have taken as long as the event: their answers have left together.
            times, count = route.direct, self.run_count
            times[(duration_ns >> UNIT_BITS).bit_length()] += count
            times[SUM_NS] += count * duration_ns
        if self._runs or duration_ns >= SLOW_EVENT_NS:
            self._times.count(duration_ns, self)
        self.run_route = None
        if not self.holds:
            return position
        if self.holds & HELD_BY_WRITING:
            self.count_unread()
        return end if self.holds & CLOSED else position

    def _abandon_event(self) -> None:
        """After an error that is not of one request. Its appends are written while they are where they arrived."""
        self._deferred.clear()
        self.end_run()
        self._runtime.guard(self._runtime.end_event)
        self._buffers.renew()
        self.abort(CloseReason.UNHANDLED_ERROR, "its requests could not be handled")

    def handle_frames(self, buffer: memoryview, position: int, end: int) -> int:
        """The complete frames of `buffer[position:end]`, as requests, until a hold; gives where the rest begins."""
        size_max, handled, run_start, run_position = self._owner.request_bytes_max, 0, 0, position
        run_route: Route | None = None
        while not self.holds and end - position >= HEADER_START_BYTES:
            size, api_and_version, correlation_id, client_id_length = HEADER_START.unpack_from(buffer, position)
            frame_end = position + 4 + size
            if not SMALLEST_FRAME_SIZE <= size <= size_max or frame_end > end:
                break
            body = position + HEADER_START_BYTES
            route = self._routes.get(api_and_version) or self._resolve(api_and_version)
            if route is None:
                break
            if route is not run_route:
                if size >= route.waits_from_bytes and self._turns.is_crowded(
                    self.last_event_ns, in_rushes=route.comes_in_rushes
                ):
                    self._wait_for_turn(end - position)
                    break
                if run_route is not None:
                    self._runs.append((run_route, handled - run_start))
                    run_route.request_bytes += position - run_position
                run_route, run_start, run_position = route, handled, position
            context = self._context
            if context is None:
                context = self._context = RequestContext(self)
            context.route = route
            context.api_version = route.version
            context.correlation_id = correlation_id
            context.size_bytes = size
            context.client_id_position = body
            context.client_id_length = client_id_length
            if client_id_length > 0:
                body += client_id_length
            self._serve(context, route, buffer, body, frame_end)
            position = frame_end
            handled += 1
            if position == end:
                break
            if size >= LONG_REQUEST or handled % REQUESTS_PER_LOOK == 1:
                self._end_turn_if_over(end - position)
        if run_route is not None:
            self.run_route, self.run_count = run_route, handled - run_start
            run_route.request_bytes += position - run_position
        return position

    def _resolve(self, api_and_version: int) -> Route | None:
        route = self._owner.dispatcher.resolve(api_and_version)
        if route is None:
            self.close(CloseReason.NOT_SERVED, why_not_served(api_and_version))
        return route

    def end_run(self) -> None:
        """The requests of the next `handle_frames` are counted apart from those before."""
        if self.run_route is not None:
            self._runs.append((self.run_route, self.run_count))
            self.run_route = None

    def _end_turn_if_over(self, left_bytes: int) -> None:
        if not self.holds and self._turns.is_over(self.last_event_ns, self._now_ns()):
            self._wait_for_turn(left_bytes)

    def _wait_for_turn(self, left_bytes: int) -> None:
        """What has been received and not handled is handled when it is this connection's turn again."""
        self.holds |= HELD_BY_TURN
        self.pause_reading()
        self._turns.wait(self._take_turn, is_little=left_bytes <= LITTLE_BYTES)

    def _take_turn(self) -> None:
        self.holds &= ~HELD_BY_TURN
        self._resume()

    def _serve(self, context: RequestContext, route: Route, buffer: memoryview, body: int, frame_end: int) -> None:
        if self._deferred and not route.defers_answer:
            self._write_deferred()
        try:
            if body > frame_end:  # What is there belongs to other connections.
                raise DecodeError("its client id is longer than the frame")
            if route.has_tagged_header:
                # Almost no client sends tagged fields in the header.
                body = body + 1 if body < frame_end and not buffer[body] else skip_header_tags(buffer, body, frame_end)
            # Bytes after the last field are ignored, as Kafka does: librdkafka 2.16 ends Metadata v13 with three.
            response = route.handle(context, route.decode(buffer, body, frame_end)[0])
        except DecodeError as error:
            self.close(CloseReason.MALFORMED, f"malformed {route.api.name} request: {error}")
            return
        except KafkaError as error:
            response = route.error_response(error)
            if response is None:
                self.close(CloseReason.REQUEST_FAILED, f"{route.api.name} failed: {error}")
                return
        except Exception as error:
            self._runtime.log.exception("a handler failed", api=route.api.name, version=route.version)
            response = context.answer_to_bug(error)
        if response is None:
            return
        if self._responses.parked:
            self._answer_in_turn(context, response)
        elif route.defers_answer:
            self._deferred.append((route, context.correlation_id, response))
        else:
            route.response_bytes += self._responses.append(route.build_frame(response, context.correlation_id))

    def _answer_in_turn(self, context: RequestContext, response: Any) -> None:
        """A response that is ready while an earlier request is parked."""
        if context.route.defers_answer:
            self._runtime.end_event()
        self._context = None
        context.park(mutes=False)
        context.complete(response)

    def _write_deferred(self) -> None:
        """Produce requests are answered once the records of the whole read event are in the log."""
        self._runtime.end_event()
        self._append_deferred()

    def _append_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        self._responses.append_built(deferred)

    # Parked requests: called by `RequestContext`.

    def park(self, context: RequestContext) -> None:
        if self._deferred:
            self._write_deferred()
        if self._context is context:
            self._context = None
        context.began_ns = self.last_event_ns
        self._runs.append((context.route, -1))  # It is counted when it is answered.
        if not self._responses.park(context):
            self.holds |= HELD_BY_PARKED
            if self._responses.has_long_requests:
                self.pause_reading()

    def expect(self, more_bytes: int) -> None:
        self._responses.expect(more_bytes)
        self._count_held()

    def send_completed(self, more_bytes: int) -> None:
        responses = self._responses
        if not responses.take_completed(more_bytes):
            self.holds |= HELD_BY_PARKED
        elif self.holds & HELD_BY_PARKED:
            self.release(HELD_BY_PARKED)
        if responses.ready and not self._handling:
            responses.send()
        if self._held_bytes or self.holds & HELD_BY_WRITING or responses.waiting_bytes >= RESPONSE_BYTES_MAX:
            self.count_unread()

    def release(self, reason: int) -> None:
        if not self.holds & reason:
            return
        self.holds &= ~reason
        # Not at once: this may be deep inside the handling of another connection's request.
        if not self.holds and (self._kept is not None or self._reading_paused):
            self._runtime.soon(self._resume)

    def _resume(self) -> None:
        if self.holds:
            return
        if self._kept is not None:
            self._handle_kept()
        if not self.holds and self._reading_paused:
            self._reading_paused = False
            assert self.transport is not None, "a connection without a transport reads nothing"
            self.transport.resume_reading()

    def pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            assert self.transport is not None, "a connection without a transport reads nothing"
            self.transport.pause_reading()

    def _handle_kept(self) -> None:
        kept = self._kept
        assert kept is not None, "nothing was kept"
        self._kept = None
        handled = self._handle(kept.view, kept.start, kept.filled)
        if handled < kept.filled and self.holds & HELD_BY_TURN:
            # Nothing is received until its turn, so it stays where it is.
            kept.start = handled
            self._kept = kept
            self._memory.made_progress(self)
            return
        if handled < kept.filled:
            self._keep(kept.view, handled, kept.filled)
        elif self._held_bytes:
            self._count_held()
        kept.release()

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Keeps what was not handled, with room for more: at most to the end of the frame."""
        frame_bytes = 0 if self.holds else KeptBytes.announced(view, start, end)
        if self.holds:
            kept = KeptBytes.copied(view, start, end, end - start + (0 if self._reading_paused else KEPT_WHILE_HELD))
        elif end - start < 4 or (self.gate is not None and not self.gate.is_open):  # Which has looked at the size.
            kept = KeptBytes.copied(view, start, end, frame_bytes)
        elif SMALLEST_FRAME_SIZE <= frame_bytes - 4 <= self._owner.request_bytes_max:
            kept = KeptBytes.begun_frame(self._buffers, view, start, end, frame_bytes)
        else:
            self.close(*why_no_frame(bytes(view[start : start + 4]), self._owner.request_bytes_max))
            return
        self._kept = kept
        if self._held_bytes or len(kept.view) > SMALLEST_OWN_BUFFER:
            self._count_held()

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.release()

    def close(self, reason: CloseReason, why: str | None) -> None:
        """Sends the responses that are ready, reads nothing more, and says why in the log unless `why` is None."""
        if self.holds & CLOSED:
            return
        if self._deferred:
            self._write_deferred()
        self._responses.send()
        self._end(reason, why)
        if self.transport is not None:
            self.transport.close()

    def abort(self, reason: CloseReason, why: str) -> None:
        """Drops the responses that its client has not read, and says why in the log."""
        if not self.holds & CLOSED:
            self._end(reason, why)
        self._responses.unread_bytes = self._held_bytes = 0
        if self.transport is not None:
            self.transport.abort()

    def _end(self, reason: CloseReason, why: str | None) -> None:
        self.holds |= CLOSED
        self._responses.close()
        self._drop_kept()
        self._owner.closing(self, reason, why)

    def count_unread(self) -> bool:
        """Counts again what the client has not read; says whether it has read something since the last time."""
        has_read = bool(self.holds & HELD_BY_WRITING) and self._responses.count_unread()
        self._count_held()
        return has_read

    def _count_held(self) -> None:
        held = self._responses.held_bytes + (0 if self._kept is None else self._kept.held_bytes)
        if held != self._held_bytes:
            self._held_bytes = held
            self._memory.set(self, held)
