"""A group of three begins at once with the profile `test`, and after Kafka's three seconds with `kafka` (TK04)."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed

ROUNDS = 5
FIRST_RECORD_S = 0.3
KAFKAS_DELAY_MS = 3000


async def begun(kafka: Kafka, group: str) -> float:
    """Seconds from the third subscription to the first record that a member of the three gets."""
    made = [
        AIOKafkaConsumer(group_id=group, **kafka.client_config("consumer", "aiokafka"), enable_auto_commit=False)
        for _ in range(3)
    ]
    for each in made:
        await each.start()
        each.subscribe(["orders"])
    began = time.perf_counter()
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(each.getone()) for each in made]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        assert any(each.done() for each in waiting)
        return time.perf_counter() - began
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for each in made:
            await each.stop()


def test_profile_test_gives_the_first_record_at_once(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=3)
    handle.produce("orders", [b"book"] * 9)

    taken = [asyncio.run(begun(handle, f"shop-{number}")) for number in range(ROUNDS)]

    assert min(taken) <= FIRST_RECORD_S, taken


def test_profile_kafka_waits_three_seconds_for_members() -> None:
    bed = Testbed(profile="kafka", deadline=20)
    bed.start()
    try:
        kafka = Kafka(bed)
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", [b"book"] * 9)

        assert asyncio.run(begun(kafka, "shop")) >= KAFKAS_DELAY_MS / 1000
        assert kafka.group("shop").history[0].join_phase_ms >= KAFKAS_DELAY_MS
    finally:
        bed.stop()
