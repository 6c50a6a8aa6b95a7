"""A replay in one transaction: readers of committed records see all of it, or nothing.

A transaction belongs to one producer. Tasks of Spark have no producer in common, and their transactions would be
committed one after the other; so the driver sends all records by itself, as fast as one task does. The transactional
id names the target: the next run fences one that was killed, and its transaction is aborted at once.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from pyspark.sql import Row

from ottla.pipeline.clients import NO_SECURITY, ClientSecurity
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.replay import RecordSender

ROWS_AT_ONCE = 1000
BEGIN_WITHIN_S = 60
WITHOUT = "--no-transaction replays without one"


@dataclass(frozen=True, slots=True)
class ReplayTransaction:
    """`timeout_ms` is how long the whole replay may take."""

    transactional_id: str
    timeout_ms: int


def send_in_transaction(
    rows: Iterator[Row],
    bootstrap: str,
    target: str,
    transaction: ReplayTransaction,
    *,
    keep_partitions: bool,
    security: ClientSecurity = NO_SECURITY,
) -> int:
    """Gives the number of records sent, all of them committed. Raises PipelineError, and then none is."""
    producer = _producer(bootstrap, transaction, security)
    return asyncio.run(_send_all(rows, producer, target, transaction, keep_partitions=keep_partitions))


def _producer(bootstrap: str, transaction: ReplayTransaction, security: ClientSecurity) -> Callable[[], Any]:
    """Makes one, within a running loop."""
    from aiokafka import AIOKafkaProducer

    return partial(
        AIOKafkaProducer,
        bootstrap_servers=bootstrap,
        client_id="ottla-pipeline",
        linger_ms=5,
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=transaction.timeout_ms,
        **security.of_python(),
    )


async def _send_all(
    rows: Iterator[Row],
    make_producer: Callable[[], Any],
    target: str,
    transaction: ReplayTransaction,
    *,
    keep_partitions: bool,
) -> int:
    producer = make_producer()
    sender = RecordSender(producer, target, keep_partitions=keep_partitions)
    with _plain_errors(target, transaction):
        try:
            await _start(producer)
            async with producer.transaction():
                # Rows come from Java, which may take its time; the loop has a connection to keep.
                while some := await asyncio.to_thread(lambda: list(islice(rows, ROWS_AT_ONCE))):
                    await _send(sender, some)
                await sender.finish()
        finally:
            await producer.stop()
    return sender.sent


async def _send(sender: RecordSender, rows: Sequence[Row]) -> None:
    from aiokafka import errors

    try:
        for row in rows:
            await sender.send(row)
    except errors.IllegalOperation:
        # The producer has failed since the row before. Why, those on their way have been answered.
        await sender.finish()
        raise


async def _start(producer: Any) -> None:
    """Raises PipelineError."""
    try:
        await asyncio.wait_for(producer.start(), BEGIN_WITHIN_S)
    except TimeoutError:
        raise PipelineError(f"the brokers have no coordinator for a transaction: {WITHOUT}") from None


@contextmanager
def _plain_errors(target: str, transaction: ReplayTransaction) -> Generator[None]:
    from aiokafka import errors

    try:
        yield
    except errors.ProducerFenced as error:
        raise PipelineError(
            f"another replay to {target} has taken over, or this one took longer than its transaction may, "
            f"{transaction.timeout_ms // 1000} s: replay it in parts (--since, --until), or {WITHOUT}"
        ) from error
    except errors.InvalidTransactionTimeout as error:
        raise PipelineError(
            f"the broker allows no transaction of {transaction.timeout_ms // 1000} s (transaction.max.timeout.ms): "
            "give a smaller --transaction-timeout"
        ) from error
    except (errors.UnsupportedVersionError, errors.IncompatibleBrokerVersion) as error:
        raise PipelineError(f"the broker is too old for transactions: {WITHOUT}") from error
