"""What can go wrong around the processes of a cluster, and what they say of it: nothing acknowledged is lost by it."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.cluster.image import BrokerInfo
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.asking import Client
from tests.broker.test_listeners import create_topic
from tests.broker.test_listeners import running as running_with_two_listeners
from tests.broker.test_replica_ends import ANY_REPLICA, question
from tests.cluster.images import with_broker
from tests.cluster_processes import ClusterProcesses, wait_for
from tests.served import ServedBroker

SESSION_MS = 2000
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "initial.broker.registration.timeout.ms": "3000",
}
SAID_WITHIN_S = 30
REPLICA, STRANGER = 2, 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        cluster.create_topic("t", 3, 3)
        yield cluster


def serve(cluster: ClusterProcesses, data_dir: Path, node_id: int) -> "subprocess.CompletedProcess[str]":
    """A further process that is expected to give up by itself."""
    assert cluster.etcd is not None
    arguments = ["--node-id", str(node_id), "--metadata", cluster.etcd.url]
    arguments += ["--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "ottla", "serve", *arguments, *settings]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def acknowledged(cluster: ClusterProcesses, topic: str, *values: str) -> None:
    """Each of the values is acknowledged by all replicas in sync, or this is an AssertionError."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 15_000})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=delivered)
    assert producer.flush(20) == 0
    assert failures == []


def read(cluster: ClusterProcesses, topic: str, count: int) -> list[str]:
    """The first so many values, in order of their text; without a group, whose coordinator may be yet to be made."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    values: list[str] = []
    deadline = time.monotonic() + SAID_WITHIN_S
    while len(values) < count and time.monotonic() < deadline:
        values += [(message.value() or b"").decode() for message in consumer.consume(100, 0.2) if not message.error()]
    consumer.close()
    return sorted(values)


def another_than(broker: ServedBroker, cluster: ClusterProcesses) -> tuple[int, ServedBroker]:
    return next((node_id, each) for node_id, each in cluster.brokers.items() if each is not broker)


def wait_until_said(broker: ServedBroker, words: str) -> None:
    wait_for(lambda: words in broker.stderr, SAID_WITHIN_S, f"the broker did not log {words!r}: {broker.stderr}")


def test_the_data_of_another_cluster_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", arguments=["--node-id", "9"]) as other:
        other.stop()
    (tmp_path / "data" / "ottla-metadata.sqlite").unlink()

    done = serve(cluster, tmp_path / "data", 9)

    assert (done.returncode, done.stdout) == (1, "")
    assert "belongs to cluster" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert {broker.id for broker in cluster.admin().list_topics(timeout=10).brokers.values()} == {1, 2, 3}


def test_node_id_in_use_is_refused_and_its_owner_keeps_running(cluster: ClusterProcesses, tmp_path: Path) -> None:
    done = serve(cluster, tmp_path / "data", 2)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "ottla: another process is registered as broker 2"
    assert "Traceback" not in done.stderr
    acknowledged(cluster, "t", "after the duplicate")
    assert "session of this broker has ended" not in cluster.brokers[2].stderr


def test_the_data_directory_of_a_running_broker_is_refused(cluster: ClusterProcesses) -> None:
    done = serve(cluster, cluster.brokers[3].data_dir, 3)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].endswith("is in use by another broker")


def test_brokers_serve_without_etcd_and_say_so(tmp_path: Path) -> None:
    """Partitions have their leaders and their replicas in sync; only what needs a decision waits."""
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        assert cluster.etcd is not None
        cluster.create_topic("kept", 3, 3)
        cluster.wait_until_whole()
        cluster.etcd.kill()
        killed_at = time.monotonic()
        for broker in cluster.brokers.values():
            wait_until_said(broker, "the metadata store does not answer")
        # Sessions would have ended long ago.
        wait_for(lambda: time.monotonic() > killed_at + 2 * SESSION_MS / 1000, SAID_WITHIN_S, "time stands still")

        acknowledged(cluster, "kept", "a", "b", "c")
        assert read(cluster, "kept", 3) == ["a", "b", "c"]
        with pytest.raises(KafkaException):
            cluster.create_topic("refused", 1, 3)

        cluster.etcd.start()
        for broker in cluster.brokers.values():
            wait_until_said(broker, "the metadata store answers again")
        cluster.create_topic("later", 1, 3)
        acknowledged(cluster, "kept", "d")
        assert read(cluster, "kept", 4) == ["a", "b", "c", "d"]


def test_etcd_that_lost_its_data_deletes_no_data_of_brokers(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        assert cluster.etcd is not None
        cluster.create_topic("kept", 1, 3)
        acknowledged(cluster, "kept", "a", "b")
        cluster.etcd.kill()
        shutil.rmtree(tmp_path / "etcd")
        cluster.etcd.start()

        for broker in cluster.brokers.values():
            wait_until_said(broker, "the metadata store has lost data")
        acknowledged(cluster, "kept", "c")
        leader = cluster.leader_of("kept", 0)
        node_id, other = another_than(leader, cluster)
        other.kill()
        done = serve(cluster, other.data_dir, node_id)

        assert done.returncode == 1
        assert "the metadata store is empty, but this broker has data of cluster" in done.stderr.splitlines()[-1]
        assert (other.data_dir / "kept-0" / f"{0:020}.log").stat().st_size > 0
        assert read(cluster, "kept", 3) == ["a", "b", "c"]


async def given_producer_id(broker: ServedBroker) -> int:
    host, port = broker.listen.split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    answer = await client.ask(InitProducerIdRequest(transactional_id=None), 4)
    await client.close()
    assert answer.error_code == 0
    return int(answer.producer_id)


def test_etcd_that_was_put_back_gives_no_producer_id_again(tmp_path: Path) -> None:
    """§13.3.4"""
    given: list[int] = []
    cluster = ClusterProcesses(tmp_path, SETTINGS, brokers=2)
    assert cluster.etcd is not None
    for life in range(3):
        with cluster:
            given += [asyncio.run(given_producer_id(broker)) for broker in cluster.brokers.values()]
        if life == 0:
            shutil.copytree(tmp_path / "etcd", tmp_path / "copy")
        elif life == 1:
            shutil.rmtree(tmp_path / "etcd")
            shutil.copytree(tmp_path / "copy", tmp_path / "etcd")

    assert len(set(given)) == len(given) == 6
    assert any("has been raised" in broker.stderr for broker in cluster.brokers.values())


def follower_fetch(replica_id: int, offset: int) -> FetchRequest:
    """As versions up to 14 send it, by topic name and without an epoch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


