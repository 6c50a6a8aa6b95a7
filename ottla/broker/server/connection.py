"""One client connection: bytes in, requests in order to their handlers, answers out in the same order.

A read event delivers what the socket had into a buffer shared by all connections of the loop. Every complete frame in
it is handled at once; handlers see views into that buffer. Before the callback returns, the appends of all those
requests are written, one system call per partition, and then the answers leave in one call. What follows the last
complete frame is kept in a buffer of the connection's own: one of the few that are lent for large frames, or one that
grows with the bytes received and never with the size a client merely announces.

A *hold* stops the handling: a parked request, a client that does not read its answers, a throttled newcomer. Bytes
that arrive meanwhile are kept, up to `KEPT_WHILE_HELD`; then the socket is not read until the hold ends. Answers leave
whenever `ANSWER_BYTES_MAX` of them are there, so that a client that does not read them holds its connection before
many more are built; as many may wait behind a parked request. The sum over all connections: `ConnectionMemory`.
"""

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.server.dispatch import Route
from ottla.broker.server.parked_requests import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, ParkedRequests
from ottla.broker.server.receive_buffers import SHORT_READ_MAX, SMALLEST_OWN_BUFFER, copied
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import DecodeError, skip_header_tags

if TYPE_CHECKING:
    from ottla.broker.server.socket_server import Server
    from ottla.timer.wheel import TimerEntry

# Size, API key and version as one number, correlation id, length of the client id: the part every header begins with.
HEADER_START = Struct(">iIih")
SMALLEST_FRAME_SIZE = HEADER_START.size - 4

HELD_BY_PARKED = 1
HELD_BY_WRITING = 2
HELD_BY_THROTTLE = 4
CLOSED = 8
HELD_BY_START = 16

