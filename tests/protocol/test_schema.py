"""Message classes: what a table gives."""

import copy

import pytest

from ottla.protocol.codec import decode_whole, encode, frame_encoder, frame_parts_encoder, frame_slices_encoder
from ottla.protocol.encoding import LONG_PIECES_PER_SLICE, PIECES_PER_SLICE
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import define, fields_of

TABLE = """
Example  key none  versions 1-3  flexible none
  id         uuid      1+
  rows       []Row     2+  null 3+
    name     string    2+  = unnamed
    values   []float64 2+
    weight   uint32    0-2
  best       Row       3+  null = null
"""


def test_a_message_that_is_shown_hides_a_password() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0her password")

    assert repr(request) == "SaslAuthenticateRequest(auth_bytes=[hidden])"


def test_a_message_has_its_apis_facts() -> None:
    assert (HeartbeatRequest.API_KEY, HeartbeatRequest.VERSIONS, HeartbeatRequest.FLEXIBLE_FROM) == (12, (0, 4), 4)


def test_fields_that_are_not_given_have_kafkas_defaults() -> None:
    assert JoinGroupRequest(group_id="g") == JoinGroupRequest(
        group_id="g",
        session_timeout_ms=0,
        rebalance_timeout_ms=-1,
        member_id="",
        group_instance_id=None,
        protocol_type="",
        protocols=[],
        reason=None,
    )


def test_messages_do_not_share_the_lists_of_their_defaults() -> None:
    first, second = JoinGroupRequest(), JoinGroupRequest()
    first.protocols.append(None)

    assert second.protocols == []


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="group"):
        HeartbeatRequest(group="g")
    with pytest.raises(AttributeError):
        HeartbeatRequest().group = "g"


def test_messages_are_equal_when_their_fields_are() -> None:
    assert HeartbeatRequest(group_id="g") == copy.copy(HeartbeatRequest(group_id="g"))
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    assert HeartbeatRequest() != JoinGroupRequest()


def test_a_message_is_shown_as_it_would_be_made() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3)

    assert repr(request) == "HeartbeatRequest(group_id='g', generation_id=3, member_id='', group_instance_id=None)"
    assert eval(repr(request), {"HeartbeatRequest": HeartbeatRequest}) == request


def test_a_table_gives_classes_in_the_order_of_their_lines() -> None:
    example, row = define(TABLE)

    assert [cls.__name__ for cls in (example, row)] == ["Example", "Row"]
    assert [field.name for field in fields_of(example)] == ["id", "rows", "best"]
    assert example() == example(id=ZERO_UUID, rows=[], best=None)
    assert row() == row(name="unnamed", values=[], weight=0)


def test_versions_carry_the_fields_that_the_table_says() -> None:
    example, row = define(TABLE)
    message = example(id=b"i" * 16, rows=[row(name="a", values=[0.5], weight=7)], best=row(name="b"))

    assert encode(message, 1) == b"i" * 16
    assert decode_whole(example, 2, encode(message, 2)) == example(id=b"i" * 16, rows=message.rows)
    assert decode_whole(example, 3, encode(message, 3)) == example(
        id=b"i" * 16, rows=[row(name="a", values=[0.5])], best=row(name="b")
    )
    assert decode_whole(example, 3, encode(example(rows=None), 3)) == example(rows=None)


def test_an_option_that_a_table_does_not_know_is_a_bug() -> None:
    (example,) = define("Example  key none  versions 0-0  flexible none\n  name  string  0+  nulll")

    with pytest.raises(AssertionError, match=r"Example\.name: unknown option 'nulll'"):
        fields_of(example)


def test_a_tagged_structure_that_is_not_sent_is_none() -> None:
    """Whether it was left out or holds only defaults, nothing is written for it."""
    without = PartitionData()
    with_defaults = PartitionData(diverging_epoch=EpochEndOffset())
    with_values = PartitionData(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9))

    assert without.diverging_epoch is None
    sizes = [len(encode(response_of(data), 12)) for data in (without, with_defaults, with_values)]
    assert sizes[0] == sizes[1] < sizes[2]


def response_of(partition: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_record_buffers_stand_uncopied_among_the_parts() -> None:
    first, second = bytearray(b"first batch"), memoryview(b"second batch")
    response = response_of(PartitionData(records=[first, second]))

    parts = frame_parts_encoder(FetchResponse, 11)(response, 7)

    assert any(part is first for part in parts)
    assert any(part is second for part in parts)
    assert b"".join(parts) == frame_encoder(FetchResponse, 11)(response, 7)


def test_a_long_response_is_encoded_in_slices() -> None:
    topics = [CreatableTopicResult(name=f"t{number}", error_message=None) for number in range(PIECES_PER_SLICE)]
    response = CreateTopicsResponse(topics=topics)
    building = frame_slices_encoder(CreateTopicsResponse, 7)(response, 9)

    slices = 0
    while True:
        try:
            next(building)
        except StopIteration as end:
            frame = end.value
            break
        slices += 1

    assert frame == frame_encoder(CreateTopicsResponse, 7)(response, 9)
    assert slices >= len(topics) // PIECES_PER_SLICE


def test_long_bytes_of_clients_are_encoded_in_smaller_slices() -> None:
    """Subscriptions of a thousand members may be 20 KiB each."""
    members = [JoinGroupResponseMember(member_id=f"m{number}", metadata=bytes(20_000)) for number in range(1_000)]
    response = JoinGroupResponse(members=members)
    building = frame_slices_encoder(JoinGroupResponse, 5)(response, 9)

    slices = 0
    while True:
        try:
            next(building)
        except StopIteration as end:
            frame = end.value
            break
        slices += 1

    assert frame == frame_encoder(JoinGroupResponse, 5)(response, 9)
    assert slices >= 2 * len(members) // LONG_PIECES_PER_SLICE


def test_fields_outside_a_version_decode_to_defaults() -> None:
    request = FetchRequest(session_id=7, rack_id="r", max_wait_ms=5)

    assert decode_whole(FetchRequest, 4, encode(request, 4)) == FetchRequest(max_wait_ms=5)