def follower_fetch_with_epoch(replica_id: int, epoch: int, topic_id: bytes) -> FetchRequest:
    """As versions from 15 on send it."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=epoch),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


async def answer_of(broker: ServedBroker, request: Any, version: int) -> Any:
    host, _, port = broker.bootstrap.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        return await client.ask(request, version)
    finally:
        await client.close()


def log_end_offset(broker: ServedBroker) -> int:
    return asyncio.run(answer_of(broker, question(ANY_REPLICA), 7)).topics[0].partitions[0].offset


def codes(response: Any) -> tuple[int, list[int]]:
    return response.error_code, [each.error_code for topic in response.responses for each in topic.partitions]


async def test_only_a_broker_is_believed_to_be_a_follower(tmp_path: Path) -> None:
    """§3.4: who could move a follower's position could have records acknowledged that it has not."""
    async with running_with_two_listeners(tmp_path) as (broker, inside, outside):
        await create_topic(inside)
        topic = broker.image.topic("t")
        assert topic is not None
        broker.metadata.image = with_broker(broker.image, BrokerInfo(REPLICA, "nowhere.example", 9092, epoch=41))

        answers = {
            "by another listener": await outside.ask(follower_fetch_with_epoch(REPLICA, 41, topic.topic_id), 17),
            "of an unknown broker": await inside.ask(follower_fetch_with_epoch(STRANGER, 41, topic.topic_id), 17),
            "of the leader itself": await inside.ask(follower_fetch(1, 0), 12),
            "of an earlier life": await inside.ask(follower_fetch_with_epoch(REPLICA, 40, topic.topic_id), 17),
            "without an epoch": await inside.ask(follower_fetch(REPLICA, 0), 12),
        }

    assert {what: codes(answer) for what, answer in answers.items()} == {
        "by another listener": (0, [ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
        "of an unknown broker": (0, [ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        "of the leader itself": (0, [ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        "of an earlier life": (ErrorCode.STALE_BROKER_EPOCH, []),
        "without an epoch": (ErrorCode.STALE_BROKER_EPOCH, []),
    }


def test_a_forged_follower_cannot_have_a_record_acknowledged(tmp_path: Path) -> None:
    """With one listener for everybody."""
    settings = {**SETTINGS, "broker.session.timeout.ms": "30000", "replica.lag.time.max.ms": "30000"}
    with ClusterProcesses(tmp_path, settings, brokers=2) as cluster:
        cluster.create_topic("t", 1, 2)
        leader = cluster.leader_of("t", 0)
        follower_id, follower = another_than(leader, cluster)
        acknowledged(cluster, "t", "seen by both")
        follower.pause()
        try:
            delivered: list[object] = []
            producer = Producer({"bootstrap.servers": leader.listen, "acks": "all", "message.timeout.ms": 60_000})
            producer.produce("t", b"seen by one", on_delivery=lambda error, _: delivered.append(error))
            wait_for(lambda: log_end_offset(leader) == 2, SAID_WITHIN_S, "the record was not written")

            answer = asyncio.run(answer_of(leader, follower_fetch(follower_id, 2), 12))

            assert codes(answer) == (ErrorCode.STALE_BROKER_EPOCH, [])
            producer.poll(0.5)
            assert delivered == []
        finally:
            follower.resume()
        assert producer.flush(30) == 0
        assert delivered == [None]
