"""Snapshots and restores of a broker whose time was moved, whose disk fails, or that is paused."""

from datetime import UTC, datetime

from ottla.testing.handle import Kafka

NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


def values(handle: Kafka, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in handle.records(topic)]


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
