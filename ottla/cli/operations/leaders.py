"""What the leaders of partitions are asked for: offsets by time, the deletion of records, active producers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ottla.cli.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError, check
from ottla.cli.operations.topics import existing_topic
from ottla.protocol.address import Address
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

# Stands for "up to the high watermark" in a request to delete records.
HIGH_WATERMARK = -1
# Stands for the record with the largest timestamp (KIP-734).
MAX_TIMESTAMP = -3
SPECIAL_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class OffsetAtTime:
    """`offset` is None where no record is so late, `timestamp` where no record was looked at."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class LogStart:
    topic: str
    partition: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    # -1 before the first marker.
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start_offset: int | None


async def named_partitions(client: Client, topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    """The partitions of each topic, all of them where none are named; raises ClientError for one that is missing."""
    found: list[TopicPartition] = []
    for name, indexes in topics.items():
        existing = sorted(row.partition_index for row in (await existing_topic(client, name)).partitions)
        for index in indexes:
            if index not in existing:
                raise ClientError(f"topic {name} has no partition {index}")
        found += [(name, index) for index in indexes or existing]
    return found


async def offsets_at(client: Client, partitions: Iterable[TopicPartition], timestamp: int) -> list[OffsetAtTime]:
    """The first offset at or after a timestamp, or a special one of `SPECIAL_TIMES`."""

    async def ask(leader: Address, led: list[TopicPartition]) -> list[OffsetAtTime]:
        topics = [
            ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in indexes]
            )
            for name, indexes in _by_topic(led).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, timeout_ms=client.timeout_ms)
        found: list[OffsetAtTime] = []
        for topic in (await client.ask_at(leader, request, ListOffsetsResponse)).topics:
            for row in topic.partitions:
                check(f"cannot read the offsets of {topic.name}-{row.partition_index}", row.error_code)
                offset, at_ms = (value if value >= 0 else None for value in (row.offset, row.timestamp))
                found.append(OffsetAtTime(topic.name, row.partition_index, offset, at_ms))
        return found

    return sorted(await _ask_leaders(client, partitions, ask), key=lambda each: (each.topic, each.partition))


async def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> list[LogStart]:
    """Delete the records before these offsets, or all up to the HIGH_WATERMARK."""

    async def ask(leader: Address, led: list[TopicPartition]) -> list[LogStart]:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=i, offset=before[name, i]) for i in indexes],
            )
            for name, indexes in _by_topic(led).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=client.timeout_ms)
        found: list[LogStart] = []
        for topic in (await client.ask_at(leader, request, DeleteRecordsResponse)).topics:
            for row in topic.partitions:
                check(f"cannot delete records of {topic.name}-{row.partition_index}", row.error_code)
                found.append(LogStart(topic.name, row.partition_index, row.low_watermark))
        return found

    return sorted(await _ask_leaders(client, before, ask), key=lambda each: (each.topic, each.partition))


async def active_producers(client: Client, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
    """The idempotent and transactional producers that the leaders know."""

    async def ask(leader: Address, led: list[TopicPartition]) -> list[ActiveProducer]:
        topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in _by_topic(led).items()]
        response = await client.ask_at(leader, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        found: list[ActiveProducer] = []
        for topic in response.topics:
            for row in topic.partitions:
                what = f"cannot list the producers of {topic.name}-{row.partition_index}"
                check(what, row.error_code, row.error_message)
                found += [
                    ActiveProducer(
                        topic.name,
                        row.partition_index,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.last_sequence,
                        each.last_timestamp,
                        each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
                    )
                    for each in row.active_producers
                ]
        return found

    found = await _ask_leaders(client, partitions, ask)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.producer_id))


async def _ask_leaders(
    client: Client,
    partitions: Iterable[TopicPartition],
    ask: Callable[[Address, list[TopicPartition]], Awaitable[list[Found]]],
) -> list[Found]:
    wanted = sorted(set(partitions))

    async def attempt() -> list[Found]:
        return [each for leader, led in (await client.by_leader(wanted)).items() for each in await ask(leader, led)]

    return await client.retrying(attempt)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, []).append(index)
    return by_topic
