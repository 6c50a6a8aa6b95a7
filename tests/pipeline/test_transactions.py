"""Transactions and Spark: what is read of them, the example, and a replay that is in one."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import errors
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import Row

from ottla.pipeline import replay, replay_transaction
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.replay_transaction import ReplayTransaction, send_in_transaction
from tests.cluster_processes import wait_for
from tests.pipeline.examples import EXAMPLES, script
from tests.pipeline.streams import Running, batch, run_available, stream, values_of
from tests.pipeline.test_archive import archive_once
from tests.pipeline.topics import Transactions, consume_committed, make_topic, produce
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
EXAMPLE = "exactly_once"
COMMITTED = {"kafka_isolation_level": "read_committed"}
WITHIN_S = 60


def end_of(broker: ServedBroker, topic: str) -> int:
    """The high watermark of partition 0."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "looking", "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S)[1])
    finally:
        consumer.close()


# Reading


def test_only_committed_records_are_read(spark: Any, broker: ServedBroker, checkpoint: str) -> None:
    """Aborted ones and markers leave gaps in the offsets, the last record of a batch's range among them."""
    topic, transactions = make_topic(broker, 1), Transactions(broker)
    for number in range(6):
        transactions.run(topic, [f"{number}a", f"{number}b"], commit=number % 2 == 0)
    committed = ["0a", "0b", "2a", "2b", "4a", "4b"]

    assert values_of(batch(spark, broker, topic, **COMMITTED)) == committed
    assert len(values_of(batch(spark, broker, topic))) == 12
    settings = {**COMMITTED, "failOnDataLoss": True, "maxOffsetsPerTrigger": 4}
    assert run_available(stream(spark, broker, topic, **settings), checkpoint).values == committed


def test_a_stream_waits_for_the_end_of_a_transaction(spark: Any, broker: ServedBroker, checkpoint: str) -> None:
    topic, transactions = make_topic(broker, 1), Transactions(broker)
    with Running(stream(spark, broker, topic, failOnDataLoss=True, **COMMITTED), checkpoint) as running:
        transactions.run(topic, ["a"], commit=True)
        assert running.wait_for(lambda values: len(values) >= 1) == ["a"]
        transactions.run(topic, ["b", "c"], commit=False)
        transactions.begin(topic, ["d"])
        produce(broker, topic, ["e"])
        assert running.batches.values == ["a"]
        transactions.end(commit=True)
        assert running.wait_for(lambda values: len(values) >= 3) == ["a", "d", "e"]
        transactions.run(topic, ["f"], commit=False)
        produce(broker, topic, ["g"])
        assert running.wait_for(lambda values: len(values) >= 4) == ["a", "d", "e", "g"]


# The example


