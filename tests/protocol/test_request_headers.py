"""Request and response headers (docs/semantics §1.2, §1.3)."""

import importlib

import pytest

from ottla.protocol.client import RequestFramer
from ottla.protocol.codec import encode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.primitives import DecodeError, skip_header_tags
from ottla.protocol.schema import is_flexible, response_header_is_tagged
from tests.fakes.frames import build_request_frame
from tests.protocol.known_messages import REQUESTS

VERSION_1 = bytes.fromhex("000c 0003 00000007 0001 63".replace(" ", ""))
VERSION_2 = bytes.fromhex("000c 0004 00000007 0001 63 00".replace(" ", ""))


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_a_response_is_flexible_where_its_request_is(cls) -> None:
    module = importlib.import_module(cls.__module__)
    response = getattr(module, cls.__name__.replace("Request", "Response"))

    assert (response.API_KEY, response.VERSIONS, response.FLEXIBLE_FROM) == (
        cls.API_KEY,
        cls.VERSIONS,
        cls.FLEXIBLE_FROM,
    )


def test_header_ends_in_tags_from_the_first_flexible_version() -> None:
    assert [is_flexible(HeartbeatRequest, version) for version in (0, 3, 4)] == [False, False, True]
    assert [response_header_is_tagged(HeartbeatResponse, version) for version in (0, 3, 4)] == [False, False, True]


def test_api_versions_response_always_has_header_version_0() -> None:
    assert [is_flexible(ApiVersionsRequest, version) for version in (2, 3, 4)] == [False, True, True]
    assert [response_header_is_tagged(ApiVersionsResponse, version) for version in (2, 3, 4)] == [False, False, False]


def test_null_client_id_is_sent_as_length_minus_one() -> None:
    frame = build_request_frame(HeartbeatRequest(), 3, 7, None)

    assert frame[4:14] == VERSION_1[:8] + b"\xff\xff"


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    tags = b"\x02\x00\x01a\x05\x00"

    assert skip_header_tags(b"head" + tags + b"body", 4, 4 + len(tags)) == 4 + len(tags)


def test_every_prefix_of_header_tags_is_refused() -> None:
    tags = b"\x02\x00\x01a\x05\x00"

    for size in range(len(tags)):
        with pytest.raises(DecodeError):
            skip_header_tags(tags[:size], 0, size)
        with pytest.raises(DecodeError):
            skip_header_tags(tags + bytes(20), 0, size)


@pytest.mark.parametrize(("version", "header"), [(3, VERSION_1), (4, VERSION_2)])
def test_request_frame_is_size_header_and_body(version: int, header: bytes) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")

    frame = build_request_frame(request, version, 7, "c")

    assert frame == len(frame[4:]).to_bytes(4, "big") + header + encode(request, version)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_framer_builds_the_same_frames(version: int, client_id: str | None) -> None:
    framer = RequestFramer(HeartbeatRequest, version, client_id)

    for number, member in enumerate(("m", "another"), start=7):
        request = HeartbeatRequest(group_id="g", member_id=member)
        assert framer.build(request, number) == build_request_frame(request, version, number, client_id)


def test_a_version_outside_the_range_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="ApiVersionsRequest has no version 5, only 0 to 4"):
        build_request_frame(ApiVersionsRequest(), 5, 0, None)
