"""How long members are waited for (G05, G06, G07, §8.2-§8.4)."""

from collections.abc import Callable

import pytest

from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingSyncTimer
from ottla.coordinator.facts import Cause, GenerationStarted, JoinPhaseExtended, MemberRemoved
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.runtime.effects import TimerFired
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell


@pytest.fixture
def delayed() -> Shell:
    return Shell(GroupConfig(group_initial_rebalance_delay_ms=3_000))


def end_of_phase(shell: Shell, joins_at: list[int], rebalance_timeout_ms: int) -> int:
    """When the first generation starts if members join at these moments."""
    for at_ms in joins_at:
        shell.advance(at_ms - shell.now_ms)
        shell.client(f"c{at_ms}", rebalance_timeout_ms=rebalance_timeout_ms).join()
    shell.advance(60_000)
    return next(now_ms for now_ms, fact in shell.facts if isinstance(fact, GenerationStarted))


def test_a_single_member_waits_the_delay(delayed: Shell) -> None:
    """G05"""
    assert end_of_phase(delayed, [0], 60_000) == 3_000


@pytest.mark.parametrize(
    ("joins_at", "end_ms"),
    [
        ([0], 3_000),
        ([0, 1_000], 6_000),
        ([0, 1_000, 2_000], 6_000),
        ([0, 1_000, 4_000], 9_000),
        # The example of docs/semantics §8.2.4: a join in every window, R = 10 s.
        ([0, 1_000, 4_000, 7_000], 10_000),
        ([0, 1_000, 4_000, 7_000, 9_500], 10_000),
    ],
)
def test_new_members_prolong_wait_up_to_the_rebalance_timeout(delayed: Shell, joins_at: list[int], end_ms: int) -> None:
    """G05"""
    assert end_of_phase(delayed, joins_at, 10_000) == end_ms


def test_all_that_joined_in_time_are_in_the_first_generation(delayed: Shell) -> None:
    """G05"""
    end_of_phase(delayed, [0, 1_000, 4_000], 10_000)
    (started,) = delayed.facts_of(GenerationStarted)
    assert (started.generation, len(started.member_ids), started.join_phase_ms) == (1, 3, 9_000)
    assert len(delayed.facts_of(JoinPhaseExtended)) == 2


def test_initial_delay_does_not_end_when_all_have_joined(delayed: Shell) -> None:
    """G05, G06, T-4"""
    client = delayed.client("c1")
    client.join()
    client.join(member_id="c1-0001")
    delayed.advance(2_999)
    assert client.joined is None
    delayed.advance(1)
    assert client.joined.generation == 1


def test_a_delay_of_zero_ends_at_the_first_tick(shell: Shell) -> None:
    """G05"""
    client = shell.client("c1")
    assert client.join() is None
    assert shell.timers[JoinPhaseTimer("g")][0] == shell.now_ms
    shell.advance(0)
    assert client.joined.generation == 1


def test_later_rebalance_ends_when_the_last_member_has_rejoined(shell: Shell) -> None:
    """G06"""
    c1, c2, c3 = shell.stable_group("c1", "c2", "c3")
    c1.join()
    c2.join()
    assert c1.joined is None

    c3.join()

    assert [client.joined.generation for client in (c1, c2, c3)] == [2, 2, 2]
    assert JoinPhaseTimer("g") not in shell.timers


def test_a_promised_member_id_holds_the_phase_open(shell: Shell) -> None:
    """G06, T-6"""
    (c1,) = shell.stable_group("c1")
    newcomer = shell.client("c2", knows_member_ids=True)
    newcomer.member_id = shell.send(newcomer.join_event(shell.token())).member_id
    c1.join()
    assert c1.joined is None

    newcomer.join()

    assert c1.joined.generation == newcomer.joined.generation == 2


@pytest.mark.parametrize("goes", [lambda client: client.leave(), lambda client: client.shell.advance(10_000)])
def test_pending_member_that_is_gone_is_not_waited_for(shell: Shell, goes: Callable[[Client], object]) -> None:
    """G06, T-6"""
    (c1,) = shell.stable_group("c1")
    newcomer = shell.client("c2", knows_member_ids=True)
    newcomer.member_id = shell.send(newcomer.join_event(shell.token())).member_id
    c1.join()

    goes(newcomer)

    assert c1.joined.generation == 2


