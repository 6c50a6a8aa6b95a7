"""The time of an event is that of the coordinator's step that reported it, and a step reads each clock once."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.loop_wheel import SystemClock
from ottla.coordinator.events import Heartbeat, JoinGroup, SyncGroup
from ottla.coordinator.runtime.partition import CoordinatorPartition
from tests.broker.asking import running
from tests.broker.test_group_handlers import beat, found, stable
from tests.events.test_publisher import EVENTS, flushed

ONCE = {"now": 1, "wall": 1}
# Those of the step, and those of the append: a time limit, and a timestamp.
WITH_APPEND = {"now": 2, "wall": 2}


class Readings:
    """Every reading of the clocks while a partition takes an event. The clocks move on at each. The wheel, which
    sets the timer of the loop, is not counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_event: dict[type, list[Counter[str]]] = {}
        self.step_times: set[int] = set()
        self._count: Counter[str] = Counter()
        self.ahead_ms = 0
        self.wheel_clock = _WheelClock(self)
        for name, method in (("now", "now_ms"), ("wall", "wall_ms")):
            monkeypatch.setattr(SystemClock, method, self._counting(name, getattr(SystemClock, method)))
        monkeypatch.setattr(HostedPartition, "handle", self._handling(HostedPartition.handle))
        for method in ("step", "finish_loading"):
            monkeypatch.setattr(CoordinatorPartition, method, self._noting_time(getattr(CoordinatorPartition, method)))

    def _counting(self, name: str, read: Any) -> Any:
        def counted(clock: SystemClock) -> int:
            self._count[name] += 1
            self.ahead_ms += 1
            return int(read(clock)) + self.ahead_ms

        return counted

    def _handling(self, handle: Any) -> Any:
        def handled(partition: Any, event: Any) -> None:
            queued = partition._stepping
            if not queued:
                self._count.clear()
            handle(partition, event)
            if not queued:
                self.by_event.setdefault(type(event), []).append(Counter(self._count))

        return handled

    def _noting_time(self, step: Any) -> Any:
        def noted(partition: Any, *arguments: Any) -> Any:
            self.step_times.add(arguments[-2])
            return step(partition, *arguments)

        return noted


class _WheelClock:
    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._readings.ahead_ms


async def test_a_step_reads_each_clock_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await found(broker)
        readings = Readings(monkeypatch)
        broker.broker.runtime.wheel._clock = readings.wheel_clock
        client = await broker.client()
        member = await stable(client)
        request = beat.HeartbeatRequest(group_id="g", generation_id=member.generation_id, member_id=member.member_id)
        assert (await client.ask(request, 3)).error_code == 0

    joins = readings.by_event[JoinGroup]
    assert joins
    assert joins == [ONCE] * len(joins)
    assert readings.by_event[SyncGroup] == [WITH_APPEND]
    assert readings.by_event[Heartbeat] == [ONCE]


async def test_events_have_the_time_of_their_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await found(broker)
        readings = Readings(monkeypatch)
        broker.broker.runtime.wheel._clock = readings.wheel_clock
        await stable(await broker.client())
        events = [event for event in await flushed(broker) if event.get("group_id") == "g"]

    assert len(events) > 5
    assert {event["mono_ms"] for event in events} <= readings.step_times
