"""The handle shows what is in the broker and changes it, without a client; real clients see the same."""

import pytest
from confluent_kafka import TopicPartition

from ottla.coordinator.facts import Cause
from ottla.protocol.errors import (
    InvalidPartitions,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ottla.testing import KafkaAsync, Record
from ottla.testing.embedded import NotRunningError
from ottla.testing.handle import Kafka
from ottla.testing.reading import TooManyRecordsError
from ottla.testing.testbed import Testbed
from ottla.testing.writing import murmur2
from tests.kit.members import consumer, polled, send


def test_what_was_produced_is_read_by_a_real_consumer(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)

    places = handle.produce("orders", [b"book", (b"alice", b"pen"), Record(value=b"ink", headers=[("a", b"1")])])

    assert places == [(0, 0), (0, 1), (0, 2)]
    with consumer(handle, "shop", "orders") as shop:
        assert polled(shop, 3) == [b"book", b"pen", b"ink"]


def test_what_a_real_producer_sent_is_shown_decoded(handle: Kafka) -> None:
    producer = send(handle, "orders", b"book", **{"enable.idempotence": True, "compression.type": "gzip"})
    producer.produce("orders", b"pen", key=b"alice", headers=[("a", b"1")], timestamp=1234567890123)
    assert producer.flush(20) == 0

    book, pen = handle.records("orders")

    assert (book.value, book.key, book.offset, book.sequence) == (b"book", None, 0, 0)
    assert (pen.value, pen.key, list(pen.headers)) == (b"pen", b"alice", [("a", b"1")])
    assert (pen.timestamp, pen.offset, pen.sequence) == (1234567890123, 1, 1)
    assert book.producer_id == pen.producer_id >= 0


def test_keys_go_where_the_java_client_puts_them(handle: Kafka) -> None:
    """Values of Kafka's `UtilsTest.testMurmur2`, of which -(2**32) makes unsigned numbers."""
    assert [murmur2(key) - (1 << 32) for key in (b"21", b"foobar", b"a-little-bit-long-string")] == [
        -973932308,
        -790332482,
        -985981536,
    ]
    handle.create_topic("keyed", partitions=3)

    places = handle.produce("keyed", [(b"foobar", b"1"), (None, b"2"), (b"foobar", b"3"), (None, b"4")])

    partition = (murmur2(b"foobar") & 0x7FFFFFFF) % 3
    assert places[0] == (partition, 0)
    assert places[2] == (partition, places[0][1] + 1 + [p for p, _ in places[1:2]].count(partition))
    assert [p for p, _ in (places[1], places[3])] == [0, 1]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "log"])
def test_records_of_transactions_are_read_by_isolation(handle: Kafka, isolation: str) -> None:
    producer = send(handle, "orders", **{"transactional.id": "till"})
    producer.init_transactions(20)
    for value, ends in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(20)
        ends(20)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(20)

    values = [each.value for each in handle.records("orders", isolation=isolation) if not each.is_control]

    seen = {"read_committed": [b"kept"], "read_uncommitted": [b"kept", b"dropped", b"open"]}
    assert values == seen.get(isolation, [b"kept", b"dropped", b"open"])
    assert sum(each.is_control for each in handle.records("orders", isolation="log")) == 2
    producer.abort_transaction(20)


def test_records_beyond_the_limit_raise_and_are_not_cut_off(handle: Kafka) -> None:
    handle.produce("orders", [b"x"] * 11)

    with pytest.raises(TooManyRecordsError, match="orders has more than 10 records"):
        handle.records("orders", limit=10)
    assert len(handle.records("orders", limit=11)) == 11
    with pytest.raises(ValueError, match="expected one of read_committed"):
        handle.records("orders", isolation="dirty")


def test_topics_are_created_changed_and_deleted(handle: Kafka) -> None:
    orders = handle.create_topic(
        "orders", partitions=2, configs={"retention.ms": 1000, "unclean.leader.election.enable": True}
    )

    assert orders.describe().configs == {"retention.ms": "1000", "unclean.leader.election.enable": "true"}
    assert [(each.leader, each.isr) for each in orders.partitions] == [(0, (0,)), (0, (0,))]
    with pytest.raises(TopicAlreadyExists):
        handle.create_topic("orders")
    orders.add_partitions(3)
    assert len(orders.partitions) == 3
    with pytest.raises(InvalidPartitions):
        orders.add_partitions(1)
    orders.delete()
    assert (handle.topics, orders.exists) == ([], False)
    with pytest.raises(UnknownTopicOrPartition):
        orders.describe()


