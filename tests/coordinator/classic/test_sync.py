"""SyncGroup (G13-G17, §7.3, §8.5)."""

import pytest

from ottla.coordinator.classic.causes import PendingSyncTimer
from ottla.coordinator.events import DeleteGroup
from ottla.coordinator.facts import Cause, GenerationCompleted, MemberRemoved, MissingAssignments, RebalanceStarted
from ottla.coordinator.results import SyncResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell


def completing(shell: Shell, *names: str, **settings: object) -> list[Client]:
    clients = [shell.client(name, **settings) for name in names]
    for client in clients:
        client.join()
    shell.advance(0)
    assert all(client.joined.error is ErrorCode.NONE for client in clients)
    return clients


# By state


def test_empty_group_knows_no_member(shell: Shell) -> None:
    """G13"""
    (client,) = shell.stable_group("c1")
    client.leave()
    assert client.sync() == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_unknown_group(shell: Shell) -> None:
    """G13"""
    assert shell.client("c1", member_id="m", generation=1).sync() == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_sync_while_preparing_asks_to_rejoin(shell: Shell) -> None:
    """G13"""
    leader, follower = shell.stable_group("c1", "c2")
    leader.join()
    assert follower.sync() == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)


def test_stored_sync_of_leader_releases_all_members(shell: Shell) -> None:
    """G13"""
    leader, follower = completing(shell, "c1", "c2")
    shell.hold_appends = True
    assert follower.sync() is None
    assert leader.sync_all([leader, follower]) is None
    assert shell.state() == "CompletingRebalance"
    shell.advance(250)

    shell.complete_append()

    assert leader.synced == SyncResult(ErrorCode.NONE, "consumer", "range", b"c1")
    assert follower.synced == SyncResult(ErrorCode.NONE, "consumer", "range", b"c2")
    assert shell.state() == "Stable"
    (completed,) = shell.facts_of(GenerationCompleted)
    assert (completed.generation, completed.leader_id, completed.sync_phase_ms) == (1, leader.member_id, 250)
    assert completed.member_ids == (leader.member_id, follower.member_id)


def test_stable_gives_the_stored_assignment(shell: Shell) -> None:
    """G13"""
    _, follower = shell.stable_group("c1", "c2")
    assert follower.sync().assignment == b"c2"


def test_dead(shell: Shell) -> None:
    """G13"""
    (client,) = shell.stable_group("c1")
    client.leave()
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert client.sync() == SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_followers_assignments_are_ignored(shell: Shell) -> None:
    leader, follower = completing(shell, "c1", "c2")
    follower.sync({follower.member_id: b"everything"})
    leader.sync_all([leader, follower])
    assert follower.synced.assignment == b"c2"


# Order of checks. Every row fails its own check and all later ones; none of the earlier.

