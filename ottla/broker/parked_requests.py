"""The parked requests of a connection, and the answers that are ready and wait behind one of them."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

# Answers that wait behind a parked produce, and how long the requests were; beyond this the connection is held. What a
# producer is ahead of its followers by shall be in memory for them (`RecentAppends`).
REQUESTS_MAX = 64
REQUEST_BYTES_MAX = 16 << 20
# The same for the answers, beyond one of any size.
ANSWER_BYTES_MAX = 256 * 1024


class ParkedRequest(Protocol):
    """What is asked of a `RequestContext` here."""

    size_bytes: int
    mutes: bool
    frame: Any | None
    answer_bytes: int
    on_disconnect: Callable[[], object] | None


class ParkedRequests(deque[ParkedRequest]):
    """In the order in which they are answered. A deque, so that it costs nothing to ask whether there are any."""

    __slots__ = ("answer_bytes", "request_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.request_bytes = 0
        # Of answers that wait, or are being read from the disk.
        self.answer_bytes = 0

    def park(self, request: ParkedRequest) -> None:
        self.append(request)
        self.request_bytes += request.size_bytes

    def take_ready(self) -> list[Any]:
        """The frames that may leave now: those before the first request that is still parked."""
        frames: list[Any] = []
        while self and self[0].frame is not None:
            request = self.popleft()
            # It refers to what has made the answer, which refers to the request.
            request.on_disconnect = None
            self.request_bytes -= request.size_bytes
            self.answer_bytes -= request.answer_bytes
            frames.append(request.frame)
        return frames

    def takes_more(self) -> bool:
        """Whether the requests behind these may be handled."""
        return not self or (self.has_room() and not self[-1].mutes)

    def has_room(self) -> bool:
        return (
            len(self) < REQUESTS_MAX and self.request_bytes < REQUEST_BYTES_MAX and self.answer_bytes < ANSWER_BYTES_MAX
        )
