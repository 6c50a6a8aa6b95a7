"""The longest step of a broker's event loop for one request that names very many: `python -m benchmarks long_requests`.

Each request names 10,000 partitions of one topic that has them, or as many topics that do not exist.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import RawClient, find_coordinator
from benchmarks.steps import AT_MOST_MS, ROUNDS, Steps, call, in_broker
from ottla.broker.broker import Broker
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.record import Record, build_batch
from ottla.protocol.schema import Message

NAMED = 10_000
GROUP = "g"
TOPIC = "t"
RECORDS = bytes(build_batch([Record(timestamp=0, value=b"v")]))


class Long(NamedTuple):
    """A request about so many, its response and version."""

    request: Callable[[int], Message]
    response: type[Message]
    version: int


def _list_offsets(count: int) -> Message:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])


def _epochs(count: int) -> Message:
    partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(count)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)])


def _metadata(count: int) -> Message:
    topics = [MetadataRequestTopic(name=f"nowhere-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _delete_records(count: int) -> Message:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(count)]
    topic = DeleteRecordsTopic(name=TOPIC, partitions=partitions)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)


def _commit(count: int) -> Message:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in range(count)]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])


def _delete_offsets(count: int) -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(count)]
    return OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)])


def _fetch(count: int) -> Message:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=partitions)])


def _produce(count: int) -> Message:
    partitions = [PartitionProduceData(index=index, records=memoryview(RECORDS)) for index in range(count)]
    topic = TopicProduceData(name=TOPIC, partition_data=partitions)
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])


REQUESTS = {
    "ListOffsets": Long(_list_offsets, ListOffsetsResponse, 5),
    "OffsetForLeaderEpoch": Long(_epochs, OffsetForLeaderEpochResponse, 3),
    "Metadata of topics that do not exist": Long(_metadata, MetadataResponse, 9),
    "DeleteRecords": Long(_delete_records, DeleteRecordsResponse, 1),
    "OffsetCommit": Long(_commit, OffsetCommitResponse, 8),
    "OffsetDelete": Long(_delete_offsets, OffsetDeleteResponse, 0),
    "Fetch": Long(_fetch, FetchResponse, 11),
    "Produce": Long(_produce, ProduceResponse, 8),
}


def figures() -> list[Figure]:
    return longest_steps(
        REQUESTS, f"about {NAMED:,}", begin=(_make_topic, lambda client: find_coordinator(client, GROUP))
    )


def longest_steps(
    requests: Mapping[str, Long],
    about: str,
    settings: dict[str, str] | None = None,
    *,
    begin: Sequence[Callable[[RawClient], object]] = (),
) -> list[Figure]:
    """One of each request. `begin`: what a client does before the first."""
    rounds = [_round(requests, settings, begin) for _ in range(ROUNDS)]
    return [
        Figure(
            f"longest loop step for {name} {about}, processor",
            NO_BASELINE,
            "ms",
            [(each[name].processor_ms, 1.0) for each in rounds],
            at_most=AT_MOST_MS,
        )
        for name in requests
    ]


def _round(
    requests: Mapping[str, Long], settings: dict[str, str] | None, begin: Sequence[Callable[[RawClient], object]]
) -> dict[str, Steps]:
    found: dict[str, Steps] = {}

    async def story(broker: Broker, _steps: Steps) -> None:
        for each in begin:
            await call(broker, each)
        for name, long in requests.items():
            steps = found[name] = Steps()
            # The first request compiles the codecs.
            await call(broker, lambda client, long=long: _ask(client, long, 1))
            with steps.of_loop():
                await call(broker, lambda client, long=long: _ask(client, long, NAMED))

    in_broker(story, settings)
    return found


def _make_topic(client: RawClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=NAMED, replication_factor=1)
    response: Any = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), CreateTopicsResponse, 5)
    assert not response.topics[0].error_code, response.topics[0].error_message


def _ask(client: RawClient, long: Long, count: int) -> None:
    response = client.call(long.request(count), long.response, long.version)
    assert isinstance(response, long.response)