KEPT_WHILE_HELD = 64 * 1024
# Frames of this size are put together in a lent buffer; smaller ones are copied sooner than it is found.
LARGE_FRAME = 64 * 1024
NOTHING = memoryview(b"")


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_buffers",
        "_context",
        "_deferred",
        "_handling",
        "_held_bytes",
        "_holds",
        "_in_flight",
        "_memory",
        "_out",
        "_out_bytes",
        "_own",
        "_own_filled",
        "_own_is_lent",
        "_reading_paused",
        "_routes",
        "_runtime",
        "_server",
        "_unread_bytes",
        "buffer",
        "idle_timer",
        "last_event_ms",
        "listener_name",
        "peer_host",
        "transport",
    )

    def __init__(self, server: "Server", listener_name: str) -> None:
        self._server = server
        self.listener_name = listener_name
        self._runtime = server.runtime
        self._routes = server.dispatcher.routes
        self._buffers = server.receive_buffers
        self._memory = server.memory
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.last_event_ms = 0
        # The server's, which closes connections that are idle, and aborts those that do not get closed.
        self.idle_timer: TimerEntry | None = None
        # The bytes that the requests being handled lie in.
        self.buffer = NOTHING
        self._context: RequestContext | None = None
        # Received and not handled: the beginning of a frame, or whatever arrives during a hold.
        self._own: memoryview | None = None
        self._own_filled = 0
        self._own_is_lent = False
        self._holds = 0
        self._reading_paused = False
        self._handling = False
        # Invariant: every frame in `_out` answers an earlier request than any in `_in_flight` or `_deferred`,
        # and `_deferred` is empty when a request is added to `_in_flight`.
        self._out: list[Any] = []
        self._out_bytes = 0
        self._deferred: list[tuple[Route, int, Any]] = []
        self._in_flight: ParkedRequests | None = None
        # Of what the transport was given: not zero while it has more of it than it likes.
        self._unread_bytes = 0
        # As `ConnectionMemory` knows it.
        self._held_bytes = 0

    @property
    def is_inter_broker(self) -> bool:
        """Whether it came by the listener that brokers have for each other."""
        return self.listener_name == self._server.inter_broker_listener

    @property
    def is_closed(self) -> bool:
        """Whether answers go nowhere any more."""
        return bool(self._holds & CLOSED)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the transport says why; nothing depends on it
        self._holds |= CLOSED
        self._drop_own()
        self._out = []
        waiting, self._in_flight = self._in_flight, None
        self._unread_bytes = 0
        self._count_held()
        for context in waiting or ():
            if context.on_disconnect is not None:
                context.on_disconnect()
                context.on_disconnect = None
        self._server.disconnected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what there is room for matters more
        own = self._own
        return self._buffers.shared if own is None else own[self._own_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        own = self._own
        if own is None:
            self._handle_shared(self._buffers.shared, nbytes)
            if nbytes > SHORT_READ_MAX:
                self._buffers.renew()
            return
        self._own_filled += nbytes
        if self._own_filled < len(own):
            return
        if not self._holds:
            self._handle_own()
        elif len(own) < KEPT_WHILE_HELD:
            self._keep(own, 0, len(own))
        else:
            self._pause_reading()

    def eof_received(self) -> bool:
        # The transport closes itself, once it has sent what it has.
        if not self._holds & CLOSED:
            self._end()
        return False

    def pause_writing(self) -> None:
        self._holds |= HELD_BY_WRITING
        self.count_unread()

    def resume_writing(self) -> None:
        self._unread_bytes = 0
        self._count_held()
        # A client that has read its answers is not idle.
        self.last_event_ms = self._runtime.clock.now_ms()
        self.release(HELD_BY_WRITING)

    # Requests.

    def _handle_shared(self, shared: memoryview, nbytes: int) -> None:
        handled = 0 if self._holds else self._handle(shared, nbytes)
        if handled < nbytes:
            self._keep(shared, handled, nbytes)

    def _handle(self, buffer: memoryview, end: int) -> int:
        """Handles the complete frames of `buffer[:end]` until a hold; returns where the rest begins."""
        self.buffer = buffer
        self.last_event_ms = self._runtime.clock.now_ms()
        self._handling = True
        position = 0
        while True:
            position = self._handle_frames(buffer, position, end)
            held = self._holds
            self._answer_deferred()
            self._runtime.end_event()
            # Settling may have answered the very request that held the connection.
            if self._holds or not held:
                break
        self._handling = False
        self.buffer = NOTHING
        self._send()
        return end if self._holds & CLOSED else position

    def _handle_frames(self, buffer: memoryview, position: int, end: int) -> int:
        size_max = self._server.request_bytes_max
        while not self._holds and end - position >= HEADER_START.size:
            size, api_and_version, correlation_id, client_id_length = HEADER_START.unpack_from(buffer, position)
            frame_end = position + 4 + size
            if not SMALLEST_FRAME_SIZE <= size <= size_max or frame_end > end:
                break
            body = position + HEADER_START.size
            route = self._routes.get(api_and_version)
            if route is None:
                route = self._server.dispatcher.resolve(api_and_version)
                if route is None:
                    self.close(f"API {api_and_version >> 16} version {api_and_version & 0xFFFF} is not served")
                    return end
            context = self._context
            if context is None:
                context = self._context = RequestContext(self)
            context.route = route
            context.correlation_id = correlation_id
            context.size_bytes = size
            context.client_id_position = body
            context.client_id_length = client_id_length
            if client_id_length > 0:
                body += client_id_length
            self._serve(context, route, buffer, body, frame_end)
            position = frame_end
        return position

    def _serve(self, context: RequestContext, route: Route, buffer: memoryview, body: int, frame_end: int) -> None:
        if not route.defers_answer and self._deferred:
            self._answer_deferred()
        try:
            if route.has_tagged_header:
                # Almost no client sends tagged fields in the header.
                body = body + 1 if body < frame_end and not buffer[body] else skip_header_tags(buffer, body, frame_end)
            # Bytes after the last field are ignored, as Kafka does: librdkafka 2.16 ends Metadata v13 with three.
            response = route.handle(context, route.decode(buffer, body, frame_end)[0])
        except DecodeError as error:
            self.close(f"malformed {route.api.name} request: {error}")
            return
        except KafkaError as error:
            response = route.error_response(error)
            if response is None:
                self.close(f"{route.api.name} failed: {error}")
                return
        except Exception:
            self._runtime.log.exception("a handler failed", api=route.api.name, version=route.version)
            self.close(f"{route.api.name} failed unexpectedly")
            return
        if response is None:
            return
        if self._in_flight:
            self._answer_in_turn(context, response)
        elif route.defers_answer:
            self._deferred.append((route, context.correlation_id, response))
        else:
            self._append(route.build_frame(response, context.correlation_id))

    def _answer_in_turn(self, context: RequestContext, response: Any) -> None:
        """An answer that is ready while an earlier request is parked."""
        if context.route.defers_answer:
            self._runtime.end_event()
        self._context = None
        context.park(mutes=False)
        context.complete(response)

    def _answer_deferred(self) -> None:
        """Produce requests are answered once the records of the whole read event are in the log."""
        if not self._deferred:
            return
        self._runtime.end_event()
        deferred, self._deferred = self._deferred, []
        for route, correlation_id, response in deferred:
            self._append(route.build_frame(response, correlation_id))

    # Parked requests.

    def parked(self, context: RequestContext) -> None:
        """Called by `RequestContext.park`."""
        self._answer_deferred()
        if self._context is context:
            self._context = None
        if self._in_flight is None:
            self._in_flight = ParkedRequests()
        self._in_flight.park(context)
        if context.mutes or not self._in_flight.has_room():
            self._holds |= HELD_BY_PARKED
            if self._in_flight.request_bytes >= REQUEST_BYTES_MAX:
                # There is more to come, for sure, and much of it would have to be kept.
                self._pause_reading()

    def expect(self, answer_bytes: int) -> None:
        """Called by `RequestContext.expect_answer`."""
        if self._in_flight is not None:
            self._in_flight.answer_bytes += answer_bytes
            self._count_held()

    def completed(self, answer_bytes: int) -> None:
        """Called by `RequestContext.complete`: an answer is there, longer than was expected by so much."""
        waiting = self._in_flight
        if waiting is None:
            return
        waiting.answer_bytes += answer_bytes
        for frame in waiting.take_ready():
            self._append(frame)
        if waiting.takes_more():
            self.release(HELD_BY_PARKED)
        else:
            self._holds |= HELD_BY_PARKED
        if not self._handling:
            self._send()
        if self._held_bytes or waiting.answer_bytes >= ANSWER_BYTES_MAX:
            self._count_held()

    # Holds.

    def hold(self, reason: int) -> None:
        self._holds |= reason

    def release(self, reason: int) -> None:
        if not self._holds & reason:
            return
        self._holds &= ~reason
        # Not at once: this may be deep inside the handling of another connection's request.
        if not self._holds and (self._own is not None or self._reading_paused):
            self._runtime.soon(self._resume)

    def _resume(self) -> None:
        if self._holds:
            return
        if self._own is not None:
            self._handle_own()
        if not self._holds and self._reading_paused:
            self._reading_paused = False
            assert self.transport is not None, "a connection without a transport reads nothing"
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            assert self.transport is not None, "a connection without a transport reads nothing"
            self.transport.pause_reading()

    # The connection's own buffer.

    def _handle_own(self) -> None:
        own, filled, is_lent = self._own, self._own_filled, self._own_is_lent
        assert own is not None, "nothing was kept"
        self._own, self._own_is_lent = None, False
        handled = self._handle(own, filled)
        if handled < filled:
            self._keep(own, handled, filled)
        elif self._held_bytes:
            self._count_held()
        if is_lent:
            self._buffers.give_back()

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Keeps what was not handled, with room for more: at most to the end of the frame."""
        self._own_filled = received = end - start
        if self._holds:
            self._own = copied(view, start, end, received + KEPT_WHILE_HELD)
        elif received < 4:
            self._own = copied(view, start, end, 4)
        else:
            size = int.from_bytes(view[start : start + 4], "big", signed=True)
            if not SMALLEST_FRAME_SIZE <= size <= self._server.request_bytes_max:
                self.close(f"frame of {size} bytes, at most {self._server.request_bytes_max} allowed")
                return
            lent = self._buffers.lend(view, start, end, size + 4) if size >= LARGE_FRAME else None
            self._own_is_lent = lent is not None
            self._own = copied(view, start, end, size + 4) if lent is None else lent
        if self._held_bytes or len(self._own) > SMALLEST_OWN_BUFFER:
            self._count_held()

    def _drop_own(self) -> None:
        if self._own is not None and self._own_is_lent:
            self._buffers.give_back()
        self._own, self._own_is_lent = None, False

    # Out.

    def _append(self, frame: Any) -> None:
        if type(frame) is bytes:
            self._out.append(frame)
            self._out_bytes += len(frame)
        else:
            self._out += frame
            self._out_bytes += sum(map(len, frame))
        if self._out_bytes >= ANSWER_BYTES_MAX:
            self._send()

    def _send(self) -> None:
        if self._out and self.transport is not None and not self._holds & CLOSED:
            out, self._out = self._out, []
            self._out_bytes = 0
            self.transport.writelines(out)
            if self._holds & HELD_BY_WRITING:
                self.count_unread()

    def close(self, reason: str) -> None:
        """Sends the answers that are ready, reads nothing more, and says why in the log. What the client has not read
        after `CLOSE_TIMEOUT_MS` is dropped."""
        if self._holds & CLOSED:
            return
        self._answer_deferred()
        self._send()
        self._end()
        self._server.log_closing(self, reason)
        if self.transport is not None:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """Drops the answers that its client has not read, and says why in the log."""
        if not self._holds & CLOSED:
            self._end()
            self._server.log_closing(self, reason)
        self._unread_bytes = self._held_bytes = 0
        if self.transport is not None:
            self.transport.abort()

    def _end(self) -> None:
        self._holds |= CLOSED
        self._drop_own()
        self._server.closing(self)

    def answers_pending(self) -> bool:
        return bool(self._in_flight)

    # Memory.

    def fetch_room(self) -> int:
        return self._memory.fetch_room()

    def count_unread(self) -> bool:
        if self.transport is None or not self._holds & HELD_BY_WRITING:
            return False
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        self._count_held()
        return self._unread_bytes < before

    def _count_held(self) -> None:
        own = self._own
        held = self._unread_bytes
        if self._in_flight is not None and self._in_flight.answer_bytes >= ANSWER_BYTES_MAX:
            held += self._in_flight.answer_bytes
        if own is not None and not self._own_is_lent and len(own) > SMALLEST_OWN_BUFFER:
            held += len(own)
        if held != self._held_bytes:
            self._held_bytes = held
            self._memory.set(self, held)
