"""What is done for each log from time to time takes steps that do not grow with their number."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.upkeep import log_cleaner, log_rounds
from ottla.broker.upkeep.log_rounds import LOGS_AT_ONCE, STEP_MS, LogRounds
from ottla.storage import compaction
from ottla.storage.log import Log
from tests.broker.wire import client_of, create_topic, running_broker, until


class World:
    """A broker with so many partitions, and its loop."""

    def __init__(self, count: int, job: Callable[[int], None] = lambda _: None) -> None:
        self.partitions: dict[int, Any] = {n: SimpleNamespace(topic="t", index=n) for n in range(count)}
        self.now_ms = 0
        self.done: list[int] = []
        self.failed: list[int] = []
        self.steps: list[Callable[[], None]] = []
        runtime: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: self.now_ms), soon=self.steps.append)

        def do(partition: Any) -> None:
            self.done.append(partition.index)
            job(partition.index)

        self.rounds = LogRounds(runtime, self, do, lambda partition, _: self.failed.append(partition.index))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.partitions.values())

    def find(self, topic: str, index: int) -> Any:
        return self.partitions.get(index)

    def run(self) -> list[int]:
        """How many were done in each step of a round."""
        sizes = []
        self.rounds.begin()
        while True:
            sizes.append(len(self.done) - sum(sizes))
            if not self.steps:
                return sizes
            self.steps.pop()()


def test_round_has_so_many_logs_in_a_step_at_most() -> None:
    world = World(2 * LOGS_AT_ONCE + 1)

    assert world.run() == [LOGS_AT_ONCE, LOGS_AT_ONCE, 1]
    assert world.done == list(range(2 * LOGS_AT_ONCE + 1))
    assert World(0).run() == [0]


def test_step_that_takes_long_does_no_more() -> None:
    def wait(_: int) -> None:
        world.now_ms += STEP_MS

    world = World(3, wait)

    assert world.run() == [1, 1, 1]


def test_log_that_fails_or_has_gone_is_left_out() -> None:
    world = World(LOGS_AT_ONCE + 3, lambda index: 1 // (index % LOGS_AT_ONCE))
    world.rounds.begin()
    del world.partitions[LOGS_AT_ONCE + 1]
    world.steps.pop()()

    assert world.failed == [0, LOGS_AT_ONCE]
    assert world.done == [*range(LOGS_AT_ONCE), LOGS_AT_ONCE, LOGS_AT_ONCE + 2]


def test_round_under_way_is_not_begun_again() -> None:
    world = World(LOGS_AT_ONCE + 1)
    world.rounds.begin()
    world.rounds.begin()
    assert len(world.steps) == 1
    world.steps.pop()()
    assert world.done == list(range(LOGS_AT_ONCE + 1))

    world.rounds.begin()
    world.rounds.stop()
    world.steps.pop()()
    assert len(world.done) == 2 * LOGS_AT_ONCE + 1


async def test_retention_of_many_logs_is_done_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    sizes: list[int] = []
    expire, step = Log.expire, LogRounds._step
    monkeypatch.setattr(Log, "expire", lambda self, *some: (looked_at.append(self.topic), expire(self, *some))[1])

    def counted(rounds: LogRounds) -> None:
        before = len(looked_at)
        step(rounds)
        sizes.append(len(looked_at) - before)

    monkeypatch.setattr(LogRounds, "_step", counted)
    monkeypatch.setattr(log_rounds, "LOGS_AT_ONCE", 2)
    async with running_broker(tmp_path, log_retention_check_interval_ms=20) as broker, client_of(broker) as client:
        for n in range(5):
            await create_topic(client, f"t{n}")
        looked_at.clear()
        await until(broker, lambda: set(looked_at) == {f"t{n}" for n in range(5)})

    assert max(sizes) == 2


async def test_many_compacted_logs_are_looked_at_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    sizes: list[int] = []
    plan, following = compaction.plan_compaction, log_cleaner.Cleaner._next

    def counted_plan(log: Log, **named: Any) -> Any:
        looked_at.append(log.topic)
        return plan(log, **named)

    def counted(cleaner: log_cleaner.Cleaner) -> None:
        before = len(looked_at)
        following(cleaner)
        sizes.append(len(looked_at) - before)

    monkeypatch.setattr(compaction, "plan_compaction", counted_plan)
    monkeypatch.setattr(log_cleaner.Cleaner, "_next", counted)
    monkeypatch.setattr(log_cleaner, "LOGS_AT_ONCE", 2)
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        for n in range(5):
            await create_topic(client, f"t{n}", cleanup_policy="compact")
        looked_at.clear()
        await until(broker, lambda: {f"t{n}" for n in range(5)} <= set(looked_at))

    assert max(sizes) == 2
