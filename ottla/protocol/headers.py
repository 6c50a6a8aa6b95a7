"""Request and response headers, and whole frames.

A request's header is version 2, which ends in tagged fields, when its API's version is flexible, else version 1. Both
carry the client id with an int16 length. A response's header is version 1 (tagged fields) or 0 in the same way, except
that answers to ApiVersions always have version 0, which a client of any age can read (KIP-511).

    frame = build_response_frame(response, version, correlation_id)     # the broker's side
    header = parse_request_header(frame, 4)
    request = build_request_frame(request, version, correlation_id, client_id)     # the client's side
    correlation_id, response = parse_response(HeartbeatResponse, version, payload)
"""

import struct
from typing import Final, NamedTuple, TypeVar

from ottla.protocol.codec import Parts, decode_whole, encode, encoder, frame_encoder, frame_parts_encoder
from ottla.protocol.primitives import Buffer, DecodeError, skip_tags, truncated
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)

API_VERSIONS: Final = 18

FLEXIBLE_FROM: Final = {
    0: 9,  # Produce
    1: 12,  # Fetch
    2: 6,  # ListOffsets
    3: 9,  # Metadata
    8: 8,  # OffsetCommit
    9: 6,  # OffsetFetch
    10: 3,  # FindCoordinator
    11: 6,  # JoinGroup
    12: 4,  # Heartbeat
    13: 4,  # LeaveGroup
    14: 4,  # SyncGroup
    15: 5,  # DescribeGroups
    16: 3,  # ListGroups
    18: 3,  # ApiVersions
    19: 5,  # CreateTopics
    20: 4,  # DeleteTopics
    21: 2,  # DeleteRecords
    22: 2,  # InitProducerId
    23: 4,  # OffsetForLeaderEpoch
    32: 4,  # DescribeConfigs
    33: 2,  # AlterConfigs
    35: 2,  # DescribeLogDirs
    37: 2,  # CreatePartitions
    42: 2,  # DeleteGroups
    43: 2,  # ElectLeaders
    44: 1,  # IncrementalAlterConfigs
    45: 0,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    60: 0,  # DescribeCluster
    61: 0,  # DescribeProducers
    64: 0,  # UnregisterBroker
    75: 0,  # DescribeTopicPartitions
}
"""First flexible version by API key, so that a header can be read without the message's module. Others have none."""

_NEVER: Final = 0x8000
_HEAD = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")
# Size, API key, version, correlation id.
_FRAME_START = struct.Struct(">ihhi")


class RequestHeader(NamedTuple):
    """`body_offset` is where the request itself starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def request_header_version(api_key: int, api_version: int) -> int:
    """1, or 2 when the header ends in tagged fields."""
    return 2 if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """0, or 1 when the header ends in tagged fields."""
    return 0 if api_key == API_VERSIONS else request_header_version(api_key, api_version) - 1


def parse_request_header(view: Buffer, position: int = 0, end: int | None = None) -> RequestHeader:
    """The header of the request whose frame, after its size, lies between `position` and `end`. Raises DecodeError."""
    if end is None:
        end = len(view)
    body = position + _HEAD.size
    if body > end:
        raise truncated()
    api_key, api_version, correlation_id, length = _HEAD.unpack_from(view, position)
    client_id = None
    if length >= 0:
        position, body = body, body + length
        if body > end:
            raise truncated()
        client_id = _parse_client_id(view[position:body])
    elif length != -1:
        raise DecodeError(f"a client id of {length} bytes")
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
        if body >= end:
            raise truncated()
        body = _skip_header_tags(view, body, end)
    return RequestHeader(api_key, api_version, correlation_id, client_id, body)


def _parse_client_id(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a client id that is not UTF-8") from None


def _skip_header_tags(view: Buffer, position: int, end: int) -> int:
    try:
        return skip_tags(view, position + 1, view[position], end)
    except IndexError:
        raise truncated() from None


def build_response_frame(response: Message, version: int, correlation_id: int) -> bytes:
    """A whole response: size, header and body, in one compiled call."""
    return frame_encoder(type(response), version)(response, correlation_id)


def build_response_parts(response: Message, version: int, correlation_id: int) -> Parts:
    """A whole response as a list of buffers, in which record buffers stand uncopied."""
    return frame_parts_encoder(type(response), version)(response, correlation_id)


def build_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request's header in the version that its API's version asks for."""
    name = b"" if client_id is None else client_id.encode()
    head = _HEAD.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    return head + name + (b"\0" if request_header_version(api_key, api_version) == 2 else b"")


def build_request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request: size, header and body."""
    header = build_request_header(request.API_KEY, version, correlation_id, client_id)
    body = encode(request, version)
    return _INT32.pack(len(header) + len(body)) + header + body


class RequestFramer:
    """Builds the frames of one kind of request of one client; what is the same in all of them is made once."""

    __slots__ = ("_encode", "_key_and_version", "_rest_of_header")

    def __init__(self, cls: type[Message], version: int, client_id: str | None) -> None:
        self._encode = encoder(cls, version)
        self._key_and_version = cls.API_KEY, version
        self._rest_of_header = build_request_header(cls.API_KEY, version, 0, client_id)[_FRAME_START.size - 4 :]

    def build(self, request: Message, correlation_id: int) -> bytes:
        """A whole request: size, header and body."""
        rest = self._rest_of_header + self._encode(request)
        return _FRAME_START.pack(_FRAME_START.size - 4 + len(rest), *self._key_and_version, correlation_id) + rest


def parse_response(cls: type[M], version: int, payload: Buffer) -> tuple[int, M]:
    """The correlation id and the response in a frame's bytes after its size. Raises DecodeError."""
    if len(payload) < _INT32.size:
        raise truncated()
    (correlation_id,) = _INT32.unpack_from(payload)
    position = _INT32.size
    if response_header_version(cls.API_KEY, version) == 1:
        if position == len(payload):
            raise truncated()
        # Almost no broker sends tagged fields in the header.
        position = _skip_header_tags(payload, position, len(payload)) if payload[position] else position + 1
    return correlation_id, decode_whole(cls, version, payload, position)
