"""Why a group rebalanced, and what it cost, from its events."""

from typing import Any

import pytest

from ottla.cli.operations.group_events import POLL_TIMEOUT
from ottla.cli.operations.rebalances import GroupRebalances, Share, causes, waits
from tests.cli.group_events import WALL_AHEAD_MS, event, member, rebalance


def found(*events: dict[str, Any]) -> GroupRebalances:
    group = GroupRebalances("g")
    for each in events:
        group.add(each)
    group.end()
    return group


def test_others_wait_for_the_last_member_to_join() -> None:
    group = found(*rebalance(0, 1, {"a": 0, "b": 300}), *rebalance(60_000, 2, {"a": 16_000, "b": 100}))

    assert [(each.generation, each.duration_ms, each.waited_for, each.waited_ms) for each in group.rebalances] == [
        (2, 1300, "b", 300),
        (3, 17_000, "a", 16_000),
    ]
    assert group.rebalance_ms == 18_300
    assert waits(group.rebalances) == [Share("a", 1, 16_000), Share("b", 1, 300)]


def test_members_that_share_a_client_id_are_named_by_their_ids() -> None:
    one, other = ({**member("app"), "member_id": f"app-00000{number}"} for number in (1, 2))
    ids = {"generation": 2, "leader_id": "", "member_ids": ["app-000001", "app-000002"]}
    group = found(
        event("rebalance_started", 0, generation=1, cause="member joined", member_id="app-000001"),
        event("member_rejoined", 100, generation=1, join_phase_ms=100, owned={}, **one),
        event("member_rejoined", 900, generation=1, join_phase_ms=900, owned={}, **other),
        event("generation_started", 900, join_phase_ms=900, protocol_name="range", **ids),
    )

    assert (group.rebalances[0].member, group.rebalances[0].waited_for) == ("app…000001", "app…000002")


def test_initial_delay_is_no_wait_for_a_member() -> None:
    empty = event("state_changed", 0, from_state="Empty", to_state="PreparingRebalance", reason="")
    group = found(empty, *rebalance(0, 0, {"a": 0, "b": 3000}))

    assert (group.rebalances[0].is_initial, group.rebalances[0].waited_for) == (True, None)
    assert group.rebalances[0].join_phase_ms == 3000


def test_member_that_is_dropped_is_whom_the_others_waited_for() -> None:
    started = event("rebalance_started", 0, generation=1, cause="member joined", member_id="new")
    back = event("member_rejoined", 100, generation=1, join_phase_ms=100, owned={}, **member("a"))
    dropped = event("member_removed", 45_000, generation=1, cause="did not rejoin in time", **member("slow"))
    group = found(started, back, dropped)

    assert (group.rebalances[0].waited_for, group.rebalances[0].waited_ms) == ("slow", 45_000)
    assert group.removals == [("slow", "did not rejoin in time")]


def test_removal_that_sets_a_rebalance_off_is_no_wait() -> None:
    removed = event("member_removed", 0, generation=1, cause="session expired", **member("gone"))
    group = found(removed, *rebalance(0, 1, {"a": 200}, cause="session expired", member_id="gone-000001"))

    assert group.rebalances[0].waited_for == "a"
    assert causes(group.rebalances) == [Share("session expired", 1, 1200, ("gone",))]


@pytest.mark.parametrize(
    "reason", ["consumer poll timeout has expired.", "maximum poll interval (max.poll.interval.ms) exceeded"]
)
def test_member_that_does_not_poll_is_a_cause_of_its_own(reason: str) -> None:
    group = found(*rebalance(0, 1, {"a": 0}, cause="member left", client_reason=reason))

    assert [share.name for share in causes(group.rebalances)] == [f"member left, {POLL_TIMEOUT}"]


def test_time_without_all_partitions_counts_overlaps_once() -> None:
    group = found(*rebalance(0, 1, {"a": 0, "b": 0}), *rebalance(60_000, 2, {"a": 1000, "b": 4000}))

    assert {key: (each.times, each.total_ms) for key, each in group.unowned.items()} == {
        ("t", 0): (1, 4000),
        ("t", 1): (1, 1000),
    }
    assert group.incomplete_ms == 4000


def test_partition_that_no_member_was_given_has_no_owner_now() -> None:
    group = found(
        *rebalance(0, 1, {"a": 0, "b": 0}), *rebalance(60_000, 2, {"a": 0}), event("dropped", 90_000, count=3)
    )

    left = group.unowned["t", 1]
    assert (left.since_ms, left.total_ms) == (WALL_AHEAD_MS + 61_000, 29_000)
    assert group.unowned["t", 0].since_ms is None
    assert not group.is_empty
    assert group.dropped_events == 3


def test_group_without_members_is_not_without_partitions() -> None:
    last = event("member_removed", 10_000, generation=2, cause="member left", **member("a"))
    empty = event("state_changed", 10_500, from_state="Stable", to_state="Empty", reason="no members left")
    group = found(*rebalance(0, 1, {"a": 0}), last, empty, event("dropped", 90_000, count=1))

    assert group.incomplete_ms == 500
    assert group.unowned["t", 0].since_ms is None
    assert group.is_empty


def test_rebalance_is_superseded_by_the_next_one() -> None:
    begun = event(
        "generation_started", 500, generation=2, join_phase_ms=500, protocol_name="", leader_id="", member_ids=[]
    )
    group = found(
        event("rebalance_started", 0, generation=1, cause="member joined"), begun, *rebalance(2000, 2, {"a": 0})
    )

    assert [(each.outcome, each.duration_ms) for each in group.rebalances] == [
        ("superseded", 2000),
        ("completed", 1000),
    ]
