"""The client's side of a connection: requests out, responses matched to them, streams cut into frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.client import UnexpectedResponseError, WireClient, parse_response
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import response_class_of
from tests.fakes.frames import FrameBuffer, build_request_frame, response_frame
from tests.protocol.known_messages import REQUESTS

BEAT = HeartbeatRequest(group_id="g", member_id="m")


def payload_of(response: HeartbeatResponse, correlation_id: int) -> bytes:
    return response_frame(response, 4, correlation_id)[4:]


def test_responses_belong_to_requests_in_the_order_sent() -> None:
    client = WireClient("c")
    frames = [client.send(BEAT, 4), client.send(ApiVersionsRequest(), 0)]

    assert frames == [build_request_frame(BEAT, 4, 1, "c"), build_request_frame(ApiVersionsRequest(), 0, 2, "c")]
    assert client.pending is not None
    assert client.pending[:3] == (BEAT, 4, 1)
    assert client.receive(payload_of(HeartbeatResponse(error_code=27), 1)) == HeartbeatResponse(error_code=27)
    assert client.receive(response_frame(ApiVersionsResponse(), 0, 2)[4:]) == ApiVersionsResponse()
    assert client.pending is None


def test_response_with_another_correlation_id_is_refused() -> None:
    client = WireClient("c")
    client.send(BEAT, 4)

    with pytest.raises(UnexpectedResponseError, match="a response to request 9 where 1 was next"):
        client.receive(payload_of(HeartbeatResponse(), 9))


def test_response_without_a_request_is_refused() -> None:
    client = WireClient("c")
    client.send(ProduceRequest(acks=0), 9, has_response=False)

    with pytest.raises(UnexpectedResponseError, match="no request waits"):
        client.receive(payload_of(HeartbeatResponse(), 1))


def test_correlation_ids_begin_again_at_zero_after_the_last() -> None:
    client = WireClient("c")
    client._correlation_id = 2**31 - 1

    assert client.send(BEAT, 4) == build_request_frame(BEAT, 4, 0, "c")


@pytest.mark.parametrize("version", range(5))
def test_parse_response_reads_what_a_broker_sends(version: int) -> None:
    heartbeat = HeartbeatResponse(error_code=27)
    versions = ApiVersionsResponse(error_code=35)

    assert parse_response(HeartbeatResponse, version, response_frame(heartbeat, version, 9)[4:]) == heartbeat
    assert parse_response(ApiVersionsResponse, version, response_frame(versions, version, 9)[4:]) == versions


def test_a_response_cut_short_or_too_long_is_refused() -> None:
    payload = payload_of(HeartbeatResponse(), 9)

    for data in [*(payload[:size] for size in range(len(payload))), payload + b"\0"]:
        with pytest.raises(DecodeError):
            parse_response(HeartbeatResponse, 4, data)
    assert parse_response(HeartbeatResponse, 4, payload + b"\0", allows_trailing_bytes=True) == HeartbeatResponse()


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_every_request_finds_its_response_class(cls) -> None:
    assert response_class_of(cls).__name__ == cls.__name__.replace("Request", "Response")


@given(st.lists(st.binary(max_size=20), max_size=6), st.data())
def test_frame_buffer_cuts_a_stream_however_it_is_split(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    frames = FrameBuffer(20)

    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert [payload for piece in pieces for payload in frames.feed(piece)] == payloads


@pytest.mark.parametrize("size", [-1, 21, 2**31 - 1])
def test_frame_buffer_refuses_an_impossible_size(size: int) -> None:
    with pytest.raises(DecodeError, match=f"frame of {size} bytes, at most 20 allowed"):
        list(FrameBuffer(20).feed(size.to_bytes(4, "big", signed=True)))
