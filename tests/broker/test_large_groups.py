"""What a step of a group with a thousand members sets off is done in several steps of the loop."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_partition import (
    EVENTS_PER_STEP,
    FACTS_PER_STEP,
    LARGE_RECORD_BYTES,
    HostedPartition,
)
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CoordinatorRecord,
    Effect,
    Observed,
    Reply,
)
from ottla.protocol.errors import ErrorCode
from tests.broker.test_hosted_partition import Owner
from tests.cluster.stores import Clock

LARGE = LARGE_RECORD_BYTES + 1


class Sliced(list[list[Effect]]):
    """The slices of a step."""


class Coordinator:
    """Its events are the effects of the step, or those of its slices."""

    def __init__(self) -> None:
        self.outcomes: list[AppendCompleted | AppendFailed] = []
        self.rest: list[list[Effect]] = []

    def step(self, event: Any, now_ms: int, wall_ms: int) -> list[Effect]:
        if isinstance(event, AppendCompleted | AppendFailed):
            self.outcomes.append(event)
            return []
        if isinstance(event, Sliced):
            self.rest += event
            return self.go_on()
        return list(event)

    def go_on(self) -> list[Effect]:
        return self.rest.pop(0)

    def unload(self, now_ms: int, wall_ms: int) -> list[Effect]:
        left, self.rest[:] = list(self.rest), []
        return [*(effect for effects in left for effect in effects), Observed("unloaded")]


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.owner = Owner()
        self.coordinator: Any = Coordinator()
        self.steps: list[Callable[[], None]] = []
        runtime: Any = SimpleNamespace(
            clock=self.clock,
            broker_clock=self.clock,
            soon=self.steps.append,
            wheel=SimpleNamespace(schedule=lambda deadline_ms, action: SimpleNamespace(cancel=lambda: None)),
        )
        self.partition = HostedPartition[Any](runtime, self.owner, 0, self.coordinator, 0)

    def run_step(self) -> None:
        steps, self.steps[:] = list(self.steps), []
        for step in steps:
            step()

    def append(self, *sizes: int) -> None:
        records = [CoordinatorRecord(b"", bytes(size)) for size in sizes]
        self.partition.handle([Append(append_id, [record]) for append_id, record in enumerate(records)])

    def complete(self, number: int) -> None:
        self.owner.appended[number][1](SimpleNamespace(base_offset=7), None)


@pytest.fixture
def world() -> World:
    return World()


def facts(first: int, last: int) -> list[Effect]:
    return [Observed(f"fact {number}") for number in range(first, last)]


def test_facts_of_a_long_step_are_reported_a_few_at_a_time(world: World) -> None:
    world.partition.handle([*facts(0, 3 * FACTS_PER_STEP), Reply(1, "served")])
    counts = [len(world.owner.facts)]
    while world.steps:
        world.run_step()
        counts.append(len(world.owner.facts))

    assert world.owner.replies == [(1, "served")]
    assert counts == [0, FACTS_PER_STEP, 2 * FACTS_PER_STEP, 3 * FACTS_PER_STEP]


def test_later_facts_come_behind_those_of_a_long_step(world: World) -> None:
    world.partition.handle(facts(0, FACTS_PER_STEP + 1))
    world.clock.now += 5
    world.partition.handle([Observed("later")])
    while world.steps:
        world.run_step()

    before = [(f"fact {number}", 0) for number in range(FACTS_PER_STEP + 1)]
    assert world.owner.facts == [*before, ("later", 5)]


def test_unloading_reports_the_facts_that_are_left(world: World) -> None:
    world.partition.handle(facts(0, FACTS_PER_STEP + 1))
    world.partition.unload()

    assert len(world.owner.facts) == FACTS_PER_STEP + 2
    assert world.owner.facts[-1][0] == "unloaded"


def test_a_large_record_in_the_log_is_a_step_of_its_own(world: World) -> None:
    world.append(LARGE)
    world.complete(0)
    assert world.coordinator.outcomes == []
    world.run_step()

    assert world.coordinator.outcomes == [AppendCompleted(0, 7)]


def test_outcomes_of_appends_keep_their_order(world: World) -> None:
    world.append(LARGE, 1)
    world.complete(0)
    world.complete(1)

    assert world.coordinator.outcomes == [AppendCompleted(0, 7), AppendCompleted(1, 7)]
    world.run_step()
    assert len(world.coordinator.outcomes) == 2


def test_a_record_that_is_too_large_is_not_built(world: World) -> None:
    world.append(world.owner.batch_bytes_max(0) + 1)
    world.run_step()

    assert world.owner.appended == []
    assert world.coordinator.outcomes == [AppendFailed(0, ErrorCode.MESSAGE_TOO_LARGE)]


def test_a_large_record_is_built_where_it_is_compressed(world: World) -> None:
    world.owner.codec = 1
    world.append(3 * LARGE_RECORD_BYTES)

    assert len(world.owner.appended) == 1


# A step in slices.


def in_slices(count: int) -> Sliced:
    return Sliced([[Observed(f"fact {number}"), Reply(number, "served")] for number in range(count)])


def test_each_slice_of_a_step_is_a_step_of_the_loop(world: World) -> None:
    world.partition.handle(in_slices(3))
    counts = [len(world.owner.replies)]
    while world.steps:
        world.run_step()
        counts.append(len(world.owner.replies))

    assert counts[:3] == [1, 2, 3]
    assert world.steps == []


def test_events_wait_for_the_last_slice_of_a_step(world: World) -> None:
    world.partition.handle(in_slices(3))
    world.partition.handle([Reply(7, "later")])
    while world.steps:
        world.run_step()

    assert [token for token, _ in world.owner.replies] == [0, 1, 2, 7]


def test_a_slice_keeps_the_time_of_its_step(world: World) -> None:
    world.partition.handle(in_slices(2))
    world.clock.now += 5
    while world.steps:
        world.run_step()

    assert world.owner.facts == [("fact 0", 0), ("fact 1", 0)]


def test_events_that_waited_are_taken_a_few_at_a_time(world: World) -> None:
    world.partition.handle(in_slices(2))
    for number in range(2 * EVENTS_PER_STEP):
        world.partition.handle([Reply(100 + number, "later")])
    counts = [len(world.owner.replies)]
    while world.steps:
        world.run_step()
        counts.append(len(world.owner.replies))

    assert counts[-1] == 2 + 2 * EVENTS_PER_STEP
    assert max(after - before for before, after in pairwise(counts)) <= EVENTS_PER_STEP


def test_unloading_performs_the_slices_that_are_left(world: World) -> None:
    world.partition.handle(in_slices(3))
    world.partition.handle([Reply(7, "refused")])
    world.partition.unload()
    while world.steps:
        world.run_step()

    assert [token for token, _ in world.owner.replies] == [0, 1, 2, 7]
