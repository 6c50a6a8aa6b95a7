"""Answers to requests that never reach their group (docs/semantics §4.3)."""

from typing import Final, assert_never

from ottla.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Request,
    SyncGroup,
)
from ottla.coordinator.results import (
    DeleteOffsetsResult,
    DeleteResult,
    DescribeResult,
    FetchResult,
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    ListResult,
    Result,
    SyncResult,
    all_partitions,
)
from ottla.protocol.errors import ErrorCode

_NEED_GROUP_ID: Final = {JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DeleteOffsets}


def refusal(request: Request, error: ErrorCode) -> Result:
    """The answer of a coordinator that is not there, not ours or still loading.

    COORDINATOR_LOAD_IN_PROGRESS becomes an error that old clients know: a sync has to join again, whatever state the
    rebalance was in; a heartbeat should simply go on.
    """
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    match request:
        case Heartbeat():
            return HeartbeatResult(ErrorCode.NONE if loading else error)
        case SyncGroup():
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if loading else error)
        case JoinGroup():
            return JoinResult(error, request.member_id)
        case LeaveGroup():
            return LeaveResult(error)
        case CommitOffsets():
            return all_partitions(request, error)
        case FetchOffsets():
            return FetchResult(error)
        case DescribeGroup():
            return DescribeResult(error, request.group_id)
        case ListGroups():
            return ListResult(error)
        case DeleteGroup():
            return DeleteResult(error)
        case DeleteOffsets():
            return DeleteOffsetsResult(error)
        case _:
            assert_never(request)


def group_id_error(request: Request) -> ErrorCode | None:
    """The first check of all. Offsets of the group named "" are kept for clients older than group ids, which know no
    transactions."""
    if isinstance(request, ListGroups) or request.group_id:
        return None
    in_transaction = isinstance(request, CommitOffsets) and request.producer is not None
    return ErrorCode.INVALID_GROUP_ID if type(request) in _NEED_GROUP_ID or in_transaction else None
