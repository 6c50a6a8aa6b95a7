"""Frames for clients and brokers that a test plays itself."""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.client import SIZE_BYTES, RequestFramer
from ottla.protocol.codec import frame_encoder
from ottla.protocol.primitives import Buffer, DecodeError, skip_header_tags
from ottla.protocol.schema import Message, is_flexible

_START = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    body_offset: int


def build_request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request: size, header and body."""
    return RequestFramer(type(request), version, client_id).build(request, correlation_id)


def response_frame(response: Message, version: int, correlation_id: int) -> bytes:
    """A whole response: size, header and body."""
    return frame_encoder(type(response), version)(response, correlation_id)


def parse_request_header(payload: bytes, requests: dict[int, Any]) -> RequestHeader:
    """The header in a frame's bytes after its size; `requests` are the known classes by API key."""
    api_key, api_version, correlation_id, client_id_length = _START.unpack_from(payload)
    body = _START.size + max(client_id_length, 0)
    if is_flexible(requests[api_key], api_version):
        body = skip_header_tags(payload, body, len(payload))
    return RequestHeader(api_key, api_version, correlation_id, body)


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
