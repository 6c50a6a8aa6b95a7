"""Transactions of a real client while brokers of a cluster are killed or shut down around them."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from ottla.broker.replicas.transaction_verification import PendingVerification
from ottla.cluster.image import TRANSACTION_STATE
from ottla.testing.faults.actions import Error
from tests.broker.clusters import QUICK_SESSIONS
from tests.clients.test_confluent_kafka import consumer, producer
from tests.clients.test_librdkafka_transactions import TO_THE_END, described, until_end
from tests.waiting import wait_for

WAIT_S = 60
SETTINGS = QUICK_SESSIONS | {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "replica.fetch.wait.max.ms": "100",
}
# Clients that look for the next leader at once, and often.
PROMPT = {"reconnect_backoff_max_ms": 200, "topic_metadata_refresh_interval_ms": 500, "linger_ms": 0}


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread(brokers=3, settings=SETTINGS, log_level="error") as cluster:
        yield cluster


def create(cluster: ClusterThread, *replicas: list[int], **config: str) -> None:
    """Topic `t` with these replicas of each partition, the first to lead."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", len(replicas), replica_assignment=list(replicas), config=named)])["t"].result(20)


def transactional(cluster: Any, name: str = "tx") -> Producer:
    sender = producer(cluster, transactional_id=name, **PROMPT)
    sender.init_transactions(WAIT_S)
    return sender


def send(sender: Producer, value: str, partition: int) -> None:
    sender.produce("t", value, partition=partition)
    assert sender.flush(WAIT_S) == 0


def read(cluster: Any, partition: int) -> list[bytes]:
    """Committed records, up to where a reader may read."""
    reader = consumer(cluster, "readers", isolation_level="read_committed", **TO_THE_END)
    try:
        return until_end(reader, TopicPartition("t", partition, 0))
    finally:
        reader.close()


def wait_until_read(cluster: Any, partition: int, *expected: bytes) -> None:
    """A transaction that was committed is seen when its markers have been written."""
    seen: list[bytes] = []

    def all_there() -> bool:
        seen[:] = read(cluster, partition)
        return seen == list(expected)

    wait_for(all_there, WAIT_S, lambda: f"{seen} is read from partition {partition}, expected is {expected}")


