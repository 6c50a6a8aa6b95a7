"""Waits look once and then after each event; one that is over says what is missing."""

import threading
import time
import traceback
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from ottla.testing import DeadlineExceeded
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from ottla.testing.waits import DEADLINE_FACTOR
from tests.kit.members import consumer, polled, send

SOON = 0.05


def missed(wait: Any, *arguments: Any, **named: Any) -> DeadlineExceeded:
    with pytest.raises(DeadlineExceeded) as raised:
        wait(*arguments, **named, within=SOON)
    return raised.value


def test_group_that_is_not_there_is_explained_by_near_names(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with consumer(handle, "shop", "orders") as shop:
        shop.poll(0.1)
        handle.group("shop").wait_until_stable(members=1)
        error = missed(handle.group("shap").wait_until_stable, members=2)

    assert str(error).splitlines() == [
        "group 'shap' was not stable with 2 members within 0.1 s",
        "  now      there is no group 'shap'; there is shop",
        f"  hint     {error.hints[0]}",
    ]
    assert error.hints[0].endswith("clients are connected, and none has joined it")


def test_missed_member_of_a_stable_group_is_counted(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with consumer(handle, "shop", "orders") as shop:
        shop.poll(0.1)
        handle.group("shop").wait_until_stable(members=1)
        error = missed(handle.group("shop").wait_until_stable, members=2, assigned={"orders": 3})
        assert error.state.startswith("Stable for ")
        assert (
            f"cause of the last rebalance: member joined ({handle.group('shop').members[0].member_id})" in error.state
        )
        assert error.missing[0].startswith("2 members wanted, 1 there: rdkafka-")
        assert error.missing[1].startswith("owners of orders: ")
        left = missed(handle.group("shop").wait_until_empty)
        assert left.missing[0].startswith("LeaveGroup, or the end of the session, of rdkafka-")


def test_member_that_does_not_poll_is_named_as_the_cause(handle: Kafka) -> None:
    """The member that has joined waits for the one that heartbeats and does not come."""
    handle.create_topic("orders", partitions=2)
    with consumer(handle, "shop", "orders", **{"client.id": "silent", "heartbeat.interval.ms": 50}) as silent:
        handle.produce("orders", [b"a"])
        polled(silent, 1)
        handle.group("shop").wait_until_stable(members=1)
        member = handle.group("shop").members[0].member_id
        with consumer(handle, "shop", "orders", **{"client.id": "second"}) as second:
            second.poll(0)
            handle.wait(
                lambda kafka: kafka.group("shop").state == "PreparingRebalance", describe="the second member's join"
            )
            with pytest.raises(DeadlineExceeded) as raised:
                handle.group("shop").wait_until_stable(members=2, within=1)
            silent.poll(0)

    assert raised.value.state.startswith("PreparingRebalance for ")
    (missing,) = raised.value.missing
    assert missing.startswith(f"JoinGroup of {member} (127.0.0.1): last heard ")
    (hint,) = raised.value.hints
    assert hint.startswith(f"{member} was answered REBALANCE_IN_PROGRESS ")
    assert hint.endswith(" and has not polled since")


def test_lag_names_each_partition_with_its_owner(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=2)
    handle.produce("orders", [b"a", b"b", b"c"])
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as shop:
        polled(shop, 3)
        error = missed(handle.group("shop").wait_until_lag, 0, topic="orders")
        (member,) = handle.group("shop").members
        assert error.missing == (
            f"orders-0: committed nothing, end 2, owner {member.member_id}",
            f"orders-1: committed nothing, end 1, owner {member.member_id}",
        )
        (hint,) = error.hints
        assert hint.startswith("orders-0 was given to consumers up to offset 1, and not committed; automatic commits")
        shop.commit(asynchronous=False)
        handle.group("shop").wait_until_lag(0, topic="orders")
        handle.group("shop").wait_until_committed("orders", {0: 2, 1: 1})
        behind = missed(handle.group("shop").wait_until_committed, "orders", {0: 3})
    assert behind.missing == ("orders-0: committed 2, 3 wanted",)
    assert behind.hints == ()
    unknown = missed(handle.group("shop").wait_until_lag, 0, topic="order")
    assert unknown.missing == ("topic 'order'; there is orders",)


def test_records_that_do_not_come_are_counted(handle: Kafka) -> None:
    absent = missed(handle.wait_for_records, "orders", 1)
    assert absent.state == "there is no topic 'orders'; there is no topic at all"
    handle.produce("orders", [b"a"])

    error = missed(handle.wait_for_records, "orders", 3)

    assert str(error) == (
        "topic 'orders' did not have 3 records within 0.1 s\n"
        "  now      orders has records 0: 0 to 1\n"
        "  missing  2 records of 3"
    )


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_records_that_were_delivered_and_not_committed_count(handle: Kafka, library: str) -> None:
    handle.create_topic("orders", partitions=2)
    handle.produce("orders", [b"a", b"b", b"c"])
    nothing = missed(handle.wait_until_consumed, "orders")
    assert nothing.missing == ("orders-0: delivered up to 0, end 2", "orders-1: delivered up to 0, end 1")
    if library == "kafka-python":
        made = KafkaConsumer(**handle.client_config("consumer", library))
        made.assign([TopicPartition("orders", 0)])
        made.poll(timeout_ms=10_000)
        handle.wait_until_consumed("orders", count=2)
        assert missed(handle.wait_until_consumed, "orders").missing == ("orders-1: delivered up to 0, end 1",)
        assert missed(handle.wait_until_consumed, "orders", count=3).missing[-1] == "1 record of 3 to deliver"
        made.close()
    else:
        with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as shop:
            polled(shop, 3)
            handle.wait_until_consumed("orders")
            assert handle.group("shop").offsets == {}
    handle.reset()
    handle.create_topic("orders", partitions=2)
    handle.produce("orders", [b"a"])
    assert missed(handle.wait_until_consumed, "orders").missing == ("orders-0: delivered up to 0, end 1",)


def test_refused_producer_is_a_hint(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1, configs={"max.message.bytes": 100})
    producer = send(handle, "orders")
    producer.produce("orders", b"x" * 200)
    producer.flush(20)

    error = missed(handle.wait_for_records, "orders", 1)

    (hint,) = error.hints
    assert hint.startswith("once a produce request of rdkafka#")
    assert hint.endswith(" was answered MESSAGE_TOO_LARGE")


def test_leaders_generations_and_conditions_are_explained(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    handle.wait_until_in_sync("orders")
    handle.wait_until_leader("orders", 0)

    assert missed(handle.wait_until_leader, "orders", 0, node=7).missing == ("orders-0: leader 0",)
    assert missed(handle.wait_until_leader, "orders", 5).missing == (
        "there is no partition orders-5: orders has 1 partition",
    )
    assert missed(handle.wait_until_in_sync, "order").state == "there is no topic 'order'; there is orders"
    assert "did not come to generation 9" in str(missed(handle.group("shop").wait_until_generation, 9))
    given = missed(handle.wait, lambda kafka: kafka.topics == [], describe="no topics")
    assert str(given).splitlines()[:2] == ["no topics did not come true within 0.1 s", "  now      it is False"]


def test_error_of_a_condition_reaches_the_caller(handle: Kafka) -> None:
    with pytest.raises(ZeroDivisionError):
        handle.wait(lambda _: 1 / 0, describe="a number")

    calls: list[int] = []

    def fails_later(_: Kafka) -> bool:
        calls.append(1)
        assert len(calls) < 2, "it was looked at again"
        return False

    threading.Timer(0.05, handle.produce, ("orders", [b"a"])).start()
    with pytest.raises(AssertionError, match="it was looked at again"):
        handle.wait(fails_later, describe="a number")


def test_looks_follow_events_and_nothing_polls(handle: Kafka) -> None:
    """But for the first look and the two when the time is over, each is made at the end of an event."""
    after_events: list[bool] = []

    def look(_: Kafka) -> None:
        after_events.append("_end_event" in [frame.name for frame in traceback.extract_stack()])

    with pytest.raises(DeadlineExceeded):
        handle.wait(look, describe="nothing", within=0.3)

    assert (after_events[0], after_events[-2:]) == (False, [False, False])
    assert all(after_events[1:-2])


def test_ends_of_events_are_plain_while_nothing_waits(bed: Testbed, handle: Kafka) -> None:
    (parts,) = bed.hosted.parts().values()
    plain = parts.replicas.flush_and_notify
    during: list[bool] = []

    assert parts.runtime.end_event == plain
    with pytest.raises(DeadlineExceeded):
        handle.wait(lambda _: during.append(parts.runtime.end_event == plain), describe="nothing", within=0.3)

    assert (during[0], during[-1], parts.runtime.end_event == plain) == (True, False, True)


def test_fact_between_look_and_sleep_is_not_missed(handle: Kafka) -> None:
    """The record comes while the wait begins, a thousand times."""
    handle.create_topic("orders", partitions=1)
    handle.produce("orders", [b"first"])
    go, stop = threading.Event(), threading.Event()
    late: list[float] = []

    def produce() -> None:
        while True:
            go.wait()
            go.clear()
            if stop.is_set():
                return
            handle.produce("orders", [b"x"])
            late.append(time.perf_counter())

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for count in range(2, 1002):
            go.set()
            handle.wait_for_records("orders", count)
    finally:
        stop.set()
        go.set()
        thread.join()
    assert len(handle.records("orders")) >= 1001


def test_environment_multiplies_deadlines(handle: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEADLINE_FACTOR, "6")

    late = missed(handle.wait_for_records, "orders", 1)

    assert late.within_s == pytest.approx(6 * SOON)
