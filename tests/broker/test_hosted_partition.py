"""A partition that is unloaded in the middle of a step: what has which time, and who is answered."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_partition import LARGE_RECORD_BYTES, HostedPartition
from ottla.coordinator.runtime.effects import Effect, Observed, Reply, SetTimer, TimerFired
from ottla.coordinator.runtime.partition import Phase
from ottla.timer.wheel import TimingWheel
from tests.cluster.stores import Clock


class Coordinator:
    """It takes numbers as requests, and reports two facts about each."""

    def __init__(self) -> None:
        self.is_unloaded = False
        self.phase = Phase.ACTIVE
        self.rest: list[Effect] = []

    def step(self, event: int, now_ms: int, wall_ms: int) -> list[Effect]:
        if self.is_unloaded:
            return [Reply(event, "refused")]
        return [Observed(f"{event} began"), Observed(f"{event} ended"), Reply(event, "served")]

    def unload(self, now_ms: int, wall_ms: int) -> list[Effect]:
        self.is_unloaded = True
        return [Observed("unloaded")]

    def finish_loading(self, now_ms: int, wall_ms: int) -> list[Effect]:
        return [Observed("loaded")]

    def fail_loading(self) -> None:
        self.is_unloaded = True


class Owner:
    name, codec, append_timeout_ms = "__consumer_offsets", 0, 5_000

    def __init__(self) -> None:
        self.facts: list[tuple[str, int]] = []
        self.appended: list[tuple[memoryview, Any]] = []
        self.replies: list[tuple[int, str]] = []
        self.when: dict[str, Callable[[], None]] = {}

    def append(self, index: int, records: memoryview, done: Any, guard: Any = None) -> None:
        self.appended.append((records, done))

    def batch_bytes_max(self, index: int) -> int:
        return LARGE_RECORD_BYTES + 100

    def deliver(self, token: int, result: Any) -> None:
        self.replies.append((token, result))

    def observe(self, fact: Any, now_ms: int, wall_ms: int) -> None:
        self.facts.append((fact, now_ms))
        self.when.get(fact, lambda: None)()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def partition(clock: Clock, owner: Owner) -> HostedPartition[Any]:
    runtime: Any = SimpleNamespace(clock=clock, wheel=TimingWheel())
    coordinator: Any = Coordinator()
    return HostedPartition(runtime, owner, 0, coordinator, 0)


def unload_later(partition: HostedPartition[Any], clock: Clock) -> None:
    clock.now += 100
    partition.unload()


def test_facts_keep_the_time_of_their_step(partition: HostedPartition[Any], owner: Owner, clock: Clock) -> None:
    owner.when["1 began"] = lambda: unload_later(partition, clock)
    partition.handle(1)

    assert owner.facts == [("1 began", 0), ("unloaded", 100), ("1 ended", 0)]
    assert owner.replies == [(1, "served")]


def test_a_request_behind_the_step_is_refused(partition: HostedPartition[Any], owner: Owner, clock: Clock) -> None:
    def ask_and_unload() -> None:
        partition.handle(2)
        unload_later(partition, clock)

    owner.when["1 began"] = ask_and_unload
    partition.handle(1)

    assert owner.replies == [(1, "served"), (2, "refused")]


def test_a_request_after_the_unload_waits_for_the_step(
    partition: HostedPartition[Any], owner: Owner, clock: Clock
) -> None:
    owner.when["1 began"] = lambda: unload_later(partition, clock)
    owner.when["1 ended"] = lambda: partition.handle(2)
    partition.handle(1)

    assert owner.replies == [(1, "served"), (2, "refused")]


def test_requests_during_an_unload_are_refused(partition: HostedPartition[Any], owner: Owner) -> None:
    owner.when["unloaded"] = lambda: partition.handle(1)
    partition.unload()

    assert owner.replies == [(1, "refused")]


def test_requests_during_a_load_that_fails_are_refused(partition: HostedPartition[Any], owner: Owner) -> None:
    def ask_and_fail() -> None:
        partition.handle(1)
        raise ValueError("cannot be served")

    owner.when["loaded"] = ask_and_fail
    with pytest.raises(ValueError, match="cannot be served"):
        partition.finish_loading()
    partition.fail_loading()

    assert owner.replies == [(1, "refused")]


def test_timers_wait_until_all_that_is_loaded_is_there(
    partition: HostedPartition[Any], owner: Owner, clock: Clock
) -> None:
    coordinator: Any = partition.coordinator
    coordinator.phase = Phase.LOADING
    coordinator.finish_loading = lambda now_ms, wall_ms: [SetTimer("session", 5)]
    assert not partition.finish_loading()
    partition._runtime.wheel.advance(10)
    assert owner.replies == []

    coordinator.phase = Phase.ACTIVE
    coordinator.finish_loading = lambda now_ms, wall_ms: []
    assert partition.finish_loading()

    assert owner.replies == [(TimerFired("session"), "served")]
