"""Kills that are power cuts: what was never synced is gone, what is replicated is not, and the audit says why."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from ottla.broker.config.options import ConfigError
from ottla.broker.upkeep.data_directory import BOOT_ID
from ottla.testing import DiskError
from ottla.testing.audit.findings import AuditFinding, Blame
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed
from tests.kit.clusters import Replicated
from tests.kit.members import consumer, polled, send

pytest_plugins = ("pytester",)


@pytest.fixture(scope="module")
def unsynced_bed() -> Iterator[Testbed]:
    bed = Testbed(brokers=3, settings=cluster_settings(3), deadline=30, unsynced=True)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture
def bed(unsynced_bed: Testbed) -> Iterator[Testbed]:
    yield unsynced_bed
    unsynced_bed.run(unsynced_bed.reset())
    unsynced_bed.call(unsynced_bed.remove_snapshots)


@pytest.fixture
def kafka(bed: Testbed) -> Kafka:
    return Kafka(bed)


def values(kafka: Kafka, topic: str, **options: Any) -> list[bytes | None]:
    return [record.value for record in kafka.records(topic, **options)]


def of_broker(kafka: Kafka) -> list[AuditFinding]:
    return [each for each in kafka.audit() if each.kind.blame is Blame.BROKER]


def steps(bed: Testbed, what: str) -> list[str]:
    return [each.what for each in bed.call(bed.steps.since_clear) if what in each.what]


def unreplicated(kafka: Kafka, **configs: object) -> int:
    """A topic `alone` with one replica: the broker that has it."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    kafka.create_topic("alone", 1, replication_factor=1, configs={"min.insync.replicas": 1, **named})
    leader = kafka.partition("alone", 0).leader
    assert leader is not None
    return leader


def cut_power(kafka: Kafka, *node_ids: int) -> None:
    """Of these brokers at once; then they start again."""
    for node_id in node_ids:
        kafka.disk(node_id).lose_unsynced()
    for node_id in node_ids:
        kafka.brokers[node_id].kill()
    for node_id in node_ids:
        kafka.brokers[node_id].restart()


def test_leader_without_power_loses_no_acknowledged_record(kafka: Kafka, bed: Testbed) -> None:
    cluster = Replicated(kafka)
    send(kafka, "orders", b"a", b"b", acks="all")

    cut_power(kafka, cluster.leader)

    (lost,) = steps(bed, "bytes of records")
    assert "orders-0" in lost
    kafka.wait_until_in_sync("orders")
    cluster.partition.move_leader(to=cluster.leader)
    kafka.wait_for_records("orders", 3)
    assert cluster.values() == [b"first", b"a", b"b"]
    assert of_broker(kafka) == []


def test_power_cuts_one_after_another_lose_and_double_nothing(kafka: Kafka) -> None:
    """While a producer writes and a group reads."""
    cluster = Replicated(kafka)
    config = {"enable.idempotence": True, "log_level": 0, "message.timeout.ms": 60_000}
    producer = Producer(kafka.client_config("producer") | config)
    sent = [b"first"]
    with consumer(kafka, "shop", "orders", **{"client.id": "reader"}) as made:
        for number in range(4):
            more = [b"%d-%d" % (number, each) for each in range(25)]
            for value in more:
                producer.produce("orders", value)
                producer.poll(0)
            leader = cluster.partition.leader
            assert leader is not None
            cut_power(kafka, leader if number % 2 else cluster.followers[0])
            assert producer.flush(60) == 0
            kafka.wait_until_in_sync("orders")
            sent += more
        assert polled(made, len(sent)) == sent
        made.commit(asynchronous=False)

    kafka.wait_for_records("orders", len(sent))
    assert values(kafka, "orders") == sent
    assert of_broker(kafka) == []
    del producer


def test_only_replica_without_power_loses_what_was_not_synced(kafka: Kafka) -> None:
    leader = unreplicated(kafka)
    send(kafka, "alone", b"a", b"b", acks="all")

    cut_power(kafka, leader)

    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == []
    found = of_broker(kafka)
    assert {(each.kind.name, each.where, each.explained_by) for each in found} == {
        ("B1", "alone-0", f"lose_unsynced on broker {leader}")
    }
    assert not any(each.is_error("all") for each in found)


def test_synced_records_survive(kafka: Kafka) -> None:
    leader = unreplicated(kafka, flush_messages=1)
    send(kafka, "alone", b"a", b"b", acks="all")

    cut_power(kafka, leader)

    # Committed is what a start finds when it has synced it.
    kafka.wait_for_records("alone", 2)
    assert values(kafka, "alone") == [b"a", b"b"]
    assert of_broker(kafka) == []


def test_kill_without_it_loses_nothing(kafka: Kafka) -> None:
    leader = unreplicated(kafka)
    send(kafka, "alone", b"a", acks="all")
    kafka.brokers[leader].kill()
    kafka.brokers[leader].restart()
    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == [b"a"]

    # What a process has left to the kernel is still not synced.
    kafka.brokers[leader].kill()
    kafka.disk(leader).lose_unsynced()
    kafka.brokers[leader].restart()

    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == []


def test_clean_stop_has_synced_everything(kafka: Kafka, bed: Testbed) -> None:
    leader = unreplicated(kafka)
    send(kafka, "alone", b"a", acks="all")
    kafka.brokers[leader].stop()
    kafka.disk(leader).lose_unsynced()
    kafka.brokers[leader].restart()

    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == [b"a"]
    assert steps(bed, "lose_unsynced") == [f"disk {leader}: lose_unsynced, 0 bytes of records"]


