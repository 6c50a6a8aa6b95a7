"""Facts that are noted for metrics: counted when they are asked for, or when there are many."""

import io
import json
from pathlib import Path

from ottla.broker.coordinators.observers import NOTED_MAX, NotedFacts
from ottla.broker.logging import LazyLog
from ottla.coordinator.facts import Fact, GroupLoaded, OffsetsCommitted
from tests.broker.test_coordinator_topic import committed, creatable, created, found, running

COMMITTED = OffsetsCommitted(group_id="g", member_id="", partitions=1)


async def test_facts_are_noted_until_they_are_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        handed_on: list[tuple[Fact, int]] = []
        facts = NotedFacts(LazyLog(), lambda fact, now_ms: handed_on.append((fact, now_ms)))
        broker.broker.groups.noted_facts = facts
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})

        assert (COMMITTED in [fact for fact, _ in facts.noted], handed_on) == (True, [])
        noted = list(facts.noted)
        facts.hand_on()
        assert (facts.noted, handed_on) == ([], noted)


async def test_many_facts_are_not_kept_until_then(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        handed_on: list[Fact] = []
        facts = NotedFacts(LazyLog(), lambda fact, _now_ms: handed_on.append(fact))
        broker.broker.groups.noted_facts = facts
        facts.noted.extend([(COMMITTED, 0)] * (NOTED_MAX - 1))
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})

        assert len(handed_on) == NOTED_MAX
        assert len(facts.noted) < NOTED_MAX


def test_observer_that_raises_is_logged_and_gets_the_next_fact() -> None:
    stream = io.StringIO()
    seen: list[Fact] = []

    def observer(fact: Fact, _now_ms: int) -> None:
        if isinstance(fact, GroupLoaded):
            raise ValueError("cannot cope")
        seen.append(fact)

    facts = NotedFacts(LazyLog("json", "error", stream), observer)
    loaded = GroupLoaded(group_id="g", generation=1, state="Stable", members=0, offsets=0)  # type: ignore[arg-type]
    facts.noted = [(loaded, 1), (COMMITTED, 2)]
    facts.hand_on()

    assert seen == [COMMITTED]
    assert [json.loads(line)["notified_of"] for line in stream.getvalue().splitlines()] == ["GroupLoaded"]
