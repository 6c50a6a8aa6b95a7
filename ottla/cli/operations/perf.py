"""How fast records are produced and consumed by the client library, as Kafka's performance tools measure it.

The client is the slower side: compare clients with clients. `python -m benchmarks` measures the broker."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic
from typing import Any

from ottla.cli.client import ClientConfig
from ottla.cli.failures import ClientError
from ottla.cli.operations.consume import Limits, consume_records
from ottla.cli.operations.produce import Destination, sentence_of, started_producer
from ottla.cli.operations.record_source import RecordSource
from ottla.cli.operations.topics import reachable_partitions

PERCENTILES = (50, 95, 99, 99.9)
MEBIBYTE = 1024 * 1024


@dataclass
class Measured:
    """`latencies_s` of acknowledged records, each from its send on; empty for a consumer. `failure`: why the first
    record was not acknowledged of those that were not."""

    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list[float])
    failure: BaseException | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mebibytes_per_s(self) -> float:
        return self.size_bytes / MEBIBYTE / self.seconds if self.seconds else 0.0

    def latency_ms(self, percentile: float) -> float:
        """The latency that so many percent of the records did not exceed."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[max(0, math.ceil(percentile / 100 * len(ordered)) - 1)] if ordered else 0.0

    def mean_latency_ms(self) -> float:
        return 1000 * sum(self.latencies_s) / len(self.latencies_s) if self.latencies_s else 0.0


async def measure_produce(
    config: ClientConfig, destination: Destination, *, records: int, record_bytes: int, throughput: float | None
) -> Measured:
    """At most `throughput` records a second. Raises ClientError."""
    async with config.client() as client:
        await reachable_partitions(client, destination.topic, create_missing=True)
    from aiokafka.errors import KafkaError

    # Not compressible, and the same every time.
    payload = Random(0).randbytes(record_bytes)
    measured = Measured()
    try:
        producer = await started_producer(config, destination)
        started_at = monotonic()
        try:
            await _send_all(producer, destination.topic, payload, records, throughput, measured)
        finally:
            await producer.stop()
    except (KafkaError, OSError) as error:
        raise ClientError(f"cannot produce to {destination.topic}: {sentence_of(measured.failure or error)}") from error
    measured.seconds = monotonic() - started_at
    measured.size_bytes = measured.records * record_bytes
    return measured


async def _send_all(
    producer: Any, topic: str, payload: bytes, records: int, throughput: float | None, measured: Measured
) -> None:
    """Raises the error of the first record that was not acknowledged."""
    started_at = monotonic()
    deliveries: list[asyncio.Future[Any]] = []
    for number in range(records):
        if measured.failure is not None:
            break
        if throughput is not None:
            early_s = started_at + number / throughput - monotonic()
            if early_s > 0:
                await asyncio.sleep(early_s)
        sent_at = monotonic()
        delivery: asyncio.Future[Any] = await producer.send(topic, payload)
        delivery.add_done_callback(partial(_note_latency, measured, sent_at))
        deliveries.append(delivery)
    await asyncio.gather(*deliveries)
    measured.records = records


def _note_latency(measured: Measured, sent_at: float, delivery: "asyncio.Future[Any]") -> None:
    error = None if delivery.cancelled() else delivery.exception()
    if error is None:
        measured.latencies_s.append(monotonic() - sent_at)
    elif measured.failure is None:
        measured.failure = error


async def measure_consume(config: ClientConfig, source: RecordSource, limits: Limits) -> Measured:
    """From when the consumer has started on, to its last record. Raises ClientError."""
    measured = Measured()
    started_at = last_at = 0.0

    def begin() -> bool:
        nonlocal started_at, last_at
        started_at = last_at = monotonic()
        return True

    def take(records: Sequence[Any]) -> bool:
        nonlocal last_at
        if records:
            last_at = monotonic()
            measured.records += len(records)
            measured.size_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        return True

    await consume_records(config, source, limits, take, at_start=begin)
    measured.seconds = last_at - started_at
    return measured
