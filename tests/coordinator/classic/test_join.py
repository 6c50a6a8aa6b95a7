"""JoinGroup: order of checks, who is let in, what each state does with it (G04, G24, G26, §7.1)."""

import pytest

from ottla.coordinator.events import DeleteGroup, LeaveGroup, LeavingMember
from ottla.coordinator.facts import Cause, MemberJoined, RebalanceStarted
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.results import JoinResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell, subscription

OTHER = (("range", subscription("t", "u")),)


def refused(error: ErrorCode, member_id: str = "") -> JoinResult:
    return JoinResult(error, member_id)


# Order of checks


def test_session_timeout_out_of_bounds_is_refused_first(shell: Shell) -> None:
    """G26"""
    client = shell.client("c", member_id="unknown")
    for session_timeout_ms in (5_999, 1_800_001):
        answer = client.join(session_timeout_ms=session_timeout_ms, protocols=())
        assert answer == refused(ErrorCode.INVALID_SESSION_TIMEOUT, "unknown")
    assert shell.group() is None


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(shell: Shell, session_timeout_ms: int) -> None:
    """G26"""
    assert shell.client("c").join(session_timeout_ms=session_timeout_ms) is None
    assert shell.state() == "PreparingRebalance"


def test_an_unknown_group_knows_no_member_ids(shell: Shell) -> None:
    assert shell.client("c", member_id="old").join() == refused(ErrorCode.UNKNOWN_MEMBER_ID, "old")
    assert shell.group() is None


def dead_group(shell: Shell) -> Client:
    """A group whose deletion is on its way into the log."""
    (client,) = shell.stable_group("c")
    client.leave()
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert shell.state() == "Dead"
    return client


def test_dead_group_accepts_no_member(shell: Shell) -> None:
    """G04"""
    client = dead_group(shell)

    assert client.join() == refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.member_id)
    assert shell.client("new").join() == refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


INCOMPATIBLE = {
    "no protocols": {"protocols": ()},
    "other type": {"protocol_type": "connect"},
    "no type": {"protocol_type": ""},
    "no common protocol": {"protocols": (("sticky", b""),)},
}


@pytest.mark.parametrize("changes", INCOMPATIBLE.values(), ids=INCOMPATIBLE.keys())
def test_incompatible_protocols_are_refused_before_member_lookup(shell: Shell, changes: dict) -> None:
    """G26"""
    shell.stable_group("c1", "c2")

    for member_id in ("", "unknown"):
        answer = shell.client("new", member_id=member_id).join(**changes)
        assert answer == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    assert shell.state() == "Stable"


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_an_empty_group_wants_a_type_and_protocols(shell: Shell, changes: dict) -> None:
    """G26"""
    assert shell.client("c").join(**changes) == refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


IDENTITIES = {
    "unknown id": ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
    "unknown instance id": ("static-0002", "elsewhere", ErrorCode.UNKNOWN_MEMBER_ID),
    "another's instance id": ("c1-0001", "static", ErrorCode.FENCED_INSTANCE_ID),
    "old id of the static member": ("static-0000", "static", ErrorCode.FENCED_INSTANCE_ID),
}


@pytest.mark.parametrize(("member_id", "instance_id", "error"), IDENTITIES.values(), ids=IDENTITIES.keys())
def test_a_member_is_who_its_ids_say(shell: Shell, member_id: str, instance_id: str, error: ErrorCode) -> None:
    """G04, G25"""
    plain, static = shell.client("c1"), shell.client("c2", instance_id="static")
    plain.join()
    static.join()
    shell.advance(0)
    assert static.joined.member_id == "static-0002"

    answer = shell.client("x", member_id=member_id, instance_id=instance_id).join()

    assert answer == refused(error, member_id)


# By state


