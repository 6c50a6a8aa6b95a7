"""Transactions in a broker's logs: records written past Produce, markers as a coordinator sends them."""

from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.replication.partition import Partition
from tests.broker.wire import Client
from tests.storage import transactional


def written(broker: Broker, topic: str, *values: str, producer: int, epoch: int = 0, index: int = 0) -> int:
    """A transactional batch; its base offset."""
    partition = broker.replicas.partition(topic, index)
    now_ms = broker.runtime.clock.wall_ms()
    offset = transactional.write(partition.log, *values, producer=producer, epoch=epoch, now=now_ms)
    _notify(broker, partition)
    return offset


def _notify(broker: Broker, partition: Partition) -> None:
    if partition.written(broker.runtime.clock.now_ms()):
        broker.replicas._appends.high_watermark_rose(partition)
    broker.runtime.end_event()


def marker(
    topic: str,
    *,
    producer: int,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    indexes: tuple[int, ...] = (0,),
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


async def mark(client: Client, *markers: WritableTxnMarker, version: int = 2) -> list[tuple[int, str, int, ErrorCode]]:
    """(producer id, topic, partition, error) of each result."""
    response = await client.call(WriteTxnMarkersRequest(markers=list(markers)), WriteTxnMarkersResponse, version)
    return [
        (result.producer_id, topic.name, partition.partition_index, ErrorCode(partition.error_code))
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


async def ended(client: Client, topic: str, *, producer: int, commit: bool, epoch: int = 0) -> None:
    """By a marker that is in the log now."""
    assert await mark(client, marker(topic, producer=producer, commit=commit, epoch=epoch)) == [
        (producer, topic, 0, ErrorCode.NONE)
    ]
