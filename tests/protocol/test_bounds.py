"""Bounds of the decoder (§1.7): hostile counts, lengths, varints, tags and text."""

import pytest

from ottla.protocol.codec import decode, decode_whole, encode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.primitives import (
    TAGS_MAX,
    DecodeError,
    build_uvarint,
    parse_uvarint,
    skip_tags,
)
from tests.fakes.frames import parse_frame_size


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_frame_of_impossible_size_is_refused(size: int) -> None:
    """§1.7.1"""
    with pytest.raises(DecodeError, match=f"frame of {size} bytes, at most 100 allowed"):
        parse_frame_size(size.to_bytes(4, "big", signed=True), 100)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_frame_up_to_the_limit_is_accepted(size: int) -> None:
    assert parse_frame_size(size.to_bytes(4, "big"), 100) == size


@pytest.mark.parametrize("count", [2**31 - 1, 3])
def test_a_count_that_the_bytes_cannot_hold_is_refused(count: int) -> None:
    """§1.7.2: two topics of at least two bytes fit into five bytes, three do not."""
    data = count.to_bytes(4, "big", signed=True) + bytes(5)

    with pytest.raises(DecodeError):
        decode(MetadataRequest, 1, data)


def test_null_is_read_where_it_is_allowed_and_refused_where_not() -> None:
    """§1.7.2, §1.7.5"""
    null = (-1).to_bytes(4, "big", signed=True)

    assert decode_whole(MetadataRequest, 1, null).topics is None
    assert decode_whole(MetadataRequest, 9, b"\0\0\0\0\0").topics is None
    with pytest.raises(DecodeError, match="null"):
        decode(MetadataRequest, 0, null)
    with pytest.raises(DecodeError, match="null"):
        decode(HeartbeatRequest, 4, b"\0" + bytes(20))


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_is_null_where_that_is_allowed(length: int) -> None:
    """As in Kafka; §1.7.2"""
    count = length.to_bytes(4, "big", signed=True)
    text = max(length, -(2**15)).to_bytes(2, "big", signed=True)

    assert decode_whole(MetadataRequest, 1, count).topics is None
    assert decode_whole(InitProducerIdRequest, 1, text + bytes(4)).transactional_id is None
    with pytest.raises(DecodeError, match="null"):
        decode(MetadataRequest, 0, count)
    with pytest.raises(DecodeError, match="null"):
        decode(HeartbeatRequest, 0, text + bytes(8))


@pytest.mark.parametrize("length", [-2, -1, 3, 32767])
def test_a_length_beyond_the_bytes_is_refused(length: int) -> None:
    """§1.7.3"""
    with pytest.raises(DecodeError):
        decode(HeartbeatRequest, 0, length.to_bytes(2, "big", signed=True) + b"ab")


def test_records_longer_than_their_frame_are_refused() -> None:
    partition = PartitionProduceData(index=0, records=b"x" * 100)
    data = encode(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 7)

    with pytest.raises(DecodeError):
        decode(ProduceRequest, 7, data + bytes(1000), 0, len(data) - 1)


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\x00", b"\xff" * 4 + b"\x7f", b"\xff" * 10 + b"\x01"])
def test_a_varint_of_more_than_32_bits_or_5_bytes_is_refused(data: bytes) -> None:
    """§1.7.4"""
    with pytest.raises(DecodeError, match="varint"):
        parse_uvarint(data, 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**32 - 1])
def test_varints_come_back_as_they_were_built(value: int) -> None:
    data = build_uvarint(value)

    assert parse_uvarint(b"?" + data + b"?", 1) == (value, 1 + len(data))


def tags(*fields: tuple[int, bytes]) -> bytes:
    return build_uvarint(len(fields)) + b"".join(
        build_uvarint(tag) + build_uvarint(len(value)) + value for tag, value in fields
    )


def with_tags(section: bytes) -> bytes:
    return encode(HeartbeatRequest(group_id="g", member_id="m"), 4)[:-1] + section


def test_unknown_tags_are_passed_over() -> None:
    """§1.7.6"""
    data = with_tags(tags((0, b""), (5, b"abc"), (1000, b"x" * 200)))

    assert decode_whole(HeartbeatRequest, 4, data) == HeartbeatRequest(group_id="g", member_id="m")


