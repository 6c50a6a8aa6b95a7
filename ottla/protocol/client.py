"""The client's side of one connection, without I/O: requests become bytes, bytes become responses.

    client = WireClient("my-client")
    transport.write(client.send(request, version))
    response = client.receive(payload)

A broker answers the requests of a connection in their order, so the oldest request that waits is the one a response
belongs to; its correlation id must say so too.

A request's header is version 2, which ends in tagged fields, when its API's version is flexible, else version 1. Both
carry the client id with an int16 length. A response's header is version 1 (tagged fields) or 0 in the same way, except
that answers to ApiVersions always have version 0, which a client of any age can read (KIP-511).
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.protocol.codec import decode, decode_whole, decoder, encoder
from ottla.protocol.primitives import Buffer, DecodeError, skip_header_tags, truncated
from ottla.protocol.schema import Message, is_flexible, response_class_of, response_header_is_tagged

M = TypeVar("M", bound=Message)

SIZE_BYTES: Final = 4
CORRELATION_ID_BYTES: Final = 4
_CORRELATION_IDS: Final = 1 << 31
_INT32 = struct.Struct(">i")
_HEADER_START = struct.Struct(">hhih")
# Size, API key, version, correlation id.
_FRAME_START = struct.Struct(">ihhi")


class UnexpectedResponseError(DecodeError):
    """A response that belongs to no request, or not to the oldest one: one sentence."""


class Exchange(NamedTuple):
    """How one kind of request is sent and its response understood, worked out once."""

    framer: "RequestFramer"
    response_class: type[Message]
    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    has_tagged_header: bool


class PendingRequest(NamedTuple):
    """A request that waits for its response."""

    request: Message
    version: int
    correlation_id: int
    exchange: Exchange


class WireClient:
    """One object for each connection. `send` and `receive` may be called in any order."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._exchanges: dict[tuple[type[Message], int], Exchange] = {}
        self._pending: deque[PendingRequest] = deque()
        self._correlation_id = 0

    @property
    def pending(self) -> PendingRequest | None:
        """The request whose response comes next."""
        return self._pending[0] if self._pending else None

    def send(self, request: Message, version: int, *, has_response: bool = True) -> bytes:
        """The frame of a request. Without a response (Produce with acks=0) nothing waits for it. Raises struct.error
        for a number or a length beyond its field, UnicodeEncodeError for a text with surrogates."""
        exchange = self._exchanges.get((type(request), version)) or self._exchange(type(request), version)
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        frame = exchange.framer.build(request, self._correlation_id)
        if has_response:
            self._pending.append(PendingRequest(request, version, self._correlation_id, exchange))
        return frame

    def receive(self, payload: Buffer) -> Any:
        """The response in a frame's bytes after its size. Raises DecodeError, after which the connection is of no use:
        UnexpectedResponseError when no request waits for it."""
        exchange = self.match(payload).exchange
        view = memoryview(payload)
        end, start = len(view), CORRELATION_ID_BYTES
        if exchange.has_tagged_header:
            # Almost no broker sends tagged fields in the header.
            start = start + 1 if end > start and not view[start] else skip_header_tags(view, start, end)
        response, position = exchange.decode(view, start, end)
        if position != end:
            raise DecodeError(f"{end - position} bytes left after {exchange.response_class.__name__}")
        return response

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

    def _exchange(self, cls: type[Message], version: int) -> Exchange:
        response_class = response_class_of(cls)
        framer = RequestFramer(cls, version, self._client_id)
        decode_response = decoder(response_class, version)
        exchange = Exchange(framer, response_class, decode_response, response_header_is_tagged(response_class, version))
        self._exchanges[cls, version] = exchange
        return exchange


class RequestFramer:
    """Builds the frames of one kind of request of one client; what is the same in all of them is made once."""

    __slots__ = ("_encode", "_key_and_version", "_rest_of_header")

    def __init__(self, cls: type[Message], version: int, client_id: str | None) -> None:
        self._encode = encoder(cls, version)
        self._key_and_version = cls.API_KEY, version
        self._rest_of_header = _request_header(cls, version, 0, client_id)[_FRAME_START.size - _INT32.size :]

    def build(self, request: Message, correlation_id: int) -> bytes:
        """A whole request: size, header and body."""
        rest = self._rest_of_header + self._encode(request)
        size = _FRAME_START.size - _INT32.size + len(rest)
        return _FRAME_START.pack(size, *self._key_and_version, correlation_id) + rest


def _request_header(cls: type[Message], version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    start = _HEADER_START.pack(cls.API_KEY, version, correlation_id, -1 if client_id is None else len(name))
    return start + name + (b"\0" if is_flexible(cls, version) else b"")


def parse_response(cls: type[M], version: int, payload: Buffer, *, allows_trailing_bytes: bool = False) -> M:
    """The response in a frame's bytes after its size. Raises DecodeError.

    `allows_trailing_bytes`: bytes after the message are let pass, as most clients do."""
    start = CORRELATION_ID_BYTES
    if len(payload) < start:
        raise truncated()
    if response_header_is_tagged(cls, version):
        start = skip_header_tags(payload, start, len(payload))
    if allows_trailing_bytes:
        return decode(cls, version, payload, start)[0]
    return decode_whole(cls, version, payload, start)
