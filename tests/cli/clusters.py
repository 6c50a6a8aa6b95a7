"""Answers of a cluster of several fake brokers."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.cli.fake_broker import FakeBroker

NOT_LEADER_OR_FOLLOWER = 6
ANY_REPLICA = -2


@contextmanager
def fake_brokers(count: int) -> Iterator[list[FakeBroker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FakeBroker()) for _ in range(count)]


def topic(name: str, *partitions: MetadataResponsePartition) -> MetadataResponseTopic:
    for index, partition in enumerate(partitions):
        partition.partition_index = index
    return MetadataResponseTopic(name=name, partitions=list(partitions))


def partition(leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    code = 0 if leader >= 0 else 5
    offline = [replica for replica in replicas if replica not in isr]
    return MetadataResponsePartition(
        error_code=code,
        leader_id=leader,
        leader_epoch=4,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def has_log_ends(broker: FakeBroker, ends: Mapping[tuple[str, int], int]) -> None:
    """The broker returns these to a request for any replica, as Kafka's brokers do, and has no others."""

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        assert request.replica_id == ANY_REPLICA
        topics = [
            ListOffsetsTopicResponse(name=asked.name, partitions=[end_of(asked.name, row) for row in asked.partitions])
            for asked in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def end_of(name: str, row: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = row.partition_index
        if (name, index) not in ends:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=NOT_LEADER_OR_FOLLOWER)
        return ListOffsetsPartitionResponse(partition_index=index, offset=ends[name, index])

    broker.answers[ListOffsetsRequest] = answer