def test_sync_that_waits_for_the_disk_is_lost(kafka: Kafka) -> None:
    leader = unreplicated(kafka, flush_messages=1)
    send(kafka, "alone", b"a", acks="all")
    kafka.disk(leader).stall()
    producer = Producer(kafka.client_config("producer") | {"acks": "all", "log_level": 0})
    producer.produce("alone", b"b")
    kafka.wait(
        lambda kafka: [each.value for each in kafka.records("alone", isolation="log")] == [b"a", b"b"],
        describe="it is written",
    )

    kafka.disk(leader).lose_unsynced()
    kafka.brokers[leader].kill()
    producer.purge()
    kafka.disk(leader).heal()
    kafka.brokers[leader].restart()

    kafka.wait_for_records("alone", 1)
    assert values(kafka, "alone") == [b"a"]
    assert values(kafka, "alone", isolation="log") == [b"a"]
    assert of_broker(kafka) == []


def test_power_cut_of_all_brokers_is_explained(kafka: Kafka) -> None:
    Replicated(kafka)
    send(kafka, "orders", b"a", b"b", acks="all")
    config = {"enable.auto.commit": False, "client.id": "reader"}
    with consumer(kafka, "shop", "orders", **config) as made:
        polled(made, 3)
        made.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)

    cut_power(kafka, *kafka.brokers)

    kafka.wait_until_in_sync("orders")
    kafka.wait_until_in_sync("__consumer_offsets")
    assert values(kafka, "orders") == []
    found = of_broker(kafka)
    assert {(each.kind.name, each.where) for each in found} >= {("B1", "orders-0"), ("B1", "shop orders-0")}
    assert [each.lines() for each in found if not (each.explained_by or "").startswith("lose_unsynced on broker")] == []
    send(kafka, "orders", b"again", acks="all")
    assert values(kafka, "orders") == [b"again"]


def test_reset_and_restart_do_not_lose_it_again(kafka: Kafka) -> None:
    kafka.disk(0).lose_unsynced()
    kafka.disk(0).heal()
    leader = unreplicated(kafka)
    kafka.disk(leader).lose_unsynced()
    kafka.brokers[leader].restart()
    send(kafka, "alone", b"a")
    assert values(kafka, "alone") == [b"a"]

    kafka.reset()

    leader = unreplicated(kafka)
    send(kafka, "alone", b"a")
    kafka.brokers[leader].kill()
    kafka.brokers[leader].restart()
    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == [b"a"]


def test_what_a_restore_gives_survives_a_power_cut(kafka: Kafka) -> None:
    leader = unreplicated(kafka)
    kafka.produce("alone", [b"kept"])
    kafka.snapshot("one")
    kafka.produce("alone", [b"later"])
    kafka.restore("one")
    kafka.produce("alone", [b"not synced"])

    cut_power(kafka, leader)

    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == [b"kept"]
    kafka.restore("one")
    assert values(kafka, "alone") == [b"kept"]


def test_machine_has_started_again(kafka: Kafka, bed: Testbed) -> None:
    """Else a broker takes what its kernel had for what its disk has."""
    (data_dir,) = {parts.log_directory.path.parent for parts in bed.hosted.parts().values()}
    kept = data_dir / "broker-1" / BOOT_ID
    before = kept.read_text()
    kafka.reset()
    kafka.brokers[1].kill()
    kafka.brokers[1].restart()
    assert kept.read_text() == before

    cut_power(kafka, 1)

    kafka.wait_until_in_sync("__consumer_offsets")
    kafka.wait(lambda _: kept.exists() and kept.read_text() != before, describe="it knows of another boot")


def test_full_journal_is_said(kafka: Kafka, bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    (journal,) = [each for each in [bed._around.disks[1].journal] if each is not None]  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(journal, "_held_bytes_max", -1)
    bed.call(lambda: journal._hold(0))  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(DiskError, match="more than 64 MiB was removed or cut off"):
        kafka.disk(1).lose_unsynced()
    assert steps(bed, "not synced") != []
    monkeypatch.undo()
    kafka.reset()
    kafka.disk(1).lose_unsynced()


def test_brokers_without_the_journal_say_what_they_need(cluster: Replicated) -> None:
    with pytest.raises(DiskError, match=r"@pytest\.mark\.kafka\(unsynced=True\)"):
        cluster.kafka.disk(0).lose_unsynced()
    with pytest.raises(ConfigError, match="unsynced=True is of several brokers"):
        Testbed(unsynced=True)


def test_torn_and_damaged_logs_explain_findings(cluster: Replicated) -> None:
    kafka = cluster.kafka
    leader = unreplicated(kafka)
    send(kafka, "alone", b"a", acks="all")
    kafka.brokers[leader].kill()
    kafka.disk(leader).tear_tail(1000, match="alone-*")
    kafka.brokers[leader].restart()

    kafka.wait_until_leader("alone", 0)
    assert values(kafka, "alone") == []
    assert {each.explained_by for each in of_broker(kafka)} == {f"tear_tail on broker {leader}"}


def test_marker_and_notes_of_the_audit(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(
        """
    import pytest
    from confluent_kafka import Producer

    @pytest.mark.kafka(unsynced=True)
    def test_power_cut(kafka_cluster):
        kafka = kafka_cluster
        kafka.create_topic("orders", 1, replication_factor=1, configs={"min.insync.replicas": 1})
        producer = Producer(kafka.client_config("producer"))
        producer.produce("orders", b"book")
        assert producer.flush(10) == 0
        del producer
        leader = kafka.partition("orders", 0).leader
        kafka.disk(leader).lose_unsynced()
        kafka.brokers[leader].kill()
        kafka.brokers[leader].restart()
        kafka.wait_until_leader("orders", 0, within=20)
        assert kafka.records("orders") == []
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"ottla: audit: 1 B1.* in 1 tests", r".*explained by lose_unsynced on broker \d"])
