"""Leaders killed under Spark's connector: what a query reads and writes then, and which end offsets it sees."""

import ast
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster_processes import ClusterProcesses, wait_for
from tests.pipeline import topics
from tests.pipeline.streams import Running, batch, options_of, stream, values_of
from tests.pipeline.topics import WAIT_S, Reachable, make_topic, produce
from tests.served import ServedBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
PARTITIONS = 3
ROUND = 600
# A producer and a query that are in the middle when the leader goes need several batches to be in the middle of.
IN_PIECES = {"maxOffsetsPerTrigger": 150}
LOOK_EVERY_S = 0.02
# Java's admin client, by which Spark asks for ends, holds a request for a broker that was killed until this is over:
# it does not look the leader up again. Spark does, and asks again.
ADMIN_GIVES_UP = {"kafka_request_timeout_ms": 4000, "kafka_default_api_timeout_ms": 5000}


def fill(broker: Reachable, topic: str, values: range) -> None:
    produce(broker, topic, numbers(values))


def numbers(values: range) -> list[str]:
    return [f"{number:05}" for number in values]


# The end offsets that a reader sees


@dataclass
class Ends:
    """The high watermarks of each partition in the order in which a reader saw them."""

    seen: dict[int, list[int]] = field(default_factory=lambda: {partition: [] for partition in range(PARTITIONS)})

    @property
    def last(self) -> list[int]:
        return [seen[-1] for seen in self.seen.values()]

    @property
    def falls(self) -> list[tuple[int, int, int]]:
        """Partition, the end that was seen, and the smaller one that was seen after it."""
        return [(p, a, b) for p, seen in self.seen.items() for a, b in pairwise(seen) if b < a]


@contextmanager
def watching(broker: Reachable, topic: str) -> Iterator[Ends]:
    """Asks for the ends all the while; a last time after the end of the context."""
    ends, over = Ends(), threading.Event()
    watchers = [
        threading.Thread(target=_watch, args=(broker, topic, partition, seen, over), daemon=True)
        for partition, seen in ends.seen.items()
    ]
    for watcher in watchers:
        watcher.start()
    try:
        yield ends
    finally:
        over.set()
        for watcher in watchers:
            watcher.join(WAIT_S)
    assert not any(watcher.is_alive() for watcher in watchers), "no watcher got the last end offsets"


def _watch(broker: Reachable, topic: str, partition: int, seen: list[int], over: threading.Event) -> None:
    is_last_seen = False
    while not is_last_seen:
        is_last = over.is_set()
        for end in _ends_until_an_error(broker, topic, partition):
            seen.append(end)
            is_last_seen = is_last
            if is_last or over.wait(LOOK_EVERY_S):
                break


def _ends_until_an_error(broker: Reachable, topic: str, partition: int) -> Iterator[int]:
    """A client that has got no answer goes on asking who led when it began: the next is a new one."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watching", "log_level": 2})
    try:
        while True:
            yield consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=2)[1]
    except KafkaException:
        return
    finally:
        consumer.close()


def ends_seen_by(query: Any, topic: str) -> Ends:
    """What the connector took for the ends, batch after batch."""
    ends = Ends()
    for progress in query.recentProgress:
        (source,) = progress.sources
        for partition, end in _offsets(source.latestOffset, topic).items():
            ends.seen[partition].append(end)
    return ends


def _offsets(text: str, topic: str) -> dict[int, int]:
    """JSON, from PySpark 4.1 on in Python's notation, which JSON of names and numbers is too."""
    return {int(partition): int(offset) for partition, offset in ast.literal_eval(text)[topic].items()}


def test_no_end_goes_back_over_a_kill_of_the_only_broker(spark: Any, tmp_path: Path, checkpoint: str) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        topic = make_topic(broker)
        with watching(broker, topic) as ends, Running(stream(spark, broker, topic), checkpoint) as running:
            fill(broker, topic, range(ROUND))
            running.wait_for(lambda values: len(values) >= ROUND)
            broker.kill()
            broker.start()
            fill(broker, topic, range(ROUND, 2 * ROUND))
            values = running.wait_for(lambda values: len(values) >= 2 * ROUND)

    assert values == numbers(range(2 * ROUND))
    assert ends.falls == []
    assert sum(ends.last) == 2 * ROUND


# Reading


@dataclass
class Outcome:
    values: list[str]
    watched: Ends
    seen_by_spark: Ends


@pytest.fixture(scope="module")
def read_over_kills(spark: Any, cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A query that reads while the leaders of two partitions are killed, one after the other."""
    topic = make_topic(cluster, PARTITIONS)
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    frame = stream(spark, cluster, topic, **IN_PIECES, **ADMIN_GIVES_UP)
    with watching(cluster, topic) as ends, Running(frame, checkpoint) as running:
        for turn, partition in enumerate((0, 1)):
            fill(cluster, topic, range(turn * ROUND, (turn + 1) * ROUND))
            running.wait_for(lambda values, turn=turn: len(values) > turn * ROUND)
            leader = kill_leader(cluster, topic, partition)
            running.wait_for(lambda values, turn=turn: len(values) >= (turn + 1) * ROUND)
            leader.start()
            cluster.wait_until_whole()
        fill(cluster, topic, range(2 * ROUND, 3 * ROUND))
        values = running.wait_for(lambda values: len(values) >= 3 * ROUND)
        seen_by_spark = ends_seen_by(running.query, topic)
    return Outcome(values, ends, seen_by_spark)


def kill_leader(cluster: ClusterProcesses, topic: str, partition: int) -> ServedBroker:
    leader = cluster.leader_of(topic, partition)
    leader.kill()
    return leader


def test_a_query_reads_every_row_once_over_killed_leaders(read_over_kills: Outcome) -> None:
    assert read_over_kills.values == numbers(range(3 * ROUND))


def test_end_offsets_never_decrease_over_killed_leaders(read_over_kills: Outcome) -> None:
    assert read_over_kills.watched.falls == []
    assert sum(read_over_kills.watched.last) == 3 * ROUND


def test_end_that_spark_sees_never_decreases_over_kills(read_over_kills: Outcome) -> None:
    assert read_over_kills.seen_by_spark.falls == []
    assert sum(read_over_kills.seen_by_spark.last) == 3 * ROUND


# Writing


def test_idempotent_sink_writes_rows_once_over_killed_leader(
    spark: Any, cluster: ClusterProcesses, checkpoint: str
) -> None:
    """The query does not fail: the sink's producer finds the new leader by itself."""
    source, target = make_topic(cluster), make_topic(cluster)
    fill(cluster, source, range(2 * ROUND))
    settings = {"topic": target, "checkpointLocation": checkpoint, "kafka.enable.idempotence": True}
    rows = stream(spark, cluster, source, **IN_PIECES, **ADMIN_GIVES_UP).select("key", "value")

    query = rows.writeStream.format("kafka").options(**options_of(cluster, settings)).trigger(availableNow=True).start()
    wait_for(lambda: sum(topics.end_offsets(cluster, target).values()) > 0, WAIT_S, "nothing is written")
    leader = kill_leader(cluster, target, 0)
    assert query.isActive, "all was written before the kill"
    assert query.awaitTermination(120), "the query does not end"
    leader.start()
    cluster.wait_until_whole()

    assert values_of(batch(spark, cluster, target)) == numbers(range(2 * ROUND))
    assert sorted(record.value().decode() for record in topics.consume_all(cluster, target)) == numbers(
        range(2 * ROUND)
    )
