"""The responses of one connection on their way out, in the order of its requests.

A response that is ready goes to the transport with the others of its event. Behind a parked request it waits, and
counts: beyond `REQUESTS_MAX` parked requests, `REQUEST_BYTES_MAX` of them or `RESPONSE_BYTES_MAX` of responses the
connection handles nothing more. What the transport could not send yet is counted too, as far as the client does not
read it. A queue decides nothing about its connection: it says how things stand, and the connection holds and releases.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.broker.server.dispatch import Route
from ottla.broker.server.network import WritingTransport, writing_transport
from ottla.broker.server.request_context import RequestContext

# Parked requests, and how long they were. What a producer is ahead of its followers by shall be in memory for them
# (`RecentAppends`).
REQUESTS_MAX = 64
REQUEST_BYTES_MAX = 16 << 20
# Responses that wait behind a parked request, beyond one of any size. Of those that are ready so many are sent at once:
# a client that does not read holds its connection before many more are built.
RESPONSE_BYTES_MAX = 256 * 1024


class ResponseQueue:
    # Invariant: every frame in `ready` answers an earlier request than any in `parked`.
    __slots__ = (
        "_count_parked",
        "_is_closed",
        "_ready_bytes",
        "_request_bytes",
        "_transport",
        "answered_ns",
        "parked",
        "ready",
        "unread_bytes",
        "waiting_bytes",
    )

    def __init__(self, count_parked: Callable[[RequestContext], int]) -> None:
        """`count_parked` is called with every parked request whose answer leaves, and gives the time in ns."""
        self._count_parked = count_parked
        self._transport: WritingTransport | None = None
        self._is_closed = False
        self.ready: list[Any] = []
        self._ready_bytes = 0
        # In the order in which they are answered; made with the first one, as most connections park nothing.
        self.parked: deque[RequestContext] | None = None
        self._request_bytes = 0
        # When the last answer to one of them left.
        self.answered_ns = 0
        # Of responses behind a parked request, or being read from the disk.
        self.waiting_bytes = 0
        # Of what the transport was given: not zero while it has more of it than it likes.
        self.unread_bytes = 0

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = writing_transport(transport)

    def close(self) -> None:
        """Sends nothing more; the transport may still have responses that the client has not read."""
        self._is_closed = True

    def drop(self) -> deque[RequestContext]:
        """Lets go of everything, when the connection is lost; gives the requests that were parked."""
        parked = self.parked or deque()
        self._is_closed = True
        self.ready = []
        self.parked = None
        self.unread_bytes = self.waiting_bytes = 0
        return parked

    # Responses that are ready.

    def append(self, frame: Any) -> int:
        """Its bytes."""
        if type(frame) is bytes:
            self.ready.append(frame)
            size_bytes = len(frame)
        else:
            self.ready += frame
            size_bytes = sum(map(len, frame))
        self._ready_bytes += size_bytes
        if self._ready_bytes >= RESPONSE_BYTES_MAX:
            self.send()
        return size_bytes

    def append_built(self, responses: list[tuple[Route, int, Any]]) -> None:
        """Responses of one API with their correlation ids, which are built now. Their routes count the bytes."""
        route, correlation_id, response = responses[0]
        if len(responses) == 1:
            # As nearly always where requests are not pipelined.
            route.response_bytes += self.append(route.build_frame(response, correlation_id))
            return
        frames = [route.build_frame(response, correlation_id) for route, correlation_id, response in responses]
        self.ready += frames
        size_bytes = sum(map(len, frames))
        route.response_bytes += size_bytes
        self._ready_bytes += size_bytes
        if self._ready_bytes >= RESPONSE_BYTES_MAX:
            self.send()

    def send(self) -> None:
        if self.ready and self._transport is not None and not self._is_closed:
            ready, self.ready = self.ready, []
            self._ready_bytes = 0
            self._transport.writelines(ready)

    def count_unread(self) -> bool:
        """Counts again what the client has not read; says whether it has read something since the last time."""
        if self._transport is None:
            return False
        before, self.unread_bytes = self.unread_bytes, self._transport.get_write_buffer_size()
        return self.unread_bytes < before

    # Requests that are parked.

    def park(self, request: RequestContext) -> bool:
        """Says whether the requests behind it may be handled."""
        if self.parked is None:
            self.parked = deque()
        self.parked.append(request)
        self._request_bytes += request.size_bytes
        return not request.mutes and self._has_room(self.parked)

    def expect(self, more_bytes: int) -> None:
        """The response of a parked request will be longer by so much than was expected."""
        if self.parked is not None:
            self.waiting_bytes += more_bytes

    def take_completed(self, more_bytes: int) -> bool:
        """A parked request has its response, longer by so much than was expected: takes what may leave now, up to the
        first request without a response. Says whether the requests behind the parked ones may be handled."""
        parked = self.parked
        if parked is None:
            return True
        self.waiting_bytes += more_bytes
        while parked and parked[0].frame is not None:
            request = parked.popleft()
            frame: Any = request.frame
            # It refers to what has made the response, which refers to the request.
            request.on_disconnect = None
            self._request_bytes -= request.size_bytes
            self.waiting_bytes -= request.response_bytes
            self.answered_ns = self._count_parked(request)
            if type(frame) is bytes:
                self.ready.append(frame)
            else:
                self.ready += frame
            self._ready_bytes += request.response_bytes
            if self._ready_bytes >= RESPONSE_BYTES_MAX:
                self.send()
        return not parked or (not parked[-1].mutes and self._has_room(parked))

    @property
    def has_long_requests(self) -> bool:
        """Whether more is to come, for sure, and much of it would have to be kept."""
        return self._request_bytes >= REQUEST_BYTES_MAX

    @property
    def held_bytes(self) -> int:
        """What the client makes the broker hold; short responses behind a parked request do not count."""
        waiting = self.waiting_bytes
        return self.unread_bytes + (waiting if waiting >= RESPONSE_BYTES_MAX else 0)

    def _has_room(self, parked: deque[RequestContext]) -> bool:
        return (
            len(parked) < REQUESTS_MAX
            and self._request_bytes < REQUEST_BYTES_MAX
            and self.waiting_bytes < RESPONSE_BYTES_MAX
        )