CHECKS = {
    "protocol given (v5)": (
        {"requires_protocol": True, "group_instance_id": "x", "generation": 9},
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "fenced instance": (
        {"member_id": "unknown", "group_instance_id": "instance", "generation": 9, "protocol_type": "x"},
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "unknown instance": (
        {"group_instance_id": "x", "generation": 9, "protocol_type": "x"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "T-1: unknown member before generation": (
        {"member_id": "unknown", "generation": 9, "protocol_type": "x"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "generation": ({"generation": 9, "protocol_type": "x"}, ErrorCode.ILLEGAL_GENERATION),
    "older generation": ({"generation": 0, "protocol_type": "x"}, ErrorCode.ILLEGAL_GENERATION),
    "protocol type": ({"protocol_type": "x", "protocol_name": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "protocol name": ({"protocol_type": "consumer", "protocol_name": "x"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "none": ({"protocol_type": "consumer", "protocol_name": "range", "requires_protocol": True}, ErrorCode.NONE),
}


@pytest.mark.parametrize(("changes", "error"), CHECKS.values(), ids=CHECKS.keys())
def test_order_of_checks(shell: Shell, changes: dict, error: ErrorCode) -> None:
    """G14, T-1"""
    plain, static = completing(shell, "c1", "c2")[0], shell.client("c3", instance_id="instance")
    static.join()
    plain.join()
    shell.client("c2", member_id="c2-0002").join()
    plain.sync({plain.member_id: b"p"})
    assert shell.state() == "Stable"

    assert plain.sync(**changes).error is error


def test_the_group_id_comes_first_even_while_loading(shell: Shell) -> None:
    """G14"""
    client = shell.client("c1", member_id="m", group_id="", generation=1)
    assert client.sync() == SyncResult(ErrorCode.INVALID_GROUP_ID)
    shell.partition = shell.empty_partition()
    assert client.sync() == SyncResult(ErrorCode.INVALID_GROUP_ID)
    client.group_id = "g"
    assert client.sync() == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)


# Assignments


def test_members_left_out_get_an_empty_assignment(shell: Shell) -> None:
    """G15"""
    leader, c2, c3 = completing(shell, "c1", "c2", "c3")
    c2.sync()
    c3.sync()
    leader.sync({leader.member_id: b"all", "stranger": b"ignored"})

    assert c2.synced == c3.synced == SyncResult(ErrorCode.NONE, "consumer", "range", b"")
    assert shell.facts_of(MissingAssignments) == [
        MissingAssignments(group_id="g", generation=1, member_ids=(c2.member_id, c3.member_id))
    ]
    assert "stranger" not in {member.member_id for member in shell.partition.shard.durable.metadata["g"].members}


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_store_is_answered_to_all_and_rebalances(shell: Shell, error: ErrorCode, answer: ErrorCode) -> None:
    """G16"""
    leader, follower = completing(shell, "c1", "c2")
    shell.facts.clear()
    shell.fail_appends = error
    follower.sync()
    leader.sync_all([leader, follower])

    assert leader.synced == follower.synced == SyncResult(answer)
    assert shell.states() == ["CompletingRebalance", "PreparingRebalance"]
    (started,) = shell.facts_of(RebalanceStarted)
    assert started.cause is Cause.SYNC_STORE_FAILED
    assert all(member.assignment == b"" for member in shell.group().members.values())


def test_late_store_of_older_generation_changes_nothing(shell: Shell) -> None:
    """G16, T-9"""
    leader, follower = completing(shell, "c1", "c2")
    shell.hold_appends = True
    leader.sync_all([leader, follower])
    newcomer = shell.client("c3")
    newcomer.join()
    assert leader.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    follower.join()
    assert leader.joined.generation == 2
    follower.sync()

    shell.complete_append()

    assert shell.state() == "CompletingRebalance"
    assert follower.synced is None
    leader.sync({follower.member_id: b"second"})
    shell.complete_append()
    assert follower.synced.assignment == b"second"


def test_late_failure_of_older_generation_changes_nothing(shell: Shell) -> None:
    """G16, T-9"""
    leader, follower = completing(shell, "c1", "c2")
    shell.hold_appends = True
    leader.sync_all([leader, follower])
    follower.join(protocols=(("range", b"changed"),))
    leader.join()
    assert leader.joined.generation == 2
    states = shell.states()

    shell.fail_append(ErrorCode.KAFKA_STORAGE_ERROR)

    assert shell.states() == states


def test_store_committed_after_its_timeout_changes_only_the_log(shell: Shell) -> None:
    (leader,) = completing(shell, "c1")
    shell.fail_appends = ErrorCode.REQUEST_TIMED_OUT
    leader.sync_all([leader])
    assert shell.state() == "PreparingRebalance"
    assert "g" not in shell.partition.shard.durable.metadata

    shell.complete_append()

    assert shell.state() == "PreparingRebalance"
    assert shell.partition.shard.durable.metadata["g"].generation == 1


def test_repeated_sync_of_leader_is_stored_once(shell: Shell) -> None:
    """I-12: what members get and what the log says come from one request."""
    (leader,) = completing(shell, "c1")
    shell.hold_appends = True
    leader.sync({leader.member_id: b"first"})
    older = leader.sync_tokens[-1]

    leader.sync({leader.member_id: b"second"})

    assert shell.answers[older] == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert len(shell.held) == 1
    shell.complete_append()
    assert leader.synced.assignment == b"first"


def test_who_syncs_after_the_leader_is_answered_at_once(shell: Shell) -> None:
    """G17"""
    c1, c2, c3 = completing(shell, "c1", "c2", "c3")
    c2.sync()
    c1.sync_all([c1, c2, c3])
    assert c2.synced.assignment == b"c2"

    assert c3.sync().assignment == b"c3"
    assert PendingSyncTimer("g") not in shell.timers


# Members that never sync (§8.5)


def test_a_member_that_heartbeats_but_never_syncs_is_removed(shell: Shell) -> None:
    """T-7"""
    c1, c2 = completing(shell, "c1", "c2", rebalance_timeout_ms=20_000)
    c1.sync_all([c1, c2])
    for _ in range(4):
        shell.advance(4_999)
        assert c1.heartbeat() is c2.heartbeat() is ErrorCode.NONE
    shell.facts.clear()

    shell.advance(4)

    (removed,) = shell.facts_of(MemberRemoved)
    assert (removed.member_id, removed.cause) == (c2.member_id, Cause.PENDING_SYNC_EXPIRED)
    assert shell.states() == ["Stable", "PreparingRebalance"]
    assert c1.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_that_never_syncs_is_removed(shell: Shell) -> None:
    """T-7"""
    _, c2 = completing(shell, "c1", "c2", session_timeout_ms=30_000, rebalance_timeout_ms=20_000)
    c2.sync()
    shell.advance(20_000)
    assert c2.synced == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    c2.join()
    assert c2.joined.leader_id == c2.member_id


def test_group_becomes_empty_when_no_member_syncs(shell: Shell) -> None:
    completing(shell, "c1", "c2", session_timeout_ms=30_000, rebalance_timeout_ms=20_000)
    shell.advance(20_000)
    assert shell.state() == "Empty"
    assert shell.timers == {}
