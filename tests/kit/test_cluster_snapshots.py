"""Snapshots of three brokers: a restore gives all replicas of a partition what its leader had."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.storage.log import Log
from ottla.testing import SnapshotError
from ottla.testing.audit.findings import Blame
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.clusters import Replicated, outcome
from tests.kit.members import consumer, polled, send

pytest_plugins = ("pytester",)


@pytest.fixture(autouse=True)
def no_snapshots(shared_cluster: Testbed) -> Iterator[None]:
    yield
    shared_cluster.call(shared_cluster.remove_snapshots)


@pytest.fixture
def bed(shared_cluster: Testbed) -> Testbed:
    return shared_cluster


def logs_of(bed: Testbed, topic: str = "orders") -> dict[int, Log]:
    """By node id."""
    found = {node_id: parts.replicas.find(topic, 0) for node_id, parts in bed.hosted.parts().items()}
    return {node_id: replica.log for node_id, replica in found.items() if replica is not None}


def batches(log: Log) -> bytes:
    return bytes(log.read(0, 1 << 24, log.log_end_offset, wait=True).records)


def of_broker(kafka: Kafka) -> list[list[str]]:
    return [each.lines() for each in kafka.audit() if each.kind.blame is Blame.BROKER]


def test_all_replicas_have_the_state_of_the_snapshot(cluster: Replicated, bed: Testbed) -> None:
    kafka = cluster.kafka
    kafka.snapshot("one")
    before = kafka.records("orders"), kafka.topic("orders").describe().partitions[0].leader_epoch
    send(kafka, "orders", b"ghost", acks="all")
    kafka.create_topic("other", 2)

    restored = kafka.restore("one")

    assert restored.topics == 2
    assert kafka.topics == ["orders"]
    assert kafka.records("orders") == before[0]
    logs = logs_of(bed)
    assert sorted(logs) == [0, 1, 2]
    assert len({batches(log) for log in logs.values()}) == 1
    assert cluster.partition.leader == cluster.leader
    assert cluster.partition.describe().leader_epoch > before[1]
    kafka.wait_until_in_sync("orders")
    send(kafka, "orders", b"next", acks="all")
    with consumer(kafka, "readers", "orders") as made:
        assert polled(made, 2) == [b"first", b"next"]
    assert of_broker(kafka) == []


def test_topics_that_changed_on_no_replica_stay(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.create_topic("other", 1)
    kafka.wait_until_in_sync("other")
    kafka.snapshot("one")
    kafka.produce("other", [b"x"])
    before = kafka.topic("orders").describe()

    assert kafka.restore("one").topics == 1

    assert kafka.topic("orders").describe() == before
    assert kafka.restore("one").topics == 0
    cluster.partition.move_leader(to=cluster.followers[0])
    assert kafka.restore("one").topics == 1
    assert cluster.partition.leader == cluster.leader


def test_brokers_links_and_disks_are_healed_first(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.snapshot("one")
    one, other = cluster.followers
    kafka.links.cut(one, to=other)
    kafka.disk(one).full()
    kafka.brokers[cluster.leader].kill()
    cluster.wait_for_another_leader()
    kafka.brokers[other].pause()

    kafka.restore("one")

    assert all(each.is_running for each in kafka.brokers.values())
    assert cluster.partition.leader == cluster.leader
    assert cluster.values() == [b"first"]
    kafka.wait_until_in_sync("orders")
    assert outcome(kafka) == "ok"


def test_brokers_that_are_down_at_the_snapshot_get_it_too(cluster: Replicated, bed: Testbed) -> None:
    kafka = cluster.kafka
    late = cluster.followers[0]
    kafka.brokers[late].kill()
    send(kafka, "orders", b"without it")
    kafka.snapshot("one")

    kafka.restore("one")

    assert sorted(logs_of(bed)) == [0, 1, 2]
    assert batches(logs_of(bed)[late]) == batches(logs_of(bed)[cluster.leader])
    kafka.wait_until_in_sync("orders")
    cluster.partition.move_leader(to=late)
    kafka.wait_for_records("orders", 2)
    assert cluster.values() == [b"first", b"without it"]


def test_follower_that_lags_has_the_leaders_records(cluster: Replicated, bed: Testbed) -> None:
    kafka, late = cluster.kafka, cluster.followers[0]
    kafka.links.cut(cluster.leader, to=late)
    kafka.produce("orders", [b"only at the leader"], acks=1)
    kafka.snapshot("one")

    kafka.restore("one")

    assert batches(logs_of(bed)[late]) == batches(logs_of(bed)[cluster.leader])
    kafka.wait_for_records("orders", 2)
    assert cluster.values() == [b"first", b"only at the leader"]
    assert kafka.restore("one").topics == 0


def test_partition_without_a_leader_is_named(cluster: Replicated, bed: Testbed) -> None:
    kafka = cluster.kafka
    kafka.create_topic("alone", 1, replication_factor=1, configs={"min.insync.replicas": 1})
    alone = kafka.partition("alone", 0)
    leader = alone.leader
    assert leader is not None
    kafka.brokers[leader].kill()
    kafka.wait(lambda _: alone.leader is None, describe="it has no leader")

    with pytest.raises(SnapshotError, match="alone-0 has no leader at the moment"):
        kafka.snapshot("one")

    assert bed.snapshots.names == []


def test_groups_and_transactions_come_back(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.produce("orders", [b"second", b"third"])
    config = {"enable.auto.commit": False, "client.id": "reader"}
    with consumer(kafka, "shop", "orders", **config) as shop:
        polled(shop, 2)
        shop.commit(asynchronous=False)
    committed = dict(kafka.group("shop").offsets)
    till = Producer(kafka.client_config("producer") | {"transactional.id": "till", "log_level": 0})
    till.init_transactions(20)
    till.begin_transaction()
    till.produce("orders", b"open")
    assert till.flush(20) == 0
    kafka.snapshot("one")
    till.commit_transaction(20)
    with consumer(kafka, "shop", "orders", **config) as shop:
        polled(shop, 2)
        shop.commit(asynchronous=False)

    kafka.restore("one")

    group = kafka.group("shop").describe()
    assert (group.state, group.members, dict(group.offsets)) == ("Empty", (), committed)
    assert cluster.values() == [b"first", b"second", b"third"]
    again = Producer(kafka.client_config("producer") | {"transactional.id": "till", "log_level": 0})
    again.init_transactions(20)
    kafka.wait(lambda _: _is_stable(cluster), describe="the transaction is aborted")
    with consumer(kafka, "shop", "orders", **config) as shop:
        assert polled(shop, 1) == [b"third"]
    assert of_broker(kafka) == []
    del till


def _is_stable(cluster: Replicated) -> bool:
    view = cluster.partition.describe()
    return view.last_stable_offset == view.high_watermark


def test_no_two_logs_share_a_file(cluster: Replicated, bed: Testbed) -> None:
    kafka = cluster.kafka
    for number in range(3):
        kafka.produce("orders", [b"%d" % number * 500])
        kafka.wait_until_in_sync("orders")
        for log in logs_of(bed).values():
            bed.call(log.roll)
    kafka.produce("orders", [b"last"])
    before = kafka.records("orders")
    kafka.snapshot("one")
    for _ in range(2):
        kafka.produce("orders", [b"ghost"])

        kafka.restore("one")

        files = [path.stat().st_ino for log in logs_of(bed).values() for path in log.directory.iterdir()]
        assert len(set(files)) == len(files)
        for node_id, log in logs_of(bed).items():
            # Each cuts its own, as a failing disk does, and no other has lost anything.
            others = [batches(each) for other, each in logs_of(bed).items() if other > node_id]
            _cut(bed, log, log.segments[1].base_offset + 1)
            assert [batches(each) for other, each in logs_of(bed).items() if other > node_id] == others
        # Brokers whose logs were cut behind their backs may find each other out of sync.
        kafka.restore("one")
        assert kafka.records("orders") == before


def _cut(bed: Testbed, log: Log, offset: int) -> None:
    bed.call(log.truncate_to, offset)


def test_modes_of_tests_restore_the_seed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    pytester.path.joinpath("shop.json").write_text(
        '{"topics": {"orders": {"records": [{"value": "book"}]}, "other": 1}}'
    )
    pytester.makepyfile(
        """
        import pytest

        found = []

        @pytest.mark.kafka(seed="shop.json", isolation="snapshot")
        @pytest.mark.parametrize("n", range(3))
        def test_finds_the_seed(kafka_cluster, n):
            assert [record.value for record in kafka_cluster.records("orders")] == [b"book"]
            found.append(kafka_cluster.topic("other").describe().topic_id)
            kafka_cluster.produce("orders", [b"mine"])
            if n == 1:
                kafka_cluster.brokers[1].kill()

        def test_what_no_test_changed_has_stayed():
            assert found[0] == found[1]
        """
    )

    result: Any = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.assert_outcomes(passed=4)
