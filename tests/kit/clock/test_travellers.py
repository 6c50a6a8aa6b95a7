"""Libraries that replace Python's clocks do not move broker time (TK17), unless a test lets them follow it."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.members import consumer, polled, send

time_machine: Any = pytest.importorskip("time_machine", reason="time-machine is not installed")
freezegun: Any = pytest.importorskip("freezegun", reason="freezegun is not installed")

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)


def serves(handle: Kafka) -> None:
    """A broker in a thread of this process: fetches and commits end, and its stamps are right."""
    handle.create_topic("orders", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    with consumer(handle, "shop", "orders") as shop:
        send(handle, "orders", b"a")
        assert polled(shop, 1) == [b"a"]
        shop.commit(asynchronous=False)
    handle.group("shop").wait_until_empty()
    handle.clock.advance("1s")


def test_time_machine_does_not_move_it(handle: Kafka) -> None:
    before = handle.clock.now()
    with time_machine.travel(LONG_AGO, tick=False):
        assert time.time() == LONG_AGO.timestamp()
        serves(handle)
        after = handle.clock.now()

    assert timedelta() < after - before < timedelta(minutes=1)
    (record,) = handle.records("orders")
    assert before.timestamp() * 1000 <= record.timestamp <= after.timestamp() * 1000


def test_freezegun_does_not_move_it(handle: Kafka) -> None:
    before = handle.clock.now()
    with freezegun.freeze_time(LONG_AGO):
        assert time.time() == LONG_AGO.timestamp()
        serves(handle)
        after = handle.clock.now()

    assert timedelta() < after - before < timedelta(minutes=1)


def test_time_machine_follows(handle: Kafka) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    with time_machine.travel(start, tick=False) as traveller, handle.clock.frozen(at=start) as clock:
        clock.follow(traveller)
        clock.advance("8d")
        assert datetime.now(UTC) == clock.now() == start + timedelta(days=8)
        clock.set(start)
        assert datetime.now(UTC) == clock.now() == start
    handle.clock.advance("1d")


def test_steps_of_faults_have_the_machines_time(handle: Kafka, bed: Testbed) -> None:
    """Which moves on by the machine's monotonic clock; the other one may be adjusted by then."""
    before_ms = int(time.time() * 1000)
    with time_machine.travel(LONG_AGO, tick=False):
        handle.disk(0).slow_fsync(0)

    (step,) = bed.call(bed.steps.since_clear)
    assert abs(step.transport_ms - before_ms) < timedelta(minutes=1) / timedelta(milliseconds=1)


def test_freezegun_follows(handle: Kafka) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    with freezegun.freeze_time(start) as traveller, handle.clock.frozen(at=start) as clock:
        clock.follow(traveller)
        clock.advance("8d")
        assert datetime.now(UTC) == clock.now() == start + timedelta(days=8)


class Traveller:
    moved = timedelta()

    def shift(self, delta: timedelta) -> None:
        self.moved += delta

    def move_to(self, when: datetime) -> None:
        raise AssertionError(when)


def test_travellers_go_as_far_as_time_on_a_slow_machine() -> None:
    """What passes by itself around an advance moves them by itself."""
    bed = Testbed(deadline=20)
    bed.start()
    try:
        machine, looks = bed.clock.timeline.machine, count()
        now_ns = machine.now_ns
        machine.now_ns = lambda: now_ns() + 1_000_000 * next(looks)  # type: ignore[method-assign]
        traveller = Traveller()
        clock = Kafka(bed).clock
        clock.follow(traveller)

        clock.advance("5s")

        assert traveller.moved == timedelta(seconds=5)
    finally:
        bed.stop()


def test_following_ends_with_a_reset_and_needs_a_clock(handle: Kafka) -> None:
    traveller = Traveller()
    handle.clock.follow(traveller)
    handle.clock.advance("5s")
    handle.reset()
    handle.clock.advance("5s")

    assert traveller.moved == timedelta(seconds=5)
    with pytest.raises(TypeError, match="no clock that can follow"):
        handle.clock.follow(asyncio)
