"""Kafka Streams counts words exactly once, while its instances and brokers are killed."""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from benchmarks import apache_kafka
from benchmarks.figure import NotMeasured
from tests.cluster_processes import ClusterProcesses, etcd_is_installed
from tests.java_tools import program
from tests.locks import alone

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

JAVA = Path(__file__).parents[1] / "java"
SOURCE = JAVA / "WordCount.java"
POM = JAVA / "streams" / "pom.xml"
COUNTED_WITHIN_S = 240
WORDS = [f"word-{number}" for number in range(20)]
PARTITIONS = 3
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
SETTINGS |= {"transaction.state.log.num.partitions": "3"}
LONG = "OTTLA_STREAMS"


@pytest.fixture(scope="session")
def streams_classpath() -> str:
    with alone("maven"):
        try:
            return apache_kafka.classpath(POM)
        except NotMeasured as reason:
            pytest.skip(str(reason))


class WordCount:
    """An instance, whose state outlives it."""

    def __init__(self, cluster: ClusterProcesses, classpath: str, name: str) -> None:
        self._directory = cluster.directory / name
        self._directory.mkdir()
        arguments = [cluster.bootstrap, str(self._directory), name, str(len(cluster.brokers))]
        self._command = [*program(SOURCE, classpath), *arguments]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with (self._directory / "stderr").open("a") as stderr:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def wait_until_running(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "RUNNING":
                return
        raise AssertionError(f"it ended: {(self._directory / 'stderr').read_text()[-3000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self.start()


@contextmanager
def instances(cluster: ClusterProcesses, classpath: str, count: int) -> Iterator[list[WordCount]]:
    started = [WordCount(cluster, classpath, f"instance-{number}") for number in range(count)]
    try:
        for each in started:
            each.start()
        yield started
    finally:
        for each in started:
            each.kill()


class Lines:
    """Sends lines, and knows how often each word is in them."""

    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        self._rng = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def send(self, count: int) -> None:
        for _ in range(count):
            words = self._rng.choices(WORDS, k=5)
            self.counts.update(words)
            self._producer.produce("lines", " ".join(words), partition=self._rng.randrange(PARTITIONS))
        assert self._producer.flush(COUNTED_WITHIN_S) == 0


class Counts:
    """Reads what was counted, of committed transactions only."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", **settings})
        self._consumer.subscribe(["counts"])
        self.counts: dict[str, int] = {}

    def read_until(self, total: int) -> None:
        """Until the counts of all words add up to so many; a count that does not rise was made twice."""
        while sum(self.counts.values()) < total:
            message: Any = self._consumer.poll(COUNTED_WITHIN_S)
            assert message is not None, f"{sum(self.counts.values())} of {total} words are counted"
            assert message.error() is None, message.error()
            word, count = message.key().decode(), int.from_bytes(message.value(), "big")
            assert count > self.counts.get(word, 0), f"{word} went from {self.counts[word]} to {count}"
            self.counts[word] = count

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def counting(directory: Path, brokers: int) -> Iterator[tuple[ClusterProcesses, Lines, Counts]]:
    settings = SETTINGS | {"offsets.topic.replication.factor": str(brokers), "broker.session.timeout.ms": "6000"}
    settings["transaction.state.log.replication.factor"] = str(brokers)
    with ClusterProcesses(directory, settings, brokers=brokers) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, PARTITIONS, brokers)
        counts = Counts(cluster)
        try:
            yield cluster, Lines(cluster, seed=brokers), counts
        finally:
            counts.close()


def test_words_are_counted_once_by_an_instance_killed(tmp_path: Path, streams_classpath: str) -> None:
    with counting(tmp_path, 1) as (cluster, lines, counts), instances(cluster, streams_classpath, 1) as (instance,):
        lines.send(300)
        counts.read_until(500)
        instance.restart()
        lines.send(100)
        counts.read_until(lines.counts.total())

    assert counts.counts == lines.counts


@pytest.mark.skipif(LONG not in os.environ, reason=f"{LONG} is not set")
@pytest.mark.skipif(not etcd_is_installed(), reason="etcd is not installed")
def test_words_are_counted_once_over_killed_leaders(tmp_path: Path, streams_classpath: str) -> None:
    with counting(tmp_path, 3) as (cluster, lines, counts), instances(cluster, streams_classpath, 2) as both:
        for turn in range(int(os.environ[LONG])):
            lines.send(500)
            counts.read_until(lines.counts.total() - 1000)
            leader = cluster.leader_of("counts", turn % PARTITIONS)
            leader.kill()
            lines.send(500)
            both[turn % 2].restart()
            counts.read_until(lines.counts.total() - 500)
            leader.start()
            cluster.wait_until_whole()
        counts.read_until(lines.counts.total())

    assert counts.counts == lines.counts
