"""A scrape counts what has happened to groups before it charges what goes on; facts come in between its slices."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.admin.metrics.group_labels import GroupLabels
from ottla.broker.admin.metrics.group_source import (
    FACTS_PER_ITEM,
    PROTOCOL_TYPE_LENGTH_MAX,
    PROTOCOL_TYPES_MAX,
    GroupCounts,
    GroupSource,
)
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import Fact, MemberSynced, OffsetsCommitted, StateChanged
from ottla.timer.wheel import TimingWheel


class Scraped:
    """The source of a broker whose time the test moves, with a member that has waited for the leader since 0 ms."""

    def __init__(self) -> None:
        self.now_ms = 0
        wheel = TimingWheel()
        runtime: Any = SimpleNamespace(
            config=ServerConfig(),
            log=LazyLog(),
            broker_clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            schedule=lambda wait_ms, action: wheel.schedule(self.now_ms + wait_ms, action),
        )
        self.groups: dict[str, Any] = {}
        shards: Any = SimpleNamespace(loaded_shards=lambda: [SimpleNamespace(groups=self.groups)])
        self.source = GroupSource(runtime, None, shards, GroupLabels())  # type: ignore[arg-type]
        self.note(changed(GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE))
        member = {"group_id": "g", "generation": 1, "member_id": "m", "group_instance_id": None}
        self.note(MemberSynced(**member, is_leader=False, sync_phase_ms=0))  # type: ignore[arg-type]

    @property
    def counts(self) -> GroupCounts:
        return self.source._counts["g"]

    def note(self, fact: Fact) -> None:
        if not self.source.facts:
            self.source.facts.begin()
        self.source.facts += (fact, self.now_ms)


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def changed(before: GroupState, after: GroupState) -> StateChanged:
    return StateChanged(group_id="g", generation=1, from_state=before, to_state=after, reason="")


def test_fact_of_a_moment_before_the_charge_ends_the_wait(scraped: Scraped) -> None:
    """Charged first, the counter would fall at the next scrape."""
    scrape = scraped.source.prepare()
    next(scrape)
    next(scrape)
    counts = scraped.counts
    scraped.now_ms = 60
    scraped.note(changed(GroupState.COMPLETING_REBALANCE, GroupState.STABLE))
    scraped.now_ms = 100
    for _ in scrape:
        pass

    assert counts.waits.waited_ms == {"leader": 60}


def test_facts_are_counted_in_slices_of_a_scrape(scraped: Scraped) -> None:
    for _ in range(3 * FACTS_PER_ITEM):
        scraped.note(OffsetsCommitted(group_id="g", member_id="", partitions=1))
    scrape = scraped.source.prepare()
    next(scrape)
    next(scrape)
    assert scraped.counts.commits == FACTS_PER_ITEM - 2
    counts = scraped.counts
    for _ in scrape:
        pass

    assert counts.commits == 3 * FACTS_PER_ITEM


def test_fact_that_is_reported_late_lowers_no_counter(scraped: Scraped) -> None:
    scraped.source.facts.hand_on()
    waits = scraped.counts.waits
    waits.charge(100)
    waits.observe(changed(GroupState.COMPLETING_REBALANCE, GroupState.STABLE), 60)

    assert waits.waited_ms == {"leader": 100}
    waits.charge(200)
    assert waits.waited_ms == {"leader": 100}


def test_protocol_types_that_clients_choose_are_few_series(scraped: Scraped) -> None:
    for number in range(1000):
        scraped.groups[f"g{number}"] = of_type(f"g{number}", f"type{number}")
    scraped.groups["long"] = of_type("long", "x" * (PROTOCOL_TYPE_LENGTH_MAX + 1))
    scraped.groups["simple"] = of_type("simple", None)
    for _ in range(2):
        for _ in scraped.source.prepare():
            pass
    found = dict(filter(None, scraped.source.families["ottla_groups"]()))

    assert len(found) == PROTOCOL_TYPES_MAX + 2
    assert found['state="Empty",protocol_type="type0"'] == 1
    assert found['state="Empty",protocol_type=""'] == 1
    assert found['state="Empty",protocol_type="_other"'] == 1001 - PROTOCOL_TYPES_MAX


def of_type(group: str, protocol_type: str | None) -> Any:
    return SimpleNamespace(
        group_id=group, state=GroupState.EMPTY, protocol_type=protocol_type, parked_joins=0, members={}
    )