async def test_balances_of_the_example_are_zero_together(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    transfers, balances = script(EXAMPLE, "transfers"), script(EXAMPLE, "balances")
    make_topic(broker, 1)
    table = str(tmp_path / "balances")
    await transfers.send(broker.bootstrap, 25)
    query = balances.write(balances.balances(balances.read_committed(spark, broker.bootstrap)), table)
    assert query.awaitTermination(WITHIN_S)

    rows = spark.read.format("delta").load(table).collect()
    assert {row.account for row in rows} == set(transfers.ACCOUNTS)
    assert sum(row.cents for row in rows) == 0
    assert sum(row.bookings for row in rows) == 2 * (25 - 2)
    assert len(values_of(batch(spark, broker, transfers.TOPIC))) == 2 * (25 - 2) + 2


def test_guide_of_the_example_asks_for_packages_that_fit() -> None:
    assert '--packages "$(ottla pipeline --packages)" ' in (EXAMPLES / EXAMPLE / "README.md").read_text()


# Replays

KILLED = """
import signal, sys
from ottla.pipeline.replay_transaction import ReplayTransaction, send_in_transaction
def rows():
    for number in range(2000):
        yield {"key": None, "value": b"lost", "partition": 0, "timestamp_ms": number, "headers": None}
    signal.pause()
send_in_transaction(rows(), sys.argv[1], sys.argv[2], ReplayTransaction("replay", 900_000), keep_partitions=True)
"""
SENT = 2000


def test_a_killed_replay_shows_nothing_and_the_next_one_all(spark: Any, broker: ServedBroker, tmp_path: Path) -> None:
    source, target = make_topic(broker), make_topic(broker)
    for partition in range(3):
        produce(broker, source, map(str, range(20)), partition=partition, timestamp=1_700_000_000_000)
    archive_once(spark, broker, [source], tmp_path / "table")
    process = subprocess.Popen([sys.executable, "-c", KILLED, broker.bootstrap, target])
    try:
        # What it has not read in whole it has not sent: a thousand rows at once.
        wait_for(lambda: end_of(broker, target) > 0, WITHIN_S, "nothing is sent")
    finally:
        process.kill()
        process.wait()
    assert consume_committed(broker, target) == []

    rows = spark.read.format("delta").load(str(tmp_path / "table"))
    selected = replay.select_range(rows, source, replay.Range()).toLocalIterator(prefetchPartitions=True)
    transaction = ReplayTransaction("replay", 900_000)
    assert send_in_transaction(selected, broker.bootstrap, target, transaction, keep_partitions=True) == 60

    records = consume_committed(broker, target)
    found = [(record.partition(), record.value().decode(), record.timestamp()[1]) for record in records]
    assert found == [(place, str(n), 1_700_000_000_000) for place in range(3) for n in range(20)]


def row(value: str) -> Row:
    return Row(key=None, value=value.encode(), partition=0, timestamp_ms=1, headers=None)


def test_a_replay_that_fails_shows_nothing(broker: ServedBroker) -> None:
    target = make_topic(broker, 1)

    def rows() -> Any:
        yield from map(row, map(str, range(1500)))
        raise OSError("the table is gone")

    with pytest.raises(OSError, match="the table is gone"):
        send_in_transaction(rows(), broker.bootstrap, target, ReplayTransaction("r", 10_000), keep_partitions=True)

    assert end_of(broker, target) > 0
    assert consume_committed(broker, target, [0]) == []


def test_a_second_replay_ends_the_first(broker: ServedBroker) -> None:
    target, transaction = make_topic(broker, 1), ReplayTransaction("same", 900_000)

    def rows() -> Any:
        yield from map(row, ["first"] * 1000)
        send_in_transaction(iter([row("second")]), broker.bootstrap, target, transaction, keep_partitions=True)
        yield row("first")

    with pytest.raises(PipelineError, match=f"another replay to {target} has taken over"):
        send_in_transaction(rows(), broker.bootstrap, target, transaction, keep_partitions=True)

    assert [record.value() for record in consume_committed(broker, target, [0])] == [b"second"]


class FencedProducer:
    """As aiokafka's is when the answer to a record has fenced it, and the next one comes."""

    def __init__(self) -> None:
        self._is_fenced = False

    async def start(self) -> None:
        """It is."""

    async def stop(self) -> None:
        """It is."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def send(self, *_: Any, **__: Any) -> asyncio.Future[None]:
        if self._is_fenced:
            raise errors.IllegalOperation("Can't send messages while not in transaction")
        self._is_fenced = True
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        acknowledged.set_exception(errors.ProducerFenced())
        return acknowledged


def test_a_replay_that_is_fenced_between_two_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_transaction, "_producer", lambda *_: FencedProducer)

    with pytest.raises(PipelineError, match="another replay to t has taken over"):
        send_in_transaction(
            map(row, ["a", "b"]), "localhost:9", "t", ReplayTransaction("r", 10_000), keep_partitions=True
        )


def test_a_transaction_longer_than_the_broker_allows_is_refused(broker: ServedBroker) -> None:
    transaction = ReplayTransaction("long", 901_000)
    with pytest.raises(PipelineError, match=r"no transaction of 901 s \(transaction\.max\.timeout\.ms\)"):
        send_in_transaction(iter([]), broker.bootstrap, "t", transaction, keep_partitions=True)
