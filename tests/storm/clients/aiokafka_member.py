"""A member of the group, of aiokafka."""

import asyncio
import time

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.histories.files import now_us
from tests.storm.clients.client import Client, to_commit_id, to_metadata
from tests.storm.clients.positions import Positions
from tests.storm.settings import GROUP, REQUEST_TIMEOUT_MS, TOPIC

COMMIT_EVERY_S = 0.3
RETRY_EVERY_S = 0.2


def run(client: Client) -> None:
    asyncio.run(_run(client))


async def _run(client: Client) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=client.bootstrap,
        group_id=GROUP,
        client_id=client.name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    try:
        if await _start(client, consumer):
            await _consume(client, consumer)
    finally:
        await consumer.stop()


async def _start(client: Client, consumer: AIOKafkaConsumer) -> bool:
    """Until a broker is there; aiokafka asks each of them once. False if the end comes first."""
    while not client.stopping.is_set():
        try:
            await consumer.start()
        except KafkaConnectionError:
            await asyncio.sleep(RETRY_EVERY_S)
        else:
            return True
    return False


async def _consume(client: Client, consumer: AIOKafkaConsumer) -> None:
    positions = Positions(client)
    consumer.subscribe([TOPIC], listener=_Listener(consumer, positions))
    commit_at = 0.0
    while not client.stopping.is_set():
        fetched = await consumer.getmany(timeout_ms=200, max_records=500)
        for partition, messages in fetched.items():
            for message in messages:
                positions.read(partition.partition, message.offset, message.value)
        if time.monotonic() >= commit_at:
            await _commit(consumer, positions)
            commit_at = time.monotonic() + COMMIT_EVERY_S


async def _commit(consumer: AIOKafkaConsumer, positions: Positions) -> None:
    commits = positions.begin_commit()
    if not commits:
        return
    offsets = {
        TopicPartition(TOPIC, index): OffsetAndMetadata(offset, to_metadata(commit_id))
        for index, (offset, commit_id) in commits.items()
    }
    try:
        await consumer.commit(offsets)
    except (KafkaError, OSError):
        return
    positions.committed(commits)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: AIOKafkaConsumer, positions: Positions) -> None:
        self._consumer = consumer
        self._positions = positions

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        for partition in revoked:
            self._positions.forget(partition.partition)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        asked_us = now_us()
        # `committed` returns no metadata, and only the metadata says which commit it is.
        found = await self._consumer._coordinator.fetch_committed_offsets(sorted(assigned))
        for partition in assigned:
            commit = found.get(partition)
            offset, commit_id = (-1, "") if commit is None else (commit.offset, to_commit_id(commit.metadata))
            self._consumer.seek(partition, self._positions.begin(partition.partition, offset, commit_id, asked_us))