def in_sync(cluster: ClusterThread, topic: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return set(admin.list_topics(topic, WAIT_S).topics[topic].partitions[0].isrs)


def test_tx13_killed_coordinator_loses_no_transaction(cluster: ClusterThread) -> None:
    """The next coordinator has the partition that was added, adds others and ends the transaction in all of them."""
    create(cluster, [0, 1, 2], [1, 2, 0], [2, 0, 1])
    sender = transactional(cluster)
    sender.begin_transaction()
    send(sender, "before", 0)
    before = described(cluster)
    coordinator = cluster.leader_of(TRANSACTION_STATE, 0)

    cluster.kill(coordinator)
    for partition in (1, 2):
        send(sender, "after", partition)
    sender.commit_transaction(WAIT_S)

    for partition, value in enumerate((b"before", b"after", b"after")):
        wait_until_read(cluster, partition, value)
    assert cluster.leader_of(TRANSACTION_STATE, 0) not in (None, coordinator)
    assert (described(cluster).producer_id, before.state.name) == (before.producer_id, "ONGOING")


@pytest.mark.parametrize("goes", ["killed", "shut down"])
def test_tx15_open_transaction_goes_on_with_the_next_leader(
    cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    """The next leader has the transaction open by its own log, so it asks no coordinator."""
    create(cluster, [0, 1, 2])
    sender = transactional(cluster)
    sender.begin_transaction()
    send(sender, "before", 0)
    questions: list[PendingVerification] = []
    ask = PendingVerification._ask
    monkeypatch.setattr(PendingVerification, "_ask", lambda self: (questions.append(self), ask(self)))

    (cluster.kill if goes == "killed" else cluster.shut_down)(0)
    send(sender, "after", 0)
    assert questions == []
    sender.commit_transaction(WAIT_S)

    wait_until_read(cluster, 0, b"before", b"after")
    sender.begin_transaction()
    send(sender, "next", 0)
    sender.commit_transaction(WAIT_S)
    assert len(questions) == 1
    wait_until_read(cluster, 0, b"before", b"after", b"next")


def test_tx16_markers_wait_for_a_partition_with_too_few_in_sync(cluster: ClusterThread) -> None:
    """The decision is answered at once. The next transaction begins when the marker of the one before is written."""
    leader, follower, _ = cluster.node_ids
    create(cluster, [leader, follower], min_insync_replicas="2")
    sender = transactional(cluster)
    sender.begin_transaction()
    send(sender, "first", 0)
    cluster.kill(follower)
    wait_for(lambda: in_sync(cluster, "t") == {leader}, WAIT_S, "the follower is still in sync")

    sender.commit_transaction(WAIT_S)
    assert described(cluster).state.name == "PREPARE_COMMIT"
    assert read(cluster, 0) == []
    sender.begin_transaction()
    sender.produce("t", "second", partition=0)
    assert sender.flush(2) == 1
    assert described(cluster).state.name == "PREPARE_COMMIT"

    cluster.restart(follower)
    wait_until_read(cluster, 0, b"first")
    assert sender.flush(WAIT_S) == 0
    sender.commit_transaction(WAIT_S)
    wait_until_read(cluster, 0, b"first", b"second")


def test_tx17_epochs_last_while_the_coordinator_cannot_store(cluster: ClusterThread) -> None:
    """With too few replicas of its log in sync it stores no epoch, however often the client asks."""
    create(cluster, [0, 1, 2])
    first = transactional(cluster)
    epoch = described(cluster).producer_epoch
    coordinator = cluster.leader_of(TRANSACTION_STATE, 0)
    for node_id in cluster.node_ids:
        if node_id != coordinator:
            cluster.kill(node_id)
    wait_for(lambda: in_sync(cluster, TRANSACTION_STATE) == {coordinator}, WAIT_S, "followers are still in sync")

    second = producer(cluster, transactional_id="tx", **PROMPT)
    with pytest.raises(KafkaException) as refused:
        second.init_transactions(3)
    assert refused.value.args[0].retriable()
    for node_id in {0, 1, 2} - {coordinator}:
        cluster.restart(node_id)
    second.init_transactions(WAIT_S)

    assert described(cluster).producer_epoch == epoch + 1
    second.begin_transaction()
    send(second, "second", 0)
    second.commit_transaction(WAIT_S)
    wait_until_read(cluster, 0, b"second")
    del first


def placed_apart(cluster: ClusterThread) -> tuple[int, int]:
    """The coordinator of `tx`, and another broker that leads the only partition of `t`."""
    sender = transactional(cluster)
    coordinator = cluster.leader_of(TRANSACTION_STATE, 0)
    assert coordinator is not None
    leader, other = (node_id for node_id in cluster.node_ids if node_id != coordinator)
    create(cluster, [leader, other, coordinator])
    del sender
    return coordinator, leader


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("killed", ["TX12 the coordinator", "TX14 the leader"])
def test_decided_transaction_ends_though_a_broker_is_killed(
    cluster: ClusterThread, killed: str, *, commits: bool
) -> None:
    """Between the answer to EndTxn and the marker: the next coordinator writes it, or the next leader gets it."""
    coordinator, leader = placed_apart(cluster)
    sender = transactional(cluster)
    for value, ends in (("kept", sender.commit_transaction), ("dropped", sender.abort_transaction)):
        sender.begin_transaction()
        send(sender, value, 0)
        ends(WAIT_S)
    wait_until_read(cluster, 0, b"kept")
    sender.begin_transaction()
    send(sender, "decided", 0)
    refused = Error("NOT_ENOUGH_REPLICAS")
    with cluster.faults.fault(api="WriteTxnMarkers", peer="broker", do=refused, times="unlimited") as rule:
        (sender.commit_transaction if commits else sender.abort_transaction)(WAIT_S)
        rule.wait(hits=1, within=WAIT_S)
        assert described(cluster).state.name == ("PREPARE_COMMIT" if commits else "PREPARE_ABORT")
        assert read(cluster, 0) == [b"kept"]
        cluster.kill(coordinator if "TX12" in killed else leader)

    expected = [b"kept", b"decided"] if commits else [b"kept"]
    wait_until_read(cluster, 0, *expected)
    sender.begin_transaction()
    send(sender, "next", 0)
    sender.commit_transaction(WAIT_S)
    wait_until_read(cluster, 0, *expected, b"next")


@pytest.mark.parametrize("goes", ["killed", "shut down"])
def test_tx28_transactions_go_on_when_all_brokers_were_down(cluster: ClusterThread, goes: str) -> None:
    """One is open, the markers of the other are not written yet."""
    coordinator, _ = placed_apart(cluster)
    undecided, decided = transactional(cluster, "tx"), transactional(cluster, "decided")
    for sender in (undecided, decided):
        sender.begin_transaction()
        send(sender, "before", 0)
    refused = Error("NOT_ENOUGH_REPLICAS")
    with cluster.faults.fault(api="WriteTxnMarkers", peer="broker", do=refused, times="unlimited") as rule:
        decided.commit_transaction(WAIT_S)
        rule.wait(hits=1, within=WAIT_S)
        for node_id in (coordinator, *(each for each in cluster.node_ids if each != coordinator)):
            (cluster.kill if goes == "killed" else cluster.shut_down)(node_id)
    for node_id in range(3):
        cluster.restart(node_id)

    send(undecided, "after", 0)
    undecided.commit_transaction(WAIT_S)

    wait_until_read(cluster, 0, b"before", b"before", b"after")
    for sender in (undecided, decided):
        sender.begin_transaction()
        send(sender, "next", 0)
        sender.commit_transaction(WAIT_S)
    wait_until_read(cluster, 0, b"before", b"before", b"after", b"next", b"next")