@pytest.mark.parametrize(
    "section",
    [
        tags((1, b""), (1, b"")),
        tags((2, b""), (1, b"")),
        tags(*((number, b"") for number in range(TAGS_MAX + 1))),
        b"\x01\x00\x05ab",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x80\x00",
    ],
    ids=["repeated", "falling", "too many", "too long", "a huge number", "an endless number"],
)
def test_tag_sections_out_of_bounds_are_refused(section: bytes) -> None:
    """§1.7.6"""
    with pytest.raises(DecodeError):
        decode(HeartbeatRequest, 4, with_tags(section))


def test_as_many_tags_as_allowed_are_passed_over() -> None:
    section = tags(*((number, b"") for number in range(TAGS_MAX)))

    assert skip_tags(section + b"rest", 1, section[0], len(section)) == len(section)


@pytest.mark.parametrize("value", [b"\x02a?", b"\x03a"])
def test_a_known_tag_that_is_not_of_its_size_is_refused(value: bytes) -> None:
    """The cluster id of a fetch request, with a byte too many and one too few."""
    data = encode(FetchRequest(), 12)[:-1] + tags((0, value))

    with pytest.raises(DecodeError):
        decode_whole(FetchRequest, 12, data)


def test_text_that_is_not_utf_8_is_refused() -> None:
    for version in (3, 4):
        data = encode(HeartbeatRequest(group_id="abc"), version).replace(b"abc", b"a\xffc")
        with pytest.raises(DecodeError, match="UTF-8"):
            decode(HeartbeatRequest, version, data)


def test_records_are_a_writable_view_of_the_frame() -> None:
    partition = PartitionProduceData(index=0, records=b"records")
    for version in (7, 9):
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
        frame = bytearray(encode(request, version))

        records = decode_whole(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
        assert records is not None
        records[:3] = b"REC"

        assert b"RECords" in frame


LARGE_REQUESTS = [
    MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(10_000)]),
    OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=2**40)
                    for index in range(10_000)
                ],
            )
        ]
    ),
    OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(name=f"t{number}", partitions=[OffsetCommitRequestPartition(partition_index=3)])
            for number in range(10_000)
        ]
    ),
    FetchRequest(
        topics=[
            FetchTopic(topic=f"t{number}", partitions=[FetchPartition(partition=0, fetch_offset=2**40)])
            for number in range(10_000)
        ]
    ),
    ProduceRequest(
        topic_data=[
            TopicProduceData(name=f"t{number}", partition_data=[PartitionProduceData(index=1, records=bytes(69))])
            for number in range(10_000)
        ]
    ),
]


@pytest.mark.parametrize("request_", LARGE_REQUESTS, ids=lambda request: type(request).__name__)
def test_large_requests_of_real_clients_are_within_the_budget(request_) -> None:
    """Ten thousand topics or partitions, with names as short as names of ten thousand things get."""
    cls = type(request_)
    for version in range(cls.VERSIONS[0], min(cls.VERSIONS[1], 12) + 1):
        data = encode(request_, version)
        assert encode(decode_whole(cls, version, data), version) == data


LARGE_RESPONSES = [
    FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[PartitionData(partition_index=index, records=b"") for index in range(10_000)],
            )
        ]
    ),
    MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(partition_index=index, replica_nodes=[1], isr_nodes=[1])
                    for index in range(10_000)
                ],
            )
        ]
    ),
    DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir="/data",
                topics=[
                    DescribeLogDirsTopic(name=f"t{number}", partitions=[DescribeLogDirsPartition(partition_index=0)])
                    for number in range(10_000)
                ],
            )
        ]
    ),
]


@pytest.mark.parametrize("response", LARGE_RESPONSES, ids=lambda response: type(response).__name__)
def test_large_responses_of_brokers_are_within_the_budget(response) -> None:
    """Ten thousand idle partitions: a follower that begins a new session is sent all of them."""
    cls = type(response)
    for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
        data = encode(response, version)
        assert encode(decode_whole(cls, version, data), version) == data
