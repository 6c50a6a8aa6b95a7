"""A snapshot is the state of a broker at one moment, and a restore gives it again."""

import asyncio
from statistics import median
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing import SnapshotError
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.members import busy_member, consumer, polled, send


def values(handle: Kafka, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in handle.records(topic)]


def test_state_of_the_snapshot_is_there_again(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2, configs={"retention.ms": 9_000_000})
    handle.create_topic("empty", partitions=1)
    handle.produce("orders", [(b"alice", b"book"), (b"bob", b"pen")])
    before = handle.records("orders")
    report = handle.snapshot("seeded")
    handle.produce("orders", [b"ghost"])
    handle.topic("empty").delete()
    handle.create_topic("other", partitions=1)

    restored = handle.restore("seeded")

    assert (report.name, report.partitions) == ("seeded", 3)
    assert (restored.name, restored.topics, restored.leaks) == ("seeded", 3, ())
    assert handle.topics == ["empty", "orders"]
    assert handle.records("orders") == before
    assert handle.topic("orders").describe().configs == {"retention.ms": "9000000"}
    handle.produce("orders", [b"next"])
    assert b"next" in values(handle)


def test_topics_that_did_not_change_stay(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.create_topic("other", partitions=1)
    handle.snapshot("seeded")
    before = handle.topic("orders").describe(), handle.topic("other").describe()
    handle.produce("other", [b"x"])

    assert handle.restore("seeded").topics == 1

    after = handle.topic("orders").describe(), handle.topic("other").describe()
    assert after[0] == before[0]
    assert after[1].topic_id != before[1].topic_id
    assert after[1].partitions[0].leader_epoch > before[1].partitions[0].leader_epoch
    assert handle.restore("seeded").topics == 0


def test_snapshots_outlive_resets_and_each_other(handle: Kafka) -> None:
    handle.produce("orders", [b"a"])
    handle.snapshot("one")
    handle.produce("orders", [b"b"])
    handle.snapshot("two")

    found: list[list[bytes | None]] = []
    for name in ("one", "two", "one"):
        handle.reset()
        handle.restore(name)
        found.append(values(handle))

    assert found == [[b"a"], [b"a", b"b"], [b"a"]]


def test_snapshot_of_the_same_name_takes_its_place(handle: Kafka, bed: Testbed) -> None:
    handle.produce("orders", [b"a"])
    handle.snapshot("seeded")
    handle.produce("orders", [b"b"])
    handle.snapshot("seeded")
    handle.reset()

    handle.restore("seeded")

    assert values(handle) == [b"a", b"b"]
    assert bed.snapshots.names[-1] == "seeded"


def test_mistakes_are_said_in_a_sentence(handle: Kafka) -> None:
    handle.snapshot("seeded")
    with pytest.raises(SnapshotError, match=r"there is no snapshot 'sedeed': .*'seeded'"):
        handle.restore("sedeed")
    with pytest.raises(SnapshotError, match="members='all': expected one of leave, keep"):
        handle.restore("seeded", members="all")


def test_coroutines_have_the_same(handle: Kafka, bed: Testbed) -> None:
    async def test() -> list[bytes | None]:
        kafka = KafkaAsync(bed)
        await kafka.produce("orders", [b"a"])
        await kafka.snapshot("seeded")
        await kafka.produce("orders", [b"b"])
        await kafka.restore("seeded")
        return [record.value for record in await kafka.records("orders")]

    assert asyncio.run(test()) == [b"a"]


def test_groups_come_back_empty_with_their_offsets(handle: Kafka) -> None:
    handle.produce("orders", [b"a", b"b", b"c"], partition=0)
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as shop:
        polled(shop, 2)
        shop.commit(asynchronous=False)
        generation = handle.group("shop").generation
        handle.snapshot("seeded")
        committed = dict(handle.group("shop").offsets)
        polled(shop, 1)
        shop.commit(asynchronous=False)

        (leak,) = {each.groups for each in handle.restore("seeded").leaks if each.groups}

        group = handle.group("shop").describe()
        assert (leak, group.state, group.members, dict(group.offsets)) == (("shop",), "Empty", (), committed)
        assert group.generation > generation


def test_offsets_stay_where_only_their_topic_is_replaced(handle: Kafka) -> None:
    """A topic that is deleted takes the offsets of groups with it; the restore of one must not."""
    handle.produce("orders", [b"a"] * 3, partition=0)
    handle.load({"groups": {"shop": {"offsets": {"orders": {"0": 2}}}}})
    handle.snapshot("seeded")
    handle.produce("orders", [b"later"], partition=0)

    assert handle.restore("seeded").topics == 1

    assert handle.group("shop").offsets == {("orders", 0): 2}
    handle.produce("orders", [b"later"], partition=0)
    handle.restore("seeded")
    assert handle.group("shop").offsets == {("orders", 0): 2}


def test_restores_under_a_busy_group_leave_no_trace(bed: Testbed, handle: Kafka) -> None:
    """While members join, commit and leave. No error of the broker, and the last state is that of the snapshot."""
    handle.create_topic("orders", partitions=1)
    handle.load({"groups": {"idle": {"offsets": {"orders": {"0": 0}}}}})
    handle.snapshot("seeded")

    with busy_member(handle, "orders"):
        for number in range(60):
            if number % 10 == 0:
                handle.group("busy").wait_until_stable(members=1)
            handle.produce("orders", [b"x"])
            handle.restore("seeded")
            assert handle.records("orders") == []

    handle.restore("seeded")
    (parts,) = bed.hosted.parts().values()
    assert (handle.groups, handle.connections) == (["idle"], [])
    assert parts.runtime.unhandled_errors == 0
    assert [line for line in bed.hosted.log_lines.since(0) if "error" in line.lower()] == []


def test_members_can_be_kept(handle: Kafka) -> None:
    """Their sessions begin again, and their client goes on."""
    handle.produce("orders", [b"a"], partition=0)
    with consumer(handle, "shop", "orders") as shop:
        polled(shop, 1)
        before = handle.group("shop").describe()
        handle.snapshot("seeded")

        handle.restore("seeded", members="keep")

        after = handle.group("shop").describe()
        assert (after.state, after.generation) == (before.state, before.generation)
        assert [each.member_id for each in after.members] == [each.member_id for each in before.members]
        handle.produce("orders", [b"b"], partition=0)
        assert polled(shop, 1) == [b"b"]


def test_open_transaction_comes_back_open(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    config = handle.client_config("producer") | {"transactional.id": "till", "log_level": 0}
    till = Producer(config)
    till.init_transactions(20)
    till.begin_transaction()
    till.produce("orders", b"pending")
    till.flush(20)
    handle.snapshot("open")
    till.commit_transaction(20)
    assert values(handle) == [b"pending"]

    handle.restore("open")

    assert values(handle) == []
    assert [record.value for record in handle.records("orders", isolation="read_uncommitted")] == [b"pending"]
    assert handle.topic("orders").partitions[0].last_stable_offset == 0
    # Another producer with the id ends it, as after a crash.
    Producer(config).init_transactions(20)
    handle.wait(lambda k: k.topic("orders").partitions[0].last_stable_offset == 2, describe="the abort", within=20)
    assert values(handle) == []


def test_configs_and_rules_are_those_of_the_snapshot(handle: Kafka) -> None:
    def described() -> str:
        admin = AdminClient({"bootstrap.servers": handle.bootstrap, "log_level": 0})
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "0")]).values()
        shown: str = found.result(20)["log.retention.ms"].value
        return shown

    def alter(value: str) -> None:
        admin = AdminClient({"bootstrap.servers": handle.bootstrap, "log_level": 0})
        entry = ConfigEntry("log.retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(20)

    alter("7000000")
    handle.fault(api="Produce", topic="orders", do={"delay": 1}, id="slow", optional=True)
    handle.snapshot("seeded")
    alter("8000000")
    handle.faults.clear()

    handle.restore("seeded")

    assert described() == "7000000"
    assert [fault.id for fault in handle.faults] == ["slow"]
    handle.faults.clear()


def test_rules_that_name_a_removed_one_come_back(handle: Kafka) -> None:
    """It keeps its hits; those that were there begin again."""
    for topic in ("orders", "bills"):
        handle.create_topic(topic, partitions=1)
    with handle.fault(id="gone", api="Produce", do="observe"):
        handle.fault(id="orders", api="Produce", topic="orders", after="gone", do="observe")
        handle.fault(id="bills", api="Produce", topic="bills", after="orders", do="observe")
        for topic in ("orders", "bills"):
            send(handle, topic, b"a")
    handle.snapshot("removed")

    handle.restore("removed")

    hits: list[tuple[int, ...]] = []
    for topic in ("bills", "orders", "bills"):
        send(handle, topic, b"b")
        hits.append(tuple(fault.hits for fault in handle.faults))
    assert hits == [(0, 0), (1, 0), (1, 1)]
    handle.faults.clear()


def test_no_id_is_used_twice_after_a_restore(handle: Kafka) -> None:
    """Topic ids, members, generations, leader epochs, and the ids of new producers."""
    handle.create_topic("orders", partitions=1)
    send(handle, "orders", b"seed", **{"enable.idempotence": True})
    handle.snapshot("seeded")
    seen: list[tuple[Any, ...]] = []
    for _ in range(3):
        send(handle, "orders", b"x", **{"enable.idempotence": True})
        with consumer(handle, "shop", "orders") as shop:
            polled(shop, 2)
            group, topic = handle.group("shop").describe(), handle.topic("orders").describe()
            record = handle.records("orders")[-1]
            seen.append(
                (
                    group.generation,
                    topic.partitions[0].leader_epoch,
                    record.producer_id,
                    group.members[0].member_id,
                    topic.topic_id,
                )
            )
        handle.restore("seeded")

    generations, epochs, producers, members, topic_ids = zip(*seen, strict=True)
    for rising in (generations, epochs, producers):
        assert list(rising) == sorted({*rising})
    assert len({*members}) == len({*topic_ids}) == 3


def test_producer_ids_that_the_state_does_not_have_are_refused(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    known = send(handle, "orders", b"seed", **{"enable.idempotence": True})
    known.flush(20)
    handle.snapshot("seeded")
    send(handle, "orders", b"later", **{"enable.idempotence": True})
    first, later = (record.producer_id for record in handle.records("orders"))
    handle.restore("seeded")

    for sequence in (0, 1, 7):
        with pytest.raises(KafkaError) as raised:
            handle.produce("orders", [b"ghost"], as_producer=(later, 0, sequence))
        assert raised.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    with pytest.raises(KafkaError) as raised:
        handle.produce("orders", [b"ghost"], as_producer=(first, 0, 7))
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    handle.produce("orders", [b"goes on"], as_producer=(first, 0, 1))
    assert values(handle) == [b"seed", b"goes on"]


def seed_by_a_producer(handle: Kafka) -> int:
    """Its id. It writes to partition 0."""
    producer = Producer(handle.client_config("producer") | {"enable.idempotence": True, "log_level": 0})
    producer.produce("orders", b"seed", partition=0)
    assert producer.flush(20) == 0
    (record,) = handle.records("orders")
    return record.producer_id


def refused_or_written(handle: Kafka, producer_id: int, epoch: int, sequence: int, partition: int) -> ErrorCode:
    try:
        handle.produce("orders", [b"x"], partition=partition, as_producer=(producer_id, epoch, sequence))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("between", ["nothing", "a reset", "another snapshot"])
def test_known_producer_that_wrote_since_only_follows_on(handle: Kafka, between: str) -> None:
    """Kafka takes any batch of another epoch, or in another partition, that begins with sequence number 0."""
    handle.create_topic("orders", partitions=2)
    handle.snapshot("empty")
    wrote = seed_by_a_producer(handle)
    handle.snapshot("seeded")
    assert refused_or_written(handle, wrote, 0, 1, 0) is ErrorCode.NONE
    if between == "a reset":
        handle.reset()
    elif between == "another snapshot":
        handle.restore("empty")

    for _ in range(2):
        handle.restore("seeded")

        for epoch, sequence, partition in ((1, 0, 0), (0, 0, 1), (0, 1, 1)):
            refused = refused_or_written(handle, wrote, epoch, sequence, partition)
            assert refused is ErrorCode.UNKNOWN_PRODUCER_ID
        assert refused_or_written(handle, wrote, 0, 2, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert values(handle) == [b"seed"]
    assert refused_or_written(handle, wrote, 0, 1, 0) is ErrorCode.NONE


def test_known_producer_that_did_not_write_since_is_free(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)
    known = seed_by_a_producer(handle)
    handle.snapshot("seeded")
    handle.produce("orders", [b"of another"] * 2)

    handle.restore("seeded")

    for epoch, sequence, partition in ((0, 0, 1), (1, 0, 0)):
        assert refused_or_written(handle, known, epoch, sequence, partition) is ErrorCode.NONE


def test_restore_of_fifty_partitions_takes_milliseconds(handle: Kafka) -> None:
    """The promise is for a quiet machine; here it must only not be of another order."""
    handle.create_topic("orders", partitions=50)
    handle.produce("orders", [b"x"] * 50)
    handle.snapshot("seeded")
    taken: list[float] = []
    for _ in range(10):
        handle.produce("orders", [b"y"] * 50)
        taken.append(handle.restore("seeded").duration_ms)

    assert median(taken) < 300
