"""The broker's side of frames, for brokers that a test plays itself."""

import struct
from typing import Any, NamedTuple

from ottla.protocol.codec import frame_encoder
from ottla.protocol.headers import skip_header_tags
from ottla.protocol.schema import Message, is_flexible

_START = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    body_offset: int


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
