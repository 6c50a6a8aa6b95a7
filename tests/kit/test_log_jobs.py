"""The jobs of logs that a test does not wait for, configs that it alters, and what brokers know of producers."""

import threading
import time

import pytest
from confluent_kafka import Producer

from ottla.coordinator.facts import Cause, GenerationStarted, RebalanceStarted
from ottla.protocol.errors import InvalidConfig, UnknownTopicOrPartition
from ottla.testing.async_handle import KafkaAsync
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from ottla.testing.waits import DeadlineExceeded
from tests.kit.members import consumer, send

HOUR_MS = 3_600_000


def values(handle: Kafka) -> list[bytes | None]:
    return [record.value for record in handle.records("orders")]


def old() -> int:
    return time.time_ns() // 1_000_000 - HOUR_MS


def test_new_segments_begin(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=2)
    handle.produce("orders", [b"one", b"two"], partition=0)

    (first, second) = topic.roll()

    assert (first.partition, first.segments, first.records_removed) == (0, 2, 0)
    assert second.segments == 1, "an empty segment is not closed"
    assert values(handle) == [b"one", b"two"]
    with pytest.raises(UnknownTopicOrPartition):
        handle.topic("other").roll()


def test_segments_of_a_partition_are_shown(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=1)
    handle.produce("orders", [b"one", b"two"])
    topic.roll()

    sealed, active = handle.partition("orders", 0).segments

    assert (sealed.base_offset, sealed.is_active) == (0, False)
    assert sealed.size_bytes > 0
    assert (active.base_offset, active.is_active, active.size_bytes) == (2, True, 0)


def test_retention_is_applied_at_once(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=1, configs={"retention.ms": HOUR_MS // 2})
    handle.produce("orders", [b"old", b"old"], timestamp=old())
    topic.roll()
    handle.produce("orders", [b"new"])
    assert values(handle) == [b"old", b"old", b"new"]

    (change,) = topic.apply_retention()

    assert (change.log_start_offset, change.records_removed) == (2, 2)
    assert values(handle) == [b"new"]
    (again,) = topic.apply_retention()
    assert again.records_removed == 0


def test_latest_value_of_each_key_stays(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=1, configs={"cleanup.policy": "compact"})
    handle.produce("orders", [(b"alice", b"book"), (b"bob", b"pen"), (b"alice", b"cup")])

    (change,) = topic.compact()

    assert values(handle) == [b"pen", b"cup"]
    assert change.bytes_removed > 0
    handle.produce("orders", [(b"bob", b"ink")])
    topic.compact()
    assert values(handle) == [b"cup", b"ink"]


def test_compaction_leaves_what_its_lag_protects(handle: Kafka) -> None:
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": HOUR_MS, "min.cleanable.dirty.ratio": 0.9}
    topic = handle.create_topic("orders", partitions=1, configs=configs)
    handle.produce("orders", [(b"alice", b"book"), (b"alice", b"cup")])

    topic.compact()

    assert values(handle) == [b"book", b"cup"]
    assert topic.describe().configs == {name: str(value) for name, value in configs.items()}


def test_topic_without_compaction_is_refused(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=1)

    with pytest.raises(InvalidConfig, match=r"topic 'orders' has no cleanup\.policy=compact"):
        topic.compact()


def test_configs_are_set_and_taken_back(handle: Kafka) -> None:
    topic = handle.create_topic("orders", partitions=1, configs={"retention.ms": 1000})

    topic.alter({"max.message.bytes": 100, "retention.ms": None, "message.timestamp.type": "LogAppendTime"})

    assert topic.describe().configs == {"max.message.bytes": "100", "message.timestamp.type": "LogAppendTime"}
    with pytest.raises(Exception, match="100 allowed"):
        handle.produce("orders", [b"x" * 200])
    with pytest.raises(InvalidConfig):
        topic.alter({"retention.ms": "long"})


def test_idle_clients_are_waited_for(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            send(handle, "orders", b"book")

    handle.wait_until_idle(ms=1)
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        handle.wait_for_records("orders", 1)
        with pytest.raises(DeadlineExceeded, match=r"clients were not idle for 5000 ms within 0\.[0-9] s"):
            handle.wait_until_idle(ms=5000, within=0.2)
    finally:
        stop.set()
        thread.join()

    before = time.monotonic()
    handle.wait_until_idle(ms=100)
    assert time.monotonic() - before < 5


def test_producers_and_transactions_are_shown(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)
    producer = Producer(handle.client_config("producer") | {"transactional.id": "till", "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"book", partition=1)
    producer.produce("orders", b"pen", partition=1)
    producer.flush(20)

    (known,) = handle.producers
    (open_one,) = handle.transactions

    assert (known.topic, known.partition, known.last_sequence, known.transaction_first_offset) == ("orders", 1, 1, 0)
    assert (open_one.transactional_id, open_one.state, open_one.partitions) == ("till", "Ongoing", (("orders", 1),))
    assert (open_one.producer_id, open_one.producer_epoch) == (known.producer_id, known.producer_epoch)
    producer.commit_transaction(20)
    handle.wait(
        lambda kafka: kafka.topic("orders").partitions[1].high_watermark == 3,
        describe="the marker is there",
    )
    assert handle.producers[0].transaction_first_offset == -1
    assert handle.transactions[0].state == "CompleteCommit"


def test_facts_of_groups_come_until_the_deadline(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    events = handle.events(RebalanceStarted, GenerationStarted, within=3)
    with consumer(handle, "shop", "orders") as member:
        while handle.group("shop").state != "Stable":
            member.poll(0.05)

    came = [(type(each), each.group_id) for each in events]

    assert came[:2] == [(RebalanceStarted, "shop"), (GenerationStarted, "shop")]
    assert isinstance(handle.group("shop").history[0].cause, Cause)
    assert list(events) == []


def test_streams_that_no_test_holds_are_forgotten(handle: Kafka, bed: Testbed) -> None:
    before = len(bed.histories.listeners)
    for _ in range(20):
        handle.events()

    handle.create_topic("orders", partitions=1)
    for offset in range(3):
        handle.group("shop").set_offsets("orders", {0: offset})

    assert len(bed.histories.listeners) == before


async def test_coroutines_have_the_same(bed: Testbed) -> None:
    kafka = KafkaAsync(bed)
    await kafka.create_topic("orders", partitions=1, configs={"cleanup.policy": "compact"})
    await kafka.produce("orders", [(b"alice", b"book"), (b"alice", b"cup")])

    assert [each.segments for each in await kafka.roll("orders")] == [2]
    assert len(await kafka.partition("orders", 0).segments()) == 2
    await kafka.compact("orders")
    assert [record.value for record in await kafka.records("orders")] == [b"cup"]
    await kafka.alter_topic("orders", {"cleanup.policy": "delete", "retention.ms": 1})
    await kafka.apply_retention("orders")
    await kafka.wait_until_idle(ms=1)
    assert await kafka.producers() == await kafka.transactions() == []
    events = await kafka.events(within=0)
    assert [fact async for fact in events] == []