def test_empty_the_first_member_starts_the_rebalance(shell: Shell) -> None:
    """G04"""
    client = shell.client("c1")

    assert client.join(reason="starting up") is None

    assert shell.states() == ["Empty", "PreparingRebalance"]
    (joined,) = shell.facts_of(MemberJoined)
    assert (joined.member_id, joined.client_host, joined.client_reason) == ("c1-0001", "/c1.example", "starting up")
    shell.advance(0)
    assert client.joined == JoinResult(
        error=ErrorCode.NONE,
        member_id="c1-0001",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id="c1-0001",
        members=(("c1-0001", None, subscription("t")),),
    )


def test_empty_after_members_left_a_known_id_is_unknown(shell: Shell) -> None:
    """G04"""
    (client,) = shell.stable_group("c1")
    client.leave()
    assert shell.state() == "Empty"
    assert client.join() == refused(ErrorCode.UNKNOWN_MEMBER_ID, "c1-0001")


def test_preparing_new_and_known_members_keep_waiting(shell: Shell) -> None:
    """G04"""
    c1, c2, _c3 = shell.stable_group("c1", "c2", "c3")
    c3_new = shell.client("c4")
    c3_new.join()

    assert c1.join() is None
    assert c2.join(protocols=OTHER) is None

    assert shell.state() == "PreparingRebalance"
    assert shell.group().members[c2.member_id].protocols == OTHER
    assert len(shell.facts_of(RebalanceStarted)) == 1


def completing_group(shell: Shell) -> tuple[Client, Client]:
    leader, follower = shell.client("c1"), shell.client("c2")
    leader.join()
    follower.join()
    shell.advance(0)
    assert leader.joined.generation == follower.joined.generation == 1
    shell.facts.clear()
    return leader, follower


def test_completing_an_unchanged_member_is_answered_at_once(shell: Shell) -> None:
    """G04"""
    leader, follower = completing_group(shell)
    first_leader, first_follower = leader.joined, follower.joined

    assert leader.join() == first_leader
    assert follower.join() == first_follower

    assert len(first_leader.members) == 2
    assert first_follower.members == ()
    assert shell.state() == "CompletingRebalance"


def test_completing_a_changed_member_restarts_the_rebalance(shell: Shell) -> None:
    """G04"""
    leader, follower = completing_group(shell)
    follower.sync()

    assert leader.join(protocols=OTHER) is None

    assert shell.states() == ["CompletingRebalance", "PreparingRebalance"]
    assert follower.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.facts_of(RebalanceStarted)[0].cause is Cause.METADATA_CHANGED


def test_completing_a_new_member_restarts_the_rebalance(shell: Shell) -> None:
    """G04"""
    completing_group(shell)
    assert shell.client("c3").join() is None
    assert shell.states() == ["CompletingRebalance", "PreparingRebalance"]


def test_stable_an_unchanged_follower_is_answered_at_once(shell: Shell) -> None:
    """G04"""
    _, follower = shell.stable_group("c1", "c2")
    first = follower.joined

    assert follower.join() == first
    assert shell.states() == []


def test_stable_the_leader_restarts_the_rebalance(shell: Shell) -> None:
    """G04"""
    leader, _ = shell.stable_group("c1", "c2")

    assert leader.join(reason="topics changed") is None

    assert shell.states() == ["Stable", "PreparingRebalance"]
    (started,) = shell.facts_of(RebalanceStarted)
    assert (started.cause, started.member_id) == (Cause.LEADER_REJOINED, leader.member_id)
    assert (started.client_reason, started.generation, started.members) == ("topics changed", 1, 2)


def test_stable_a_changed_follower_restarts_the_rebalance(shell: Shell) -> None:
    """G04"""
    _, follower = shell.stable_group("c1", "c2")
    assert follower.join(protocols=OTHER) is None
    assert shell.states() == ["Stable", "PreparingRebalance"]
    assert shell.facts_of(RebalanceStarted)[0].cause is Cause.METADATA_CHANGED


def test_stable_a_new_member_restarts_the_rebalance(shell: Shell) -> None:
    """G04"""
    shell.stable_group("c1", "c2")
    assert shell.client("c3").join() is None
    assert shell.states() == ["Stable", "PreparingRebalance"]
    assert shell.facts_of(RebalanceStarted)[0].cause is Cause.MEMBER_JOINED


