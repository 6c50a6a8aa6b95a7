"""Heartbeats and sessions (G18, G19, G20, §7.4, §8.1)."""

from collections.abc import Callable

import pytest

from ottla.coordinator.classic.causes import SessionTimer
from ottla.coordinator.events import DeleteGroup
from ottla.coordinator.facts import Cause, MemberRemoved, RebalanceStarted, SessionExpired
from ottla.coordinator.runtime.effects import TimerFired
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell


def test_heartbeat_while_preparing_renews_and_asks_to_rejoin(shell: Shell) -> None:
    """G20"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    c1.join()
    for _ in range(5):
        shell.advance(9_999)
        assert c2.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.facts_of(MemberRemoved) == []


def test_a_heartbeat_in_completing_rebalance_is_answered_none(shell: Shell) -> None:
    """T-2"""
    c1, c2 = shell.client("c1"), shell.client("c2")
    c1.join()
    c2.join()
    shell.advance(0)
    assert c1.joined
    assert c2.joined.error is ErrorCode.NONE
    assert c2.heartbeat() is ErrorCode.NONE


def test_heartbeat_in_an_empty_unknown_or_dead_group(shell: Shell) -> None:
    stranger = shell.client("c", member_id="m", generation=1)
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    (client,) = shell.stable_group("c1")
    client.leave()
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert client.heartbeat() is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "unknown", "group_instance_id": "instance", "generation": 9}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "other", "generation": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown", "group_instance_id": None, "generation": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({}, ErrorCode.NONE),
    ],
)
def test_order_of_checks(shell: Shell, changes: dict, error: ErrorCode) -> None:
    """T-1"""
    (client,) = shell.stable_group("c1", instance_id="instance")
    assert client.heartbeat(**changes) is error


def test_silent_member_is_removed_at_its_session_timeout(shell: Shell) -> None:
    """G19"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=10_000)
    shell.advance(4_000)
    c1.heartbeat()
    c2.heartbeat()
    shell.advance(6_000)
    c1.heartbeat()
    shell.advance(3_999)
    assert shell.state() == "Stable"

    shell.advance(1)

    assert shell.state() == "PreparingRebalance"
    assert shell.facts_of(SessionExpired) == [
        SessionExpired(group_id="g", generation=1, member_id=c2.member_id, session_timeout_ms=10_000)
    ]
    (started,) = shell.facts_of(RebalanceStarted)
    assert (started.cause, started.member_id) == (Cause.SESSION_EXPIRED, c2.member_id)
    assert c2.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_silent_member_leaves_an_empty_group(shell: Shell) -> None:
    """G19"""
    shell.stable_group("c1", session_timeout_ms=10_000)
    shell.advance(10_000)
    assert shell.states() == ["Stable", "PreparingRebalance", "Empty"]
    assert shell.timers == {}


def test_session_timer_of_an_unknown_member_does_nothing(shell: Shell) -> None:
    """§8.1.4"""
    shell.stable_group("c1")
    assert shell.happen(TimerFired(SessionTimer("g", "unknown"))) == []


RENEWALS = {
    "heartbeat": Client.heartbeat,
    "join": Client.join,
    "sync": Client.sync,
    "commit": lambda client: client.commit(1),
}


@pytest.mark.parametrize("request_of", RENEWALS.values(), ids=RENEWALS.keys())
def test_every_request_of_a_member_renews_its_session(shell: Shell, request_of: Callable[[Client], object]) -> None:
    """G18"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=10_000)
    shell.advance(6_000)
    request_of(c2)
    c1.heartbeat()
    shell.advance(6_000)
    c1.heartbeat()
    assert shell.state() == "Stable"
    shell.advance(4_000)
    assert c2.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_moved_coordinator_starts_every_session_again(shell: Shell) -> None:
    """G18"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=10_000)
    shell.advance(9_000)

    shell.move_coordinator()

    shell.advance(9_999)
    assert c1.heartbeat() is ErrorCode.NONE
    shell.advance(1)
    assert c1.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert c2.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_request_of_an_old_generation_renews_nothing(shell: Shell) -> None:
    """I-13"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=10_000)
    shell.advance(9_000)
    c1.heartbeat()
    c2.heartbeat(generation=0)
    c2.commit(1, generation=0)
    c2.sync(generation=0)
    shell.advance(1_000)
    assert shell.state() == "PreparingRebalance"
    assert c2.member_id not in shell.group().members


def test_a_heartbeat_sets_no_timer(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    before, deadline = shell.armed, shell.timers[SessionTimer("g", client.member_id)]
    shell.advance(1_000)
    client.heartbeat()
    assert shell.armed == before
    assert shell.timers[SessionTimer("g", client.member_id)] == deadline


def test_a_session_that_was_made_shorter_ends_earlier(shell: Shell) -> None:
    (client,) = shell.stable_group("c1", session_timeout_ms=60_000)
    client.session_timeout_ms = 6_000
    client.join()
    client.sync_all([client])
    shell.advance(6_000)
    assert shell.state() == "Empty"


def test_sessions_start_when_the_join_phase_ends(shell: Shell) -> None:
    """G19: §8.4.4: a new member's five minutes are over with its first answer, delivered or not (§8.4.5)."""
    silent, lively = shell.client("c1", session_timeout_ms=10_000), shell.client("c2", session_timeout_ms=10_000)
    silent.join()
    lively.join()
    shell.advance(0)
    assert lively.joined.generation == 1
    shell.advance(9_999)
    assert lively.heartbeat() is ErrorCode.NONE
    shell.advance(1)
    assert lively.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(shell.group().members) == [lively.member_id]
