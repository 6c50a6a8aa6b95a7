"""LeaveGroup (G21, G22, G23, §7.5)."""

import pytest

from ottla.coordinator.events import DeleteGroup, ExpireOffsets, LeaveGroup, LeavingMember
from ottla.coordinator.facts import Cause, GenerationStarted, MemberRemoved, RebalanceStarted
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.results import JoinResult, LeaveResult, LeftMember, SyncResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell


def leave(shell: Shell, *members: LeavingMember) -> LeaveResult:
    return shell.send(LeaveGroup(shell.token(), "g", members))


def pending_member(shell: Shell, name: str) -> Client:
    """One that was promised a member id and has not come back with it."""
    client = shell.client(name)
    promise = client.join(require_known_member_id=True, member_id="")
    client.member_id = promise.member_id
    return client


def test_the_leave_of_the_last_missing_member_ends_the_wait(shell: Shell) -> None:
    """G21"""
    c1, c2, c3 = shell.stable_group("c1", "c2", "c3")
    c1.join()
    c2.join()
    assert c1.joined is None

    assert c3.leave() is ErrorCode.NONE

    assert c1.joined.generation == c2.joined.generation == 2
    assert len(c1.joined.members) == 2


def test_a_leave_from_a_stable_group_starts_a_rebalance(shell: Shell) -> None:
    """G22"""
    c1, c2 = shell.stable_group("c1", "c2")

    assert c2.leave(reason="shutting down") is ErrorCode.NONE

    assert shell.states() == ["Stable", "PreparingRebalance"]
    (started,) = shell.facts_of(RebalanceStarted)
    assert (started.cause, started.member_id, started.client_reason) == (
        Cause.MEMBER_LEFT,
        c2.member_id,
        "shutting down",
    )
    (removed,) = shell.facts_of(MemberRemoved)
    assert (removed.cause, removed.client_reason, removed.members) == (Cause.MEMBER_LEFT, "shutting down", 1)
    c1.join()
    c1.sync({c1.member_id: b"everything"})
    assert c1.synced.assignment == b"everything"


def test_leave_of_a_pending_member_rebalances_a_stable_group(shell: Shell) -> None:
    """G22"""
    shell.stable_group("c1")
    pending = pending_member(shell, "c2")

    assert pending.leave() is ErrorCode.NONE

    assert shell.states() == ["Stable", "PreparingRebalance"]


def test_leave_of_a_pending_member_leaves_an_empty_group_alone(shell: Shell) -> None:
    pending = pending_member(shell, "c")

    assert pending.leave() is ErrorCode.NONE

    assert shell.state() == "Empty"


def test_a_leave_from_a_completing_group_starts_a_rebalance(shell: Shell) -> None:
    """G22"""
    clients = [shell.client(name) for name in ("c1", "c2", "c3")]
    for client in clients:
        client.join()
    shell.advance(0)
    leader, c2, c3 = clients
    assert leader.joined
    c2.sync()
    c3.sync()

    c3.leave()

    assert c2.synced == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert c3.synced == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
    assert shell.states()[-1] == "PreparingRebalance"


def test_a_leader_that_leaves_is_followed_by_the_earliest_joined(shell: Shell) -> None:
    leader, c2, c3 = shell.stable_group("c1", "c2", "c3")
    leader.leave()
    c3.join()
    c2.join()
    assert c3.joined.leader_id == c2.member_id


def test_a_parked_join_of_a_member_that_is_removed_is_answered(shell: Shell) -> None:
    """§7.5.3"""
    c1, c2, _ = shell.stable_group("c1", "c2", "c3")
    c1.join()
    c2.join()
    leave(shell, LeavingMember(c2.member_id))
    assert c2.joined == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_group_emptied_by_last_leave_keeps_offsets_until_expiry() -> None:
    """G23"""
    shell = Shell(GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=60))
    (client,) = shell.stable_group("c1")
    assert client.commit(42) is ErrorCode.NONE
    shell.advance(5_000)
    client.leave()
    assert shell.states() == ["Stable", "PreparingRebalance", "Empty"]
    assert shell.group().generation == 2

    shell.advance(3_599_999)
    shell.happen(ExpireOffsets())
    assert shell.committed() == 42
    shell.advance(1)
    shell.happen(ExpireOffsets())

    assert shell.states()[-1] == "Dead"
    assert shell.group() is None
    assert shell.committed() == -1


def test_several_members_leave_and_one_rebalance_starts(shell: Shell) -> None:
    """§7.5.5"""
    clients = shell.stable_group("c1", "c2", "c3", "c4")
    result = leave(shell, *(LeavingMember(client.member_id) for client in clients[:3]), LeavingMember("unknown"))

    assert [member.error for member in result.members] == [ErrorCode.NONE] * 3 + [ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(shell.facts_of(RebalanceStarted)) == 1
    clients[3].join()
    assert clients[3].joined.generation == 2


def test_members_of_one_leave_go_in_one_rebalance(shell: Shell) -> None:
    clients = shell.stable_group("c1", "c2")
    leave(shell, *(LeavingMember(client.member_id) for client in clients))
    assert shell.states() == ["Stable", "PreparingRebalance", "Empty"]
    assert shell.facts_of(GenerationStarted) == []


IDENTITIES = [
    (LeavingMember("", "instance"), ErrorCode.NONE),
    (LeavingMember("instance-0002", "instance"), ErrorCode.NONE),
    (LeavingMember("instance-0002"), ErrorCode.NONE),
    (LeavingMember("", "elsewhere"), ErrorCode.UNKNOWN_MEMBER_ID),
    (LeavingMember(""), ErrorCode.UNKNOWN_MEMBER_ID),
    (LeavingMember("unknown"), ErrorCode.UNKNOWN_MEMBER_ID),
    (LeavingMember("c1-0001", "instance"), ErrorCode.FENCED_INSTANCE_ID),
    (LeavingMember("c1-0001", "elsewhere"), ErrorCode.UNKNOWN_MEMBER_ID),
    (LeavingMember("promised-0003"), ErrorCode.NONE),
]


@pytest.mark.parametrize(("leaving", "error"), IDENTITIES, ids=[repr(row[0]) for row in IDENTITIES])
def test_who_leaves(shell: Shell, leaving: LeavingMember, error: ErrorCode) -> None:
    """G25"""
    plain, static = shell.client("c1"), shell.client("c2", instance_id="instance")
    plain.join()
    static.join()
    shell.advance(0)
    promised = shell.client("promised", knows_member_ids=True)
    shell.send(promised.join_event(shell.token()))

    result = leave(shell, leaving)

    assert result == LeaveResult(ErrorCode.NONE, (LeftMember(leaving.member_id, leaving.group_instance_id, error),))


def test_a_group_that_is_unknown_or_dead(shell: Shell) -> None:
    gone = LeavingMember("m", "i")
    assert leave(shell, gone) == LeaveResult(ErrorCode.NONE, (LeftMember("m", "i", ErrorCode.UNKNOWN_MEMBER_ID),))
    (client,) = shell.stable_group("c1")
    client.leave()
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert leave(shell, gone) == LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_group_is_empty_even_if_that_cannot_be_stored(shell: Shell) -> None:
    """§8.4.4"""
    (client,) = shell.stable_group("c1")
    shell.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.leave() is ErrorCode.NONE
    assert shell.state() == "Empty"
