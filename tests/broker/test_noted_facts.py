"""Facts that are noted for metrics: handed on when they are asked for, and a second after the first at the latest."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.coordinators.observers import FACTS_PER_STEP, NOTED_MS_MAX, NotedFacts
from ottla.broker.logging import LazyLog
from ottla.coordinator.facts import Fact, GroupLoaded, OffsetsCommitted
from ottla.timer.wheel import TimingWheel
from tests.broker.test_coordinator_topic import committed, creatable, created, found, running

COMMITTED = OffsetsCommitted(group_id="g", member_id="", partitions=1)


class FakeRuntime:
    """Timers by a wheel that the test turns; what comes soon comes when it says so."""

    def __init__(self, log: LazyLog) -> None:
        self.log = log
        self.now_ms = 0
        self.wheel = TimingWheel()
        self.coming: list[Callable[[], None]] = []

    def schedule(self, wait_ms: int, action: Callable[[], None]) -> Any:
        return self.wheel.schedule(self.now_ms + wait_ms, action)

    def soon(self, action: Callable[[], None]) -> None:
        self.coming.append(action)

    def pass_ms(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.wheel.advance(self.now_ms)


class Noting:
    """Notes facts as the coordinator does."""

    def __init__(self, log: LazyLog | None = None, observer: Callable[[Fact, int], object] | None = None) -> None:
        self.handed_on: list[tuple[Fact, int]] = []
        self.runtime = FakeRuntime(log or LazyLog())
        self.facts = NotedFacts(self.runtime, observer or (lambda fact, now_ms: self.handed_on.append((fact, now_ms))))  # type: ignore[arg-type]

    def note(self, fact: Fact, now_ms: int) -> None:
        if not self.facts:
            self.facts.begin()
        self.facts += (fact, now_ms)


async def test_coordinator_notes_facts_until_they_are_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        noting = Noting()
        broker.broker.groups.noted_facts = noting.facts
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})

        assert (COMMITTED in noting.facts, noting.handed_on) == (True, [])
        noted = list(noting.facts)
        noting.facts.hand_on()
        assert noting.handed_on == list(zip(noted[::2], noted[1::2], strict=True))
        assert noting.facts == []
        assert len(noting.runtime.wheel) == 1


def test_facts_no_one_asks_for_are_handed_on_after_a_second() -> None:
    noting = Noting()
    noting.note(COMMITTED, 3)
    noting.note(COMMITTED, 4)
    noting.runtime.pass_ms(NOTED_MS_MAX - 1)
    assert noting.handed_on == []
    noting.runtime.pass_ms(1)
    assert (noting.handed_on, noting.facts) == ([(COMMITTED, 3), (COMMITTED, 4)], [])

    noting.note(COMMITTED, 5)
    noting.runtime.pass_ms(NOTED_MS_MAX)
    assert noting.handed_on[2:] == [(COMMITTED, 5)]


def test_facts_after_those_asked_for_need_no_second_timer() -> None:
    noting = Noting()
    noting.note(COMMITTED, 1)
    noting.facts.hand_on()
    noting.note(COMMITTED, 2)

    assert len(noting.runtime.wheel) == 1
    noting.runtime.pass_ms(NOTED_MS_MAX)
    assert noting.handed_on == [(COMMITTED, 1), (COMMITTED, 2)]


async def test_broker_that_stops_leaves_no_fact_and_no_timer(tmp_path: Path) -> None:
    noting = Noting()
    async with running(tmp_path) as broker:
        broker.broker.groups.noted_facts = noting.facts
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})

    assert COMMITTED in [fact for fact, _ in noting.handed_on]
    assert (noting.facts, len(noting.runtime.wheel)) == ([], 0)


def test_step_of_the_loop_hands_on_so_many_facts() -> None:
    noting = Noting()
    for now_ms in range(FACTS_PER_STEP + 1):
        noting.note(COMMITTED, now_ms)
    noting.runtime.pass_ms(NOTED_MS_MAX)
    assert len(noting.handed_on) == FACTS_PER_STEP

    (go_on,) = noting.runtime.coming
    noting.runtime.coming.clear()
    go_on()
    assert [now_ms for _, now_ms in noting.handed_on] == list(range(FACTS_PER_STEP + 1))
    assert noting.runtime.coming == []


def test_observer_that_raises_is_logged_and_gets_the_next_fact() -> None:
    stream = io.StringIO()
    seen: list[Fact] = []

    def observer(fact: Fact, _now_ms: int) -> None:
        if isinstance(fact, GroupLoaded):
            raise ValueError("cannot cope")
        seen.append(fact)

    noting = Noting(LazyLog("json", "error", stream), observer)
    loaded = GroupLoaded(group_id="g", generation=1, state="Stable", members=0, offsets=0)  # type: ignore[arg-type]
    for now_ms, fact in enumerate((loaded, loaded, COMMITTED)):
        noting.note(fact, now_ms)
    noting.facts.hand_on()

    assert seen == [COMMITTED]
    assert [json.loads(line)["notified_of"] for line in stream.getvalue().splitlines()] == ["GroupLoaded"]
