"""ListOffsets and OffsetForLeaderEpoch over the wire: §15.4."""

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.wire import (
    Client,
    client_of,
    create_topic,
    produce,
    running_broker,
)


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 3), (-2, 0), (1_001, 1), (5_000, -1)])
async def test_offsets_by_position_and_by_time(tmp_path: Path, version: int, timestamp: int, offset: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b", b"c")

        answer = await list_offset(client, timestamp, version)

    assert (answer.error_code, answer.offset) == (0, offset)
    assert answer.timestamp == (1_001 if offset == 1 else -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(-3, 2), (-4, 0), (-5, -1)])
async def test_the_newer_questions_for_offsets(tmp_path: Path, timestamp: int, offset: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b", b"c")

        answer = await list_offset(client, timestamp, 9)

    assert (answer.error_code, answer.offset) == (0, offset)


async def test_a_partition_asked_twice_is_an_invalid_request(tmp_path: Path) -> None:
    """§15.4.2."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])

        response = await client.call(request, ListOffsetsResponse, 5)

    assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("isolation_level", "answered"), [(0, ["t"]), (1, ["t"]), (127, ["t", "nowhere"])])
async def test_topics_without_partitions_are_in_a_refusal(
    tmp_path: Path, isolation_level: int, answered: list[str]
) -> None:
    """As in Kafka, which leaves them out otherwise."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        topics = [ListOffsetsTopic(name="t", partitions=partitions), ListOffsetsTopic(name="nowhere", partitions=[])]
        request = ListOffsetsRequest(topics=topics, isolation_level=isolation_level)

        response = await client.call(request, ListOffsetsResponse, 5)

    assert [topic.name for topic in response.topics] == answered
    code = response.topics[0].partitions[0].error_code
    assert code == (ErrorCode.NONE if isolation_level in (0, 1) else ErrorCode.UNKNOWN_SERVER_ERROR)


async def list_offset(client: Client, timestamp: int, version: int) -> ListOffsetsPartition:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    response = await client.call(request, ListOffsetsResponse, version)
    return response.topics[0].partitions[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_a_leader_epoch_ended(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b")
        partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=0), OffsetForLeaderPartition(partition=9)]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])

        response = await client.call(request, OffsetForLeaderEpochResponse, version)

    found, missing = response.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
