"""The doctor at clusters with faults: Ottla's, and Apache Kafka's where there is Java."""

import json
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from benchmarks.apache_kafka import ApacheKafka
from ottla import ClusterThread
from tests.cli.runner import run
from tests.cluster_processes import wait_for
from tests.differential.brokers import JVM_OPTIONS, SHARED, wait_until_serving
from tests.java_tools import classpath

WITHIN_S = 60
# The disk of the machine that tests run on may be full.
AT_ANY_DISK = ("--silence", "D11.disk-full")


def examined(bootstrap: str, *arguments: str, status: int) -> Any:
    result = run("doctor", "--bootstrap", bootstrap, "--for", "0.2", "--json", *AT_ANY_DISK, *arguments)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def ids(found: Any) -> list[str]:
    return [each["id"] for each in found["findings"]]


def ottla(bootstrap: str, *arguments: str) -> None:
    result = run(*arguments, "--bootstrap", bootstrap)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    settings = {"auto.create.topics.enable": False, "min.insync.replicas": 2, "offsets.topic.num.partitions": 2,
                "group.initial.rebalance.delay.ms": 0, "ottla.events.enable": True}  # fmt: skip
    with ClusterThread(brokers=3, settings=settings) as started:
        yield started


def test_sound_cluster_and_then_each_fault(cluster: ClusterThread) -> None:
    """One cluster for all, for it takes time to start. Faults are taken back."""
    at = cluster.bootstrap
    ottla(at, "topics", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    wait_for(lambda: ids(examined(at, status=0)) == [], WITHIN_S, "a sound cluster has findings")
    assert ids(examined(at, "--probe", status=0)) == []

    with consumers(at, "orders", "orders"):
        assert ids(examined(at, status=0)) == []
    ottla(at, "topics", "create", "alone", "--replication-factor", "1")
    ottla(at, "topics", "create", "tight", "--replication-factor", "3", "--config", "min.insync.replicas=3")
    assert ids(examined(at, status=3)) == ["D12.no-spare", "D12.one-replica"]
    assert ids(examined(at, "--topic", "orders", status=0)) == []
    assert ids(examined(at, "--fail-on", "critical", status=0)) == ["D12.no-spare", "D12.one-replica"]
    ottla(at, "topics", "delete", "alone", "tight")
    in_vain = examined(at, "--topic", "orderz", "--group", "gg", status=0)
    assert [each["reason"] for each in in_vain["not_checked"] if each["check"] in ("D4", "D9")] == [
        "group gg: no broker that answered has it",
        "topic orderz: the brokers do not list it",
    ]

    killed = cluster.node_ids[2]
    cluster.kill(killed)

    def lacks_a_broker() -> bool:
        result = run("doctor", "--bootstrap", at, "--for", "0.2", "--json", *AT_ANY_DISK)
        return "D9.under-replicated" in ids(json.loads(result.stdout))

    wait_for(lacks_a_broker, WITHIN_S, "the broker that was killed is not missed")
    found = next(each for each in examined(at, status=3)["findings"] if each["id"] == "D9.under-replicated")
    assert f"lack broker {killed} only" in found["text"]


@contextmanager
def consumers(bootstrap: str, *subscriptions: str) -> Generator[None]:
    """A group with a member for each topic, when all have been given partitions."""
    config = {"bootstrap.servers": bootstrap, "group.id": "g", "partition.assignment.strategy": "cooperative-sticky"}
    members = [Consumer(config) for _ in subscriptions]
    try:
        for each, topic in zip(members, subscriptions, strict=True):
            each.subscribe([topic])

        def all_have_some() -> bool:
            for each in members:
                each.poll(0.05)
            return all(each.assignment() for each in members)

        wait_for(all_have_some, WITHIN_S, "the members have no partitions")
        yield
    finally:
        for each in members:
            each.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """Apache Kafka 4.1, one node."""
    classpath()
    more = {**SHARED, "auto.create.topics.enable": "false", "log.cleaner.dedupe.buffer.size": "4194304"}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-doctor-") as directory,
        ApacheKafka(directory, more=more).running(JVM_OPTIONS) as server,
    ):
        wait_until_serving(("127.0.0.1", server.port))
        try:
            yield f"127.0.0.1:{server.port}"
        finally:
            server.kill()


@pytest.mark.java
def test_sound_apache_kafka_gives_no_finding(kafka: str) -> None:
    ottla(kafka, "topics", "create", "sound", "--partitions", "3")
    found = examined(kafka, "--topic", "sound", "--probe", status=0)

    assert [each for each in ids(found) if each != "D12.one-broker"] == []
    assert [each for each in found["not_checked"] if each["check"] == "D10"] == []


@pytest.mark.java
def test_open_transaction_in_apache_kafka_is_found(kafka: str) -> None:
    ottla(kafka, "topics", "create", "held")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "t"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce("held", b"value")
    producer.flush(WITHIN_S)

    found = examined(kafka, "--topic", "held", status=3)
    producer.abort_transaction(WITHIN_S)

    finding = next(each for each in found["findings"] if each["id"] == "D5.hanging-transaction")
    assert finding["subject"] == "held-0"
    assert "readers of committed transactions stand at 0, held by producer" in finding["text"]
    assert "(t), which wrote last" in finding["text"]
    assert "its coordinator ends it after its timeout" in finding["advice"]
    assert "D5.hanging-transaction" not in ids(examined(kafka, "--topic", "held", status=0))


@pytest.mark.java
def test_mixed_subscriptions_in_apache_kafka_are_found(kafka: str) -> None:
    for topic in ("left", "right"):
        ottla(kafka, "topics", "create", topic)
    with consumers(kafka, "left", "right"):
        found = examined(kafka, "--group", "g", status=3)

    assert "D13.mixed-subscriptions" in ids(found)
