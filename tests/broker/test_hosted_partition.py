"""A partition that is unloaded in the middle of a step: what has which time, and who is answered."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_partition import LARGE_RECORD_BYTES, HostedPartition
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CoordinatorRecord,
    Effect,
    Observed,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.coordinator.runtime.partition import Phase
from ottla.coordinator.runtime.step_context import NO_BOUND
from ottla.protocol.errors import ErrorCode
from ottla.storage.log import AppendInfo, Origin
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
        self.appended: list[tuple[memoryview, Any, Origin]] = []
        self.replies: list[tuple[int, str]] = []
        self.when: dict[str, Callable[[], None]] = {}

    def append(self, index: int, records: memoryview, done: Any, guard: Any, origin: Origin) -> None:
        self.appended.append((records, done, origin))

    def batch_bytes_max(self, index: int) -> int:
        return LARGE_RECORD_BYTES + 100 if self.codec == 0 else NO_BOUND

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
    wheel = TimingWheel()
    runtime: Any = SimpleNamespace(clock=clock, wheel=wheel, broker_clock=clock, broker_wheel=wheel)
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


def test_each_append_has_its_own_time_to_end(partition: HostedPartition[Any], owner: Owner, clock: Clock) -> None:
    """There is one timer for all of them; a success that comes late is reported too."""
    reported: list[tuple[Any, int]] = []

    def step(event: Any, now_ms: int, wall_ms: int) -> list[Effect]:
        if isinstance(event, int):
            return [Append(event, (CoordinatorRecord(b"k", b"v"),))]
        reported.append((event, now_ms))
        return []

    def committed(append: int) -> None:
        _, done, _ = owner.appended[append]
        done(AppendInfo(7, 7, 0, -1, 0, False), None)

    partition.coordinator.step = step  # type: ignore[method-assign]
    wheel = partition._runtime.wheel
    for append_id in (1, 2, 3):
        clock.now = 1000 * append_id
        partition.handle(append_id)
    committed(1)
    assert len(wheel) == 1
    for now_ms in (5999, 6000, 7000, 7999, 8000, 20_000):
        clock.now = now_ms
        wheel.advance(now_ms)
    committed(0)

    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert reported == [
        (AppendCompleted(2, 7), 3000),
        (AppendFailed(1, timed_out), 6000),
        (AppendFailed(3, timed_out), 8000),
        (AppendCompleted(1, 7), 20_000),
    ]
    assert len(wheel) == 0


def test_the_end_of_a_transaction_is_built_whatever_its_size(partition: HostedPartition[Any], owner: Owner) -> None:
    records = (CoordinatorRecord(b"k", bytes(2 * LARGE_RECORD_BYTES)),)
    partition.coordinator.step = lambda *_: [Append(1, records, ends_transaction=True)]  # type: ignore[method-assign]
    partition.handle(1)

    assert [origin for *_, origin in owner.appended] == [Origin.END_OF_TRANSACTION]


def test_no_append_ends_after_the_unload(partition: HostedPartition[Any], owner: Owner, clock: Clock) -> None:
    partition.coordinator.step = lambda *_: [Append(1, (CoordinatorRecord(b"k", b"v"),))]  # type: ignore[method-assign]
    partition.handle(1)
    partition.unload()

    assert len(partition._runtime.wheel) == 0
