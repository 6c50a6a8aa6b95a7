"""Captures of real clients are sent to other brokers, which then have the same records, groups and offsets."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import ottla.testing
from benchmarks.figure import NotMeasured
from ottla.cli.operations.wire import ReplayOptions, _replay
from ottla.protocol.address import Address
from ottla.testing.handle import Kafka
from ottla.testing.wire_capture.comparison import compare
from ottla.testing.wire_capture.replay import ReplayFailed, ReplayReport
from tests.cli.runner import run
from tests.differential.brokers import kafka as apache_kafka
from tests.kit.members import consumer, polled, send
from tests.ports import free_ports
from tests.waiting import wait_for
from tests.wire.captures import apis_in, values_in

EARLIEST = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}


def replayed(path: Path, bootstrap: str, *, answer_within_s: float = 20, to: Path | None = None) -> ReplayReport:
    host, _, port = bootstrap.rpartition(":")
    return asyncio.run(_replay(ReplayOptions(path, Address(host, int(port)), 4, answer_within_s, to)))


@pytest.fixture
def another() -> Iterator[Kafka]:
    """A fresh broker with the same topic."""
    with ottla.testing.broker(deadline=20, topics={"orders": 2}) as kafka:
        # Identities that the capture has not.
        kafka.produce("other", [b"x"])
        send(kafka, "other", b"y", **{"enable.idempotence": True})
        yield kafka


def group_of_librdkafka(kafka: Kafka) -> None:
    """An idempotent producer, and two members of which the first leaves."""
    kafka.create_topic("orders", partitions=2)
    producer = Producer(kafka.client_config("producer") | {"enable.idempotence": True})
    for number in range(6):
        producer.produce("orders", b"%d" % number, partition=number % 2)
        assert producer.flush(20) == 0
    with consumer(kafka, "shop", "orders", **EARLIEST) as first:
        assert len(polled(first, 6)) == 6
        first.commit(asynchronous=False)
        with consumer(kafka, "shop", "orders", **EARLIEST) as second:
            is_over = threading.Event()
            polling = threading.Thread(target=poll_until, args=(second, is_over))
            polling.start()
            while len(first.assignment()) != 1 or kafka.group("shop").state != "Stable":
                first.poll(0.05)
            is_over.set()
            polling.join()


def poll_until(made: Consumer, is_over: threading.Event) -> None:
    while not is_over.is_set():
        made.poll(0.05)


async def group_of_aiokafka(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(6):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
    made = AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="shop", auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with made:
        for _ in range(6):
            await asyncio.wait_for(made.getone(), 20)
        await made.commit()


def test_group_of_librdkafka_is_replayed(kafka: Kafka, another: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as first:
        group_of_librdkafka(kafka)
    with another.wire.record(tmp_path / "b.owire") as second:
        report = replayed(first.path, another.bootstrap, to=tmp_path / "c.owire")

    assert report.differences == []
    assert report.answers > 40
    assert values_in(another, "orders") == values_in(kafka, "orders") != []
    assert another.group("shop").offsets == kafka.group("shop").offsets == {("orders", 0): 3, ("orders", 1): 3}
    assert {"JoinGroup", "SyncGroup", "LeaveGroup", "InitProducerId"} <= set(apis_in(second.path))
    assert compare(first.path, first.path) == []
    assert unexpected(first.path, second.path) == []
    # What the replay has captured itself is what its broker has captured.
    assert unexpected(second.path, tmp_path / "c.owire") == []


def test_group_of_aiokafka_is_replayed(kafka: Kafka, another: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders", partitions=2)
    with kafka.wire.record(tmp_path / "a.owire") as first:
        asyncio.run(group_of_aiokafka(kafka.bootstrap))
    with another.wire.record(tmp_path / "b.owire") as second:
        report = replayed(first.path, another.bootstrap)

    assert report.differences == []
    assert values_in(another, "orders") == values_in(kafka, "orders") != []
    assert another.group("shop").offsets == kafka.group("shop").offsets == {("orders", 0): 3, ("orders", 1): 3}
    assert compare(first.path, first.path) == []
    assert unexpected(first.path, second.path) == []


def unexpected(a: Path, b: Path) -> list[str]:
    """Differences but for those that are known: other topics are there, answers that came before the client closed."""
    known = ("topics[other]", ": A nothing, B came", ": A came, B nothing")
    return [str(each) for each in compare(a, b) if not any(part in str(each) for part in known)]


@pytest.mark.java
@pytest.mark.timeout(240)
def test_capture_is_replayed_to_apache_kafka(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as first:
        group_of_librdkafka(kafka)
    with TemporaryDirectory(prefix="ottla-wire-") as directory:
        try:
            serving = apache_kafka(directory, 2)
            with serving as (host, port):
                bootstrap = f"{host}:{port}"
                create_at(bootstrap, "orders", 2)
                report = replayed(first.path, bootstrap, to=tmp_path / "b.owire")
                assert values_at(bootstrap, "orders") == values_in(kafka, "orders")
                assert committed_at(bootstrap, "shop", "orders") == [3, 3]
        except NotMeasured as reason:
            pytest.skip(str(reason))

    # Kafka serves other versions of some APIs; all else that it says is the same.
    differing = {each.exchange.split()[0] for each in compare(first.path, tmp_path / "b.owire")}
    assert "ApiVersions" in differing
    assert differing <= {"ApiVersions", "Heartbeat"}
    # A member learns of a rebalance by the first heartbeat after it: which one that is depends on the machine.
    assert [each for each in report.differences if not each.startswith("Heartbeat")] == []


def create_at(bootstrap: str, topic: str, partitions: int) -> None:
    done = run("topics", "create", topic, "--partitions", str(partitions), "--bootstrap", bootstrap)
    assert done.exit_code == 0, done.output
    # Its coordinator and its producer ids are there before the capture's clients ask for them.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("other", b"x")
    assert producer.flush(60) == 0
    wait_for(lambda: has_coordinator(bootstrap, topic), 60, "Kafka has no coordinator", every_s=0.2)


def has_coordinator(bootstrap: str, topic: str) -> bool:
    made = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop"})
    try:
        made.committed([TopicPartition(topic, 0)], 20)
    except KafkaException:
        return False
    finally:
        made.close()
    return True


def values_at(bootstrap: str, topic: str) -> list[tuple[int, int, bytes]]:
    made = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    made.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found = [message for _ in range(6) if (message := made.poll(20)) is not None]
    made.close()
    return sorted((each.partition(), each.offset(), each.value()) for each in found)


def committed_at(bootstrap: str, group: str, topic: str) -> list[int]:
    made = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    found = made.committed([TopicPartition(topic, number) for number in range(2)], 20)
    made.close()
    return [each.offset for each in found]


def test_another_error_is_reported(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        send(kafka, "orders", b"a")
    kafka.reset()
    kafka.create_topic("orders")

    with kafka.fault(api="Produce", do={"error": "INVALID_RECORD"}):
        result = run("wire", "replay", str(capture.path), "--to", kafka.bootstrap, "--speed", "0")

    assert result.exit_code == 1
    done, said = result.stdout.splitlines()
    assert done.endswith(" answers")
    assert said.endswith("was answered no error in the capture, and now INVALID_RECORD")


def test_answer_that_does_not_come_is_reported(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        send(kafka, "orders", b"a")

    with kafka.fault(api="Produce", do={"drop": "response"}):
        report = replayed(capture.path, kafka.bootstrap, answer_within_s=0.3)

    (sentence,) = report.differences
    assert "Produce" in sentence
    assert sentence.endswith("has no answer within 0.3 s")
    assert [each.value for each in kafka.records("orders")] == [b"a", b"a"]


def test_broker_that_is_not_there_is_one_sentence(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        send(kafka, "orders", b"a")
    (port,) = free_ports(1)

    with pytest.raises(ReplayFailed, match=rf"^cannot connect to 127\.0\.0\.1:{port}: "):
        replayed(capture.path, f"127.0.0.1:{port}")
    result = run("wire", "replay", str(capture.path), "--to", f"127.0.0.1:{port}")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