def test_deleted_records_move_the_log_start(handle: Kafka) -> None:
    handle.produce("orders", [b"a", b"b", b"c"])

    handle.topic("orders").delete_records(0, before=2)

    (partition,) = handle.topic("orders").partitions
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (2, 3, 3)
    assert [each.value for each in handle.records("orders")] == [b"c"]
    with pytest.raises(KafkaError, match="ends at 3"):
        handle.topic("orders").delete_records(0, before=4)


def test_forged_idempotent_batches_are_checked_as_requests(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.produce("orders", [b"a"], as_producer=(10**9, 0, 0))
    handle.produce("orders", [b"a"], as_producer=(10**9, 0, 0))

    with pytest.raises(KafkaError, match="1 expected"):
        handle.produce("orders", [b"b"], as_producer=(10**9, 0, 5))
    assert [each.value for each in handle.records("orders")] == [b"a"]


def test_group_of_a_real_consumer_is_shown_decoded(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=3)
    handle.produce("orders", [b"a", b"b", b"c"])
    group = handle.group("shop")
    with consumer(handle, "shop", "orders", **{"client.id": "till"}) as shop:
        assert sorted(polled(shop, 3)) == [b"a", b"b", b"c"]
        group.wait_until_stable(members=1, assigned={"orders": 3})
        shop.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)

        (member,) = group.members
        assert (member.client_id, member.subscription) == ("till", ("orders",))
        assert member.assignment == {"orders": (0, 1, 2)}
        assert 0 < member.session_ends_in_ms <= 45_000
        assert group.offsets == {("orders", 0): 1}
        assert group.lag("orders") == {0: 0, 1: 1, 2: 1}
        assert handle.groups == ["shop"]
        assert {(each.client_id, each.groups) for each in handle.connections if each.groups} == {("till", ("shop",))}

    assert (group.state, group.members) == ("Empty", ())
    (rebalance, *_) = group.history
    assert rebalance.cause is Cause.MEMBER_JOINED
    assert rebalance.is_over
    assert rebalance.members == (member.member_id,)


def test_what_is_not_there_is_shown_as_such(handle: Kafka) -> None:
    group = handle.group("none")

    assert (group.exists, group.state, group.history, group.lag("none")) == (False, "Dead", [], {})
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'none'"):
        handle.records("none")
    with pytest.raises(NotRunningError, match="a test with brokers=3 can do that"):
        handle.brokers[0].kill()


def test_what_is_not_there_is_named(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)

    for asked in (handle.topic("order").delete, handle.topic("order").describe, handle.topic("order").roll):
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'order'; there is orders"):
            asked()
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'order'; there is orders"):
        handle.records("order")
    for partition in (9, -1):
        with pytest.raises(
            UnknownTopicOrPartition, match=f"there is no partition orders-{partition}: orders has 2 part"
        ):
            handle.records("orders", partition)


async def test_handle_of_coroutines_shows_the_same(bed: Testbed) -> None:
    kafka = KafkaAsync(bed)
    await kafka.create_topic("orders", partitions=2)
    await kafka.produce("orders", [b"a", b"b"])

    await kafka.wait_for_records("orders", 2)
    assert [each.value for each in await kafka.records("orders", partition=1)] == [b"b"]
    assert await kafka.records("orders", stop=0) == []
    await kafka.wait_until_consumed("orders", upto={0: 0})
    with pytest.raises(ValueError, match="expected one of them"):
        await kafka.wait_until_consumed("orders", upto="end", count=1)
    assert (await kafka.topics(), await kafka.groups(), await kafka.connections()) == (["orders"], [], [])
    await kafka.group("shop").wait_until_empty()
    await kafka.wait(lambda k: k.topic("orders").exists, describe="the topic")
    await kafka.delete_topic("orders")
    assert await kafka.topic("orders") is None


def test_call_that_waits_is_refused_within_a_condition(handle: Kafka) -> None:
    with pytest.raises(NotRunningError, match="a condition looks and does not change anything"):
        handle.wait(lambda kafka: kafka.produce("orders", [b"a"]), describe="a record")


def test_records_of_a_partition_are_in_order_of_its_log(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)
    for timestamp, value in ((3000, b"open"), (1000, b"close")):
        handle.produce("orders", [value], timestamp=timestamp, partition=0)
    handle.produce("orders", [b"between"], timestamp=2000, partition=1)

    assert [each.value for each in handle.records("orders", 0)] == [b"open", b"close"]
    assert [each.value for each in handle.records("orders")] == [b"between", b"open", b"close"]