def test_members_that_have_not_rejoined_in_time_are_removed(shell: Shell) -> None:
    """G07"""
    clients = shell.stable_group("c1", "c2", "c3", session_timeout_ms=100_000)
    clients[1].rebalance_timeout_ms = 60_000
    clients[0].join()
    shell.advance(59_999)
    assert clients[0].joined is None

    shell.advance(1)

    assert clients[0].joined.generation == 2
    assert list(shell.group().members) == [clients[0].member_id]
    removed = shell.facts_of(MemberRemoved)
    assert [(fact.member_id, fact.cause) for fact in removed] == [
        (clients[1].member_id, Cause.NOT_REJOINED),
        (clients[2].member_id, Cause.NOT_REJOINED),
    ]
    assert clients[1].heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_largest_rebalance_timeout_of_the_members_counts(shell: Shell) -> None:
    """G07"""
    short = shell.client("c1", rebalance_timeout_ms=6_000)
    long = shell.client("c2", rebalance_timeout_ms=20_000)
    short.join()
    long.join()
    shell.advance(0)
    short.sync_all([short, long])
    long.sync()
    short.join()
    assert shell.timers[JoinPhaseTimer("g")][0] == 20_000


def test_static_member_that_has_not_rejoined_stays(shell: Shell) -> None:
    """G07: T-5 and §8.4.2: a static member that has not rejoined stays a member and is assigned partitions."""
    leader = shell.client("c1", session_timeout_ms=100_000)
    static = shell.client("c2", instance_id="instance", session_timeout_ms=100_000)
    leader.join()
    static.join()
    shell.advance(0)
    leader.sync_all([leader, static])

    leader.join()
    shell.advance(60_000)

    assert leader.joined.generation == 2
    assert [member.group_instance_id for member in leader.joined.members] == [None, "instance"]
    leader.sync({static.joined.member_id: b"for the static one"})
    assert static.sync(generation=2).assignment == b"for the static one"


def test_sessions_drain_group_of_absent_static_members(shell: Shell) -> None:
    """G07"""
    dynamic = shell.client("c1", session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
    static = shell.client("c2", instance_id="instance", session_timeout_ms=50_000, rebalance_timeout_ms=20_000)
    dynamic.join()
    static.join()
    shell.advance(0)
    dynamic.sync_all([dynamic, static])
    static.sync()

    dynamic.leave()
    shell.advance(20_000)
    assert shell.state() == "PreparingRebalance"
    assert shell.facts_of(JoinPhaseExtended)[-1].join_deadline_ms == 40_000
    shell.advance(30_000)

    assert shell.state() == "Empty"
    assert shell.group().generation == 2


def test_earliest_member_present_leads_when_leader_is_absent(shell: Shell) -> None:
    leader = shell.client("c1", instance_id="instance", session_timeout_ms=100_000)
    others = [shell.client(f"c{i}", session_timeout_ms=100_000) for i in (2, 3, 4)]
    for client in (leader, *others):
        client.join()
    shell.advance(0)
    leader.sync_all([leader, *others])
    for client in others:
        client.sync()
    shell.client("c5", session_timeout_ms=100_000).join()
    others[2].join()
    others[1].join()

    shell.advance(60_000)

    assert {client.joined.leader_id for client in others[1:]} == {others[1].member_id}


def test_a_parked_member_outlives_its_session(shell: Shell) -> None:
    """T-8: §8.1.2: a member cannot heartbeat while its join waits."""
    patient, slow = shell.stable_group("c1", "c2", session_timeout_ms=6_000)
    patient.join()
    for _ in range(10):
        shell.advance(5_000)
        assert slow.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    slow.join()
    assert patient.joined.generation == slow.joined.generation == 2
    assert shell.facts_of(MemberRemoved) == []


def test_a_late_timer_of_a_phase_that_has_ended_does_nothing(shell: Shell) -> None:
    shell.stable_group("c1")
    for key in (JoinPhaseTimer("g"), JoinPhaseTimer("gone"), PendingSyncTimer("g")):
        assert shell.happen(TimerFired(key)) == []


def test_a_timer_that_fires_before_its_deadline_is_set_again(shell: Shell) -> None:
    c1, _ = shell.stable_group("c1", "c2")
    c1.join()
    deadline = shell.timers.pop(JoinPhaseTimer("g"))[0]

    shell.happen(TimerFired(JoinPhaseTimer("g")))

    assert shell.timers[JoinPhaseTimer("g")][0] == deadline
    assert shell.state() == "PreparingRebalance"
