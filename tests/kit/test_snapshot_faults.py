"""Snapshots and restores of a broker whose time was moved, whose disk fails, or that is paused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ottla.testing.faults.rule_values import RuleError
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.clusters import outcome

NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


def values(handle: Kafka, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in handle.records(topic)]


def test_time_comes_back_with_the_world(handle: Kafka) -> None:
    """Else what a restore brings is older than its retention."""
    handle.clock.freeze(at=NEW_YEAR)
    handle.clock.skew(0, "5s")
    handle.produce("orders", [b"book"])
    handle.snapshot("ordered")
    handle.clock.advance("8d")
    assert values(handle) == []
    handle.clock.set_rate(60)
    handle.clock.resume()

    handle.restore("ordered")

    assert (handle.clock.now(), handle.clock.rate) == (NEW_YEAR, 1.0)
    handle.clock.advance("6d")
    assert values(handle) == [b"book"]
    handle.clock.advance("2d")
    assert values(handle) == []


def test_time_is_the_machines_where_it_was_at_the_snapshot(handle: Kafka, bed: Testbed) -> None:
    handle.snapshot("first")
    handle.clock.freeze(at=NEW_YEAR)

    handle.restore("first")

    timeline = bed.clock.timeline
    assert abs(bed.call(lambda: timeline.wall_ms() - timeline.machine.wall_ms())) < 100
    assert not timeline.is_frozen
    assert bed.call(bed.clock.report) == []


def test_followers_of_time_come_back_too(handle: Kafka) -> None:
    class Moved:
        now: Any = None

        def shift(self, delta: Any) -> None:
            self.now += delta

        def move_to(self, when: datetime) -> None:
            self.now = when

    moved = Moved()
    handle.clock.follow(moved)
    handle.clock.freeze(at=NEW_YEAR)
    handle.snapshot("ordered")
    handle.clock.advance("8d")
    assert moved.now != NEW_YEAR
    handle.restore("ordered")
    assert moved.now == NEW_YEAR


def test_restore_heals_disks_and_goes_on_after_a_pause(handle: Kafka) -> None:
    handle.create_topic("orders", 1, configs={"flush.messages": 1})
    handle.produce("orders", [b"first"])
    handle.snapshot("ordered")

    handle.disk(0).full()
    handle.restore("ordered")
    assert outcome(handle) == "ok"

    handle.disk(0).fail("fsync", times=None)
    assert outcome(handle) == "KAFKA_STORAGE_ERROR"
    handle.restore("ordered")
    assert values(handle) == [b"first"]
    assert outcome(handle) == "ok"

    handle.links.cut("clients", to=0)
    handle.brokers[0].pause()
    handle.restore("ordered")
    assert values(handle) == [b"first"]
    assert outcome(handle) == "ok"


@pytest.mark.parametrize("offset", [0, 1], ids=["sealed", "active"])
def test_damage_is_not_done_to_snapshots(handle: Kafka, offset: int) -> None:
    handle.create_topic("orders", 1, configs={"segment.bytes": 1024 * 1024})
    handle.produce("orders", [b"x" * 900_000])
    handle.produce("orders", [b"y" * 900_000])
    before = handle.records("orders")
    handle.snapshot("ordered")
    handle.disk(0).corrupt("orders", 0, offset=offset)

    handle.restore("ordered")

    assert handle.records("orders") == before


def test_refused_snapshot_leaves_files_alone(handle: Kafka, bed: Testbed) -> None:
    """A rule that JSON cannot say is no part of a snapshot."""
    handle.create_topic("orders", 1, configs={"segment.bytes": 1024 * 1024})
    for value in (b"x", b"y", b"z"):
        handle.produce("orders", [value * 400_000])
    handle.fault(api="Produce", do="hold", when=lambda request: False, optional=True)
    with pytest.raises(RuleError, match="Python only"):
        handle.snapshot("ordered")

    (parts,) = bed.hosted.parts().values()
    replica = parts.replicas.partition("orders", 0)
    bed.call(lambda: replica.log.truncate_to(1))
    assert replica.log.failure is None


def test_time_of_a_paused_broker_waits_for_it(handle: Kafka) -> None:
    handle.create_topic("orders", 1, configs={"retention.ms": 1000, "file.delete.delay.ms": 0})
    handle.produce("orders", [b"book"])
    handle.clock.freeze()
    handle.brokers[0].pause()

    assert handle.clock.advance("8d") == []
    assert handle.clock.run_next("retention") == []
    assert values(handle) == [b"book"]

    handle.brokers[0].resume()
    handle.wait(lambda kafka: not values(kafka), describe="retention takes it")
