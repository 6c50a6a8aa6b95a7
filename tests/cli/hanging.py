"""A transaction that hangs: its records are in a partition, and no coordinator was asked about them.

The broker must have `transaction.partition.verification.enable=false`."""

import asyncio
from time import time

from ottla.cli.client import Client
from ottla.cli.failures import check
from ottla.protocol.address import parse_addresses
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.record import Record, build_batch

# Newer ones add the partition to the transaction (KIP-890).
PRODUCE_VERSION = 11


def write_hanging(bootstrap: str, topic: str, *values: bytes, ago_s: int = 0) -> int:
    """The producer id, which has epoch 0; the records are so old."""
    return asyncio.run(_write(bootstrap, topic, values, round((time() - ago_s) * 1000)))


async def _write(bootstrap: str, topic: str, values: tuple[bytes, ...], timestamp: int) -> int:
    async with Client(parse_addresses(bootstrap), 10) as client:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        producer = await client.ask_any(request, InitProducerIdResponse)
        check("no producer id", producer.error_code)
        records = [Record(timestamp=timestamp, value=value) for value in values]
        batch = build_batch(
            records, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        produce = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=10_000, topic_data=[data])
        (leader,) = await client.by_leader([(topic, 0)])
        response = await client.ask_at(leader, produce, ProduceResponse, highest=PRODUCE_VERSION)
        check("not produced", response.responses[0].partition_responses[0].error_code)
        return producer.producer_id
