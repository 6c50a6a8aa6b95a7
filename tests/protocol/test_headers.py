"""Request and response headers (§1.2, §1.3), and frames of the client's side."""

import importlib

import pytest

from ottla.protocol.headers import (
    FLEXIBLE_FROM,
    RequestFramer,
    RequestHeader,
    build_request_frame,
    build_response_frame,
    parse_request_header,
    parse_response,
    request_header_version,
    response_header_version,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.primitives import DecodeError
from tests.protocol.known_messages import REQUESTS

VERSION_1 = bytes.fromhex("000c 0003 00000007 0001 63".replace(" ", ""))
VERSION_2 = bytes.fromhex("000c 0004 00000007 0001 63 00".replace(" ", ""))


def test_the_table_of_flexible_versions_is_that_of_the_messages() -> None:
    assert {cls.API_KEY: cls.FLEXIBLE_FROM for cls in REQUESTS if cls.FLEXIBLE_FROM is not None} == FLEXIBLE_FROM


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_a_response_is_flexible_where_its_request_is(cls) -> None:
    module = importlib.import_module(cls.__module__)
    response = getattr(module, cls.__name__.replace("Request", "Response"))

    assert (response.API_KEY, response.VERSIONS, response.FLEXIBLE_FROM) == (
        cls.API_KEY,
        cls.VERSIONS,
        cls.FLEXIBLE_FROM,
    )


def test_the_header_ends_in_tags_from_the_first_flexible_version_on() -> None:
    assert [request_header_version(12, version) for version in (0, 3, 4, 5)] == [1, 1, 2, 2]
    assert [response_header_version(12, version) for version in (0, 3, 4, 5)] == [0, 0, 1, 1]


def test_answers_to_api_versions_always_have_header_version_0() -> None:
    assert [request_header_version(18, version) for version in (2, 3, 99)] == [1, 2, 2]
    assert [response_header_version(18, version) for version in (2, 3, 99)] == [0, 0, 0]


def test_an_unknown_api_has_a_header_without_tags() -> None:
    assert request_header_version(999, 0) == 1


def test_the_client_id_keeps_its_short_form_in_flexible_versions() -> None:
    assert parse_request_header(VERSION_1) == RequestHeader(12, 3, 7, "c", 11)
    assert parse_request_header(VERSION_2) == RequestHeader(12, 4, 7, "c", 12)


def test_a_client_id_may_be_null() -> None:
    data = VERSION_1[:8] + b"\xff\xff"

    assert parse_request_header(b"????" + data, 4) == RequestHeader(12, 3, 7, None, 14)


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    data = VERSION_2[:-1] + b"\x02\x00\x01a\x05\x00" + b"body"

    assert parse_request_header(data).body_offset == len(data) - 4


@pytest.mark.parametrize("header", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
def test_every_prefix_of_a_header_is_refused(header: bytes) -> None:
    for size in range(len(header)):
        with pytest.raises(DecodeError):
            parse_request_header(header[:size])
        with pytest.raises(DecodeError):
            parse_request_header(memoryview(header + bytes(20)), 0, size)


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff"])
def test_a_client_id_of_impossible_length_is_refused(length: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_request_header(VERSION_1[:8] + length + b"c")


def test_a_client_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        parse_request_header(VERSION_1[:-1] + b"\xff")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_request_frame_is_read_by_the_brokers_side(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")

    frame = build_request_frame(request, version, 7, client_id)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert parse_request_header(frame, 4)[:4] == (12, version, 7, client_id)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_framer_builds_the_same_frames(version: int, client_id: str | None) -> None:
    framer = RequestFramer(HeartbeatRequest, version, client_id)

    for number, member in enumerate(("m", "another"), start=7):
        request = HeartbeatRequest(group_id="g", member_id=member)
        assert framer.build(request, number) == build_request_frame(request, version, number, client_id)


@pytest.mark.parametrize("version", range(5))
def test_a_response_frame_is_read_by_the_clients_side(version: int) -> None:
    heartbeat = HeartbeatResponse(error_code=27)
    versions = ApiVersionsResponse(error_code=35)

    assert parse_response(HeartbeatResponse, version, build_response_frame(heartbeat, version, 9)[4:]) == (9, heartbeat)
    assert parse_response(ApiVersionsResponse, version, build_response_frame(versions, version, 9)[4:]) == (9, versions)


def test_a_response_cut_short_or_too_long_is_refused() -> None:
    payload = build_response_frame(HeartbeatResponse(), 4, 9)[4:]

    for data in [*(payload[:size] for size in range(len(payload))), payload + b"\0"]:
        with pytest.raises(DecodeError):
            parse_response(HeartbeatResponse, 4, data)


def test_a_version_outside_the_range_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="ApiVersionsRequest has no version 5, only 0 to 4"):
        build_request_frame(ApiVersionsRequest(), 5, 0, None)