def test_repeated_join_replaces_the_parked_one(shell: Shell) -> None:
    """§7.1.6"""
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    older = c1.join_tokens[-1]

    c1.join()

    assert shell.answers[older] == refused(ErrorCode.REBALANCE_IN_PROGRESS, c1.member_id)
    assert c1.joined is None
    assert shell.group().parked_joins == 1
    c2.join()
    assert c1.joined.generation == 2


# Protocols


def test_common_protocol_with_most_votes_is_chosen(shell: Shell) -> None:
    """§5.7"""
    preferences = [("a", "b", "c"), ("c", "b"), ("x", "c", "b")]
    clients = [
        shell.client(f"c{i}", protocols=tuple((p, p.encode()) for p in names)) for i, names in enumerate(preferences)
    ]
    for client in clients:
        client.join()
    shell.advance(0)

    # c0 votes for b, its first that all know; the others for c.
    assert {client.joined.protocol_name for client in clients} == {"c"}
    assert [member.metadata for member in clients[0].joined.members] == [b"c"] * 3


def test_a_tie_goes_to_the_leaders_preference(shell: Shell) -> None:
    first = shell.client("c1", protocols=(("b", b""), ("a", b"")))
    second = shell.client("c2", protocols=(("a", b""), ("b", b"")))
    first.join()
    second.join()
    shell.advance(0)
    assert first.joined.protocol_name == "b"


def test_a_protocol_named_twice_counts_once(shell: Shell) -> None:
    """§7.1.8"""
    first = shell.client("c1", protocols=(("a", b"1"), ("a", b"2")))
    second = shell.client("c2", protocols=(("a", b"3"),))
    first.join()
    assert second.join() is None
    shell.advance(0)
    assert [member.metadata for member in first.joined.members] == [b"1", b"3"]


# Size


def sized(size: int) -> Shell:
    return Shell(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=size))


FULL = refused(ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_full_group_takes_no_new_member() -> None:
    """G26"""
    shell = sized(2)
    _leader, follower = shell.stable_group("c1", "c2")
    assert shell.client("c3").join() == FULL
    assert shell.state() == "Stable"
    assert follower.join().error is ErrorCode.NONE


def test_static_member_may_restart_while_its_group_is_full() -> None:
    """G25, G26"""
    shell = sized(2)
    shell.stable_group("c1", "c2")
    shell.send(LeaveGroup(shell.token(), "g", (LeavingMember("c2-0002"),)))
    static = shell.client("c3", instance_id="instance")
    static.join()
    shell.client("c1", member_id="c1-0001").join()
    assert shell.state() == "CompletingRebalance"
    assert shell.client("c4").join() == FULL
    assert shell.client("c3", instance_id="instance").join() is None
    assert static.joined.member_id == "instance-0003"
    assert list(shell.group().members) == ["c1-0001", "instance-0004"]


def test_full_group_takes_no_member_while_it_completes() -> None:
    """G26"""
    shell = sized(2)
    leader, _ = completing_group(shell)
    assert shell.client("c3").join() == FULL
    assert leader.join().error is ErrorCode.NONE


def test_while_joins_are_collected_the_first_come_are_served() -> None:
    """G26"""
    shell = sized(2)
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    late = shell.client("c3")
    assert late.join() is None

    assert c1.join() is None, "a parked member keeps its place"
    assert c2.join() == FULL

    assert c1.joined.generation == late.joined.generation == 2
    assert list(shell.group().members) == ["c1-0001", "c3-0003"]


def test_pending_member_of_full_group_holds_nothing_up() -> None:
    """G26"""
    shell = sized(2)
    c1, c2 = shell.stable_group("c1", "c2")
    c2.leave()
    c1.join()
    c1.sync_all([c1])
    promised = shell.client("c3", knows_member_ids=True)
    promised.member_id = shell.send(promised.join_event(shell.token())).member_id
    c4 = shell.client("c4")
    c4.join()
    c1.join()
    assert shell.state() == "PreparingRebalance"

    assert promised.join() == FULL

    assert shell.state() == "CompletingRebalance"
    assert shell.group().pending_members == {}
