"""The client's side of one connection, without I/O: requests become bytes, bytes become responses.

    client = WireClient("my-client")
    transport.write(client.send(request, version))
    ...
    for payload in frames.feed(data):
        response = client.receive(payload)

A broker answers the requests of a connection in their order, so the oldest request that waits is the one a response
belongs to; its correlation id must say so too.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from ottla.protocol.codec import decode, decode_whole
from ottla.protocol.headers import CORRELATION_ID_BYTES, RequestFramer, response_body_offset
from ottla.protocol.primitives import Buffer, DecodeError
from ottla.protocol.schema import Message, response_class_of

M = TypeVar("M", bound=Message)

SIZE_BYTES: Final = 4
_CORRELATION_IDS: Final = 1 << 31


class UnexpectedResponseError(DecodeError):
    """A response that belongs to no request, or not to the oldest one: one sentence."""


class PendingRequest(NamedTuple):
    """A request that waits for its response."""

    request: Message
    version: int
    correlation_id: int


class WireClient:
    """One object for each connection. `send` and `receive` may be called in any order."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._framers: dict[tuple[type[Message], int], RequestFramer] = {}
        self._pending: deque[PendingRequest] = deque()
        self._correlation_id = 0

    @property
    def pending(self) -> PendingRequest | None:
        """The request whose response comes next."""
        return self._pending[0] if self._pending else None

    def send(self, request: Message, version: int, *, has_response: bool = True) -> bytes:
        """The frame of a request. Without a response (Produce with acks=0) nothing waits for it."""
        cls = type(request)
        framer = self._framers.get((cls, version))
        if framer is None:
            framer = self._framers[cls, version] = RequestFramer(cls, version, self._client_id)
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        if has_response:
            self._pending.append(PendingRequest(request, version, self._correlation_id))
        return framer.build(request, self._correlation_id)

    def receive(self, payload: Buffer) -> Any:
        """The response in a frame's bytes after its size. Raises DecodeError, after which the connection is of no use:
        UnexpectedResponseError when no request waits for it."""
        request, version, _ = self.match(payload)
        return parse_response(response_class_of(type(request)), version, payload)

    def match(self, payload: Buffer) -> PendingRequest:
        """The request that a response belongs to, for a caller that parses the response itself. Raises
        UnexpectedResponseError."""
        if not self._pending:
            raise UnexpectedResponseError("a response that no request waits for")
        pending = self._pending.popleft()
        correlation_id = int.from_bytes(payload[:CORRELATION_ID_BYTES], "big")
        if correlation_id != pending.correlation_id:
            raise UnexpectedResponseError(
                f"a response to request {correlation_id} where {pending.correlation_id} was next"
            )
        return pending


def parse_response(cls: type[M], version: int, payload: Buffer, *, allows_trailing_bytes: bool = False) -> M:
    """The response in a frame's bytes after its size. Raises DecodeError.

    `allows_trailing_bytes`: bytes after the message are let pass, as most clients do."""
    start = response_body_offset(cls, version, payload)
    if allows_trailing_bytes:
        return decode(cls, version, payload, start)[0]
    return decode_whole(cls, version, payload, start)


class FrameBuffer:
    """Cuts a stream of bytes into frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """The payloads of all frames that are whole with `data`. Raises DecodeError for an impossible size."""
        self._buffer += data
        while len(self._buffer) >= SIZE_BYTES:
            end = SIZE_BYTES + parse_frame_size(self._buffer, self._frame_bytes_max)
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[SIZE_BYTES:end])
            del self._buffer[:end]
            yield payload


def parse_frame_size(buffer: Buffer, size_max: int) -> int:
    """The size of the frame whose four size bytes stand first, checked before anything is allocated for it."""
    size = int.from_bytes(buffer[:SIZE_BYTES], "big", signed=True)
    if not 0 <= size <= size_max:
        raise DecodeError(f"frame of {size} bytes, at most {size_max} allowed")
    return size
