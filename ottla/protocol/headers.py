"""The client's side of headers: requests to frames, and what stands before the body of a response.

A request's header is version 2, which ends in tagged fields, when its API's version is flexible, else version 1. Both
carry the client id with an int16 length. A response's header is version 1 (tagged fields) or 0 in the same way, except
that answers to ApiVersions always have version 0, which a client of any age can read (KIP-511).

The broker's side needs none of this as functions: a route knows whether its requests end in tags, and the compiled
encoder of a response writes its header.
"""

import struct
from typing import Final

from ottla.protocol.codec import encode, encoder
from ottla.protocol.primitives import Buffer, skip_tags, truncated
from ottla.protocol.schema import Message, is_flexible, response_header_is_tagged

CORRELATION_ID_BYTES: Final = 4

_INT32 = struct.Struct(">i")
_HEADER_START = struct.Struct(">hhih")
# Size, API key, version, correlation id.
_FRAME_START = struct.Struct(">ihhi")


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


def build_request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request: size, header and body."""
    header = _request_header(type(request), version, correlation_id, client_id)
    body = encode(request, version)
    return _INT32.pack(len(header) + len(body)) + header + body


def skip_header_tags(view: Buffer, position: int, end: int) -> int:
    """Where the body begins after a header whose tagged fields begin at `position`. Raises DecodeError."""
    if position >= end:
        raise truncated()
    try:
        return skip_tags(view, position + 1, view[position], end)
    except IndexError:
        raise truncated() from None


def response_body_offset(cls: type[Message], version: int, payload: Buffer) -> int:
    """Where the body of a response begins in a frame's bytes after its size. Raises DecodeError."""
    if len(payload) < CORRELATION_ID_BYTES:
        raise truncated()
    if not response_header_is_tagged(cls, version):
        return CORRELATION_ID_BYTES
    # Almost no broker sends tagged fields in the header.
    if len(payload) > CORRELATION_ID_BYTES and not payload[CORRELATION_ID_BYTES]:
        return CORRELATION_ID_BYTES + 1
    return skip_header_tags(payload, CORRELATION_ID_BYTES, len(payload))


def _request_header(cls: type[Message], version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    start = _HEADER_START.pack(cls.API_KEY, version, correlation_id, -1 if client_id is None else len(name))
    return start + name + (b"\0" if is_flexible(cls, version) else b"")
