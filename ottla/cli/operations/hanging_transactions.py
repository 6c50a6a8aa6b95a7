"""Transactions that hang in a partition, because no coordinator is going to end them.

A transaction hangs in a partition when the partition has it open and no coordinator counts the partition to a
transaction of that producer. Consumers of committed records then wait at its first offset for ever (KIP-664).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ottla.cli.client import Client, TopicPartition
from ottla.cli.failures import ClientError, Refused, check
from ottla.cli.operations.leaders import ActiveProducer, active_producers
from ottla.cli.operations.topics import list_topics
from ottla.cli.operations.transactions import TransactionDescription, describe_transaction, transactional_ids_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# As many as Kafka's tool asks for at once.
PARTITIONS_PER_REQUEST = 500
# A producer whose first transaction hangs has no marker yet, and so no epoch of its coordinator (-1).
OLDEST_COORDINATOR_EPOCH = 0


@dataclass(frozen=True, slots=True)
class AbortTarget:
    """The transaction to end in a partition: by its first offset, or by its producer."""

    partition: TopicPartition
    start_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None

    @property
    def name(self) -> str:
        return f"{self.partition[0]}-{self.partition[1]}"


async def find_hanging(
    client: Client, partitions: Sequence[TopicPartition], *, last_record_before_ms: int
) -> list[ActiveProducer]:
    """Those whose last record is older than this: a coordinator ends a younger one at its timeout at the latest."""
    candidates = [
        each
        for each in await _active_producers(client, partitions or await _all_partitions(client))
        if each.transaction_start_offset is not None and each.last_timestamp < last_record_before_ms
    ]
    known = await _transactions_of(client, {each.producer_id for each in candidates})
    return [each for each in candidates if _transaction_with(each, known) is None]


async def _active_producers(client: Client, partitions: Sequence[TopicPartition]) -> list[ActiveProducer]:
    found: list[ActiveProducer] = []
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        found += await active_producers(client, partitions[start : start + PARTITIONS_PER_REQUEST])
    return found


async def _all_partitions(client: Client) -> list[TopicPartition]:
    return [(topic.name, index) for topic in await list_topics(client) for index in range(topic.partitions)]


async def _transactions_of(client: Client, producer_ids: set[int]) -> dict[int, TransactionDescription]:
    """By producer id; without those that no coordinator knows."""
    known: dict[int, TransactionDescription] = {}
    if not producer_ids:
        return known
    for producer_id, transactional_id in (await transactional_ids_of(client, producer_ids)).items():
        try:
            known[producer_id] = await describe_transaction(client, transactional_id)
        except Refused as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return known


def _transaction_with(
    producer: ActiveProducer, known: dict[int, TransactionDescription]
) -> TransactionDescription | None:
    """The transaction whose coordinator is going to write the marker that the partition lacks."""
    transaction = known.get(producer.producer_id)
    if transaction is None or (producer.topic, producer.partition) not in transaction.partitions:
        return None
    return transaction


async def abort_transaction(client: Client, target: AbortTarget, *, force: bool) -> ActiveProducer:
    """Write an abort marker into one partition, and return the producer whose transaction it ended.

    Raises ClientError where there is no such transaction, and for one that does not hang unless `force`."""
    producer = _opened(await active_producers(client, [target.partition]), target)
    transaction = _transaction_with(producer, await _transactions_of(client, {producer.producer_id}))
    if transaction is not None and not force:
        name = f"the transaction of {transaction.transactional_id} in {target.name}"
        raise ClientError(f"{name} does not hang: its state is {transaction.state}, and its coordinator ends it")
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, OLDEST_COORDINATOR_EPOCH),
    )
    await client.retrying(partial(_write_marker, client, target, marker))
    return producer


def _opened(producers: Sequence[ActiveProducer], target: AbortTarget) -> ActiveProducer:
    for producer in producers:
        is_meant = target.start_offset in (None, producer.transaction_start_offset)
        is_meant = is_meant and target.producer_id in (None, producer.producer_id)
        is_meant = is_meant and target.producer_epoch in (None, producer.producer_epoch)
        if is_meant and producer.transaction_start_offset is not None:
            return producer
    raise ClientError(f"{target.name} has no such open transaction")


async def _write_marker(client: Client, target: AbortTarget, marker: WritableTxnMarker) -> None:
    (leader,) = await client.by_leader([target.partition])
    response = await client.ask_at(leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    for result in response.markers:
        for topic in result.topics:
            for row in topic.partitions:
                check(f"cannot abort the transaction in {target.name}", row.error_code)
