"""A table's records back into a topic: keys, values, headers, timestamps and partitions as they were.

Spark's own sink has no way to set a timestamp, so the records go through a producer of Python: in one transaction
(`ottla.pipeline.replay_transaction`), or without any from the executors, one task per partition, in the order of
offsets, idempotent. Such a task that fails and is run again sends its records again.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import add
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.clients import NO_SECURITY, ClientSecurity
from ottla.pipeline.failures import PipelineError

IN_FLIGHT_MAX = 5000


@dataclass(frozen=True, slots=True)
class Range:
    """Which records: None is no bound. Times are milliseconds, `since` and `first_offset` belong to the range, `until`
    and `end_offset` do not. Offsets are those of every partition."""

    since_ms: int | None = None
    until_ms: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None


def select_range(rows: DataFrame, topic: str, wanted: Range) -> DataFrame:
    """Records of one topic, as many tasks as it has partitions, each in order of offsets."""
    moment_ms = F.unix_millis("timestamp")
    selected = rows.where(F.col("topic") == topic)
    if wanted.since_ms is not None:
        selected = selected.where(moment_ms >= wanted.since_ms)
    if wanted.until_ms is not None:
        selected = selected.where(moment_ms < wanted.until_ms)
    if wanted.first_offset is not None:
        selected = selected.where(F.col("offset") >= wanted.first_offset)
    if wanted.end_offset is not None:
        selected = selected.where(F.col("offset") < wanted.end_offset)
    columns = selected.select("key", "value", "headers", "partition", "offset", moment_ms.alias("timestamp_ms"))
    return columns.repartition("partition").sortWithinPartitions("partition", "offset")


def check_partitions(selected: DataFrame, target: str, target_partitions: int) -> None:
    """Raises PipelineError when the target has too few partitions for the records to keep theirs."""
    highest = selected.agg(F.max("partition")).first()
    if highest is not None and highest[0] is not None and highest[0] >= target_partitions:
        raise PipelineError(
            f"the records come from partition {highest[0]} and {target} has {target_partitions} partitions: "
            "give it more, or --any-partition"
        )


def send(
    selected: DataFrame, bootstrap: str, target: str, *, keep_partitions: bool, security: ClientSecurity = NO_SECURITY
) -> int:
    """Gives the number of records sent."""

    def send_rows(rows: Iterable[Row]) -> Iterator[int]:
        yield asyncio.run(_send_all(rows, bootstrap, target, security, keep_partitions=keep_partitions))

    return int(selected.rdd.mapPartitions(send_rows).fold(0, add))


async def _send_all(
    rows: Iterable[Row], bootstrap: str, target: str, security: ClientSecurity, *, keep_partitions: bool
) -> int:
    from aiokafka import AIOKafkaProducer

    producer: Any = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id="ottla-pipeline",
        enable_idempotence=True,
        linger_ms=5,
        **security.of_python(),
    )
    await producer.start()
    sender = RecordSender(producer, target, keep_partitions=keep_partitions)
    try:
        for row in rows:
            await sender.send(row)
        await sender.finish()
    finally:
        await producer.stop()
    return sender.sent


class RecordSender:
    """Rows as records through a producer, so many at once that it is never idle."""

    def __init__(self, producer: Any, target: str, *, keep_partitions: bool) -> None:
        self.sent = 0
        self._producer = producer
        self._target = target
        self._keep_partitions = keep_partitions
        self._waiting: list[Any] = []

    async def send(self, row: Row) -> None:
        acknowledged = await self._producer.send(
            self._target,
            key=_bytes(row["key"]),
            value=_bytes(row["value"]),
            partition=row["partition"] if self._keep_partitions else None,
            timestamp_ms=row["timestamp_ms"],
            headers=[(header["key"], _bytes(header["value"])) for header in row["headers"] or ()],
        )
        self._waiting.append(acknowledged)
        self.sent += 1
        if len(self._waiting) >= IN_FLIGHT_MAX:
            await self.finish()

    async def finish(self) -> None:
        """Until all are acknowledged. Raises the error of the first that is not."""
        waiting, self._waiting = self._waiting, []
        await asyncio.gather(*waiting)


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
