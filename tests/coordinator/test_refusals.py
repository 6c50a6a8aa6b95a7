"""Requests that do not reach a group (G03, §4.3), and giving a partition up (§4.5)."""

import pytest

from ottla.coordinator.classic.causes import JoinPhaseTimer
from ottla.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    FetchOffsets,
    Heartbeat,
    LeaveGroup,
    ListGroups,
    OffsetToCommit,
    Request,
    SyncGroup,
    TopicsDeleted,
)
from ottla.coordinator.results import JoinResult, SyncResult
from ottla.coordinator.runtime.effects import AppendCompleted, AppendFailed, TimerFired
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def requests(group_id: str) -> list[tuple[Request, ErrorCode]]:
    """One of each, with its answer while the partition loads."""
    return [
        (Client(Shell(), "c").join_event(1, group_id=group_id), LOADING),
        (SyncGroup(1, group_id, "m", None, 1), ErrorCode.REBALANCE_IN_PROGRESS),
        (Heartbeat(1, group_id, "m", None, 1), ErrorCode.NONE),
        (LeaveGroup(1, group_id, ()), LOADING),
        (CommitOffsets(1, group_id, "m", None, 1, (OffsetToCommit("t", 0, 1),)), LOADING),
        (FetchOffsets(1, group_id, None), LOADING),
        (DescribeGroup(1, group_id), LOADING),
        (ListGroups(1), LOADING),
        (DeleteGroup(1, group_id), LOADING),
        (DeleteOffsets(1, group_id, ()), LOADING),
    ]


NAMES = [type(request).__name__ for request, _ in requests("g")]


def answer(shell: Shell, request: Request) -> ErrorCode:
    (reply,) = shell.partition.step(request, shell.now_ms, shell.wall_ms)
    if isinstance(request, CommitOffsets):
        return reply.result.partitions[0].error
    return reply.result.error


@pytest.mark.parametrize(("request_", "error"), requests("g"), ids=NAMES)
def test_while_loading(shell: Shell, request_: Request, error: ErrorCode) -> None:
    """G03"""
    shell.partition = shell.empty_partition()
    assert answer(shell, request_) is error


@pytest.mark.parametrize("request_", [request for request, _ in requests("g")], ids=NAMES)
def test_after_unloading_or_a_failed_load(shell: Shell, request_: Request) -> None:
    """G03"""
    shell.unload()
    assert answer(shell, request_) is ErrorCode.NOT_COORDINATOR
    shell.partition = shell.empty_partition()
    shell.partition.fail_loading()
    assert answer(shell, request_) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("request_", [request for request, _ in requests("")], ids=NAMES)
def test_only_offsets_and_administration_take_the_empty_group_id(shell: Shell, request_: Request) -> None:
    refused = type(request_).__name__ in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "DeleteOffsets")
    assert (answer(shell, request_) is ErrorCode.INVALID_GROUP_ID) == refused
    shell.partition = shell.empty_partition()
    assert (answer(shell, request_) is ErrorCode.INVALID_GROUP_ID) == refused


def test_unloading_answers_all_requests_and_leaves_no_timer(shell: Shell) -> None:
    joining = [shell.client(name, group_id="joining", instance_id=name) for name in ("c1", "c2")]
    for client in joining:
        client.join()
    leader, follower = shell.client("c3"), shell.client("c4")
    leader.join()
    follower.join()
    shell.advance(0)
    follower.sync()
    promised = shell.client("c5", knows_member_ids=True)
    shell.send(promised.join_event(shell.token()))
    shell.client("c6", group_id="third").join()
    shell.hold_appends = True
    commit = CommitOffsets(shell.token(), "simple", "", None, -1, (OffsetToCommit("t", 0, 1),))
    shell.send(commit)
    leader.sync_all([leader, follower])

    shell.unload()

    waiting = set(range(1, shell.last_token + 1)) - set(shell.answers)
    assert waiting == set()
    assert follower.synced == leader.synced == SyncResult(ErrorCode.NOT_COORDINATOR)
    assert shell.answers[commit.token].partitions[0].error is ErrorCode.NOT_COORDINATOR
    assert shell.timers == {}
    assert shell.partition.shard.groups == {}
    assert all(shell.states(group_id)[-1] == "Dead" for group_id in ("g", "joining", "third"))


def test_parked_join_is_answered_not_coordinator_on_a_move(shell: Shell) -> None:
    client = shell.client("c1")
    client.join()
    shell.unload()
    assert client.joined == JoinResult(ErrorCode.NOT_COORDINATOR, "c1-0001")


@pytest.mark.parametrize(
    "event",
    [
        TimerFired(JoinPhaseTimer("g")),
        AppendCompleted(1, 0),
        AppendFailed(1, ErrorCode.REQUEST_TIMED_OUT),
        ExpireOffsets(),
        TopicsDeleted(("t",)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_comes_late_after_unloading_does_nothing(shell: Shell, event: object) -> None:
    shell.stable_group("c1")
    shell.unload()
    assert shell.happen(event) == []


def test_results_of_an_unknown_append_do_nothing(shell: Shell) -> None:
    assert shell.happen(AppendCompleted(99, 0)) == []
    assert shell.happen(AppendFailed(99, ErrorCode.KAFKA_STORAGE_ERROR)) == []
