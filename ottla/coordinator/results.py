"""The answers: what a `Reply` carries, for a handler to turn into a response."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode

UNKNOWN_GENERATION = -1
NO_MEMBER_ID = ""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    error: ErrorCode
    member_id: str
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    """None on errors: the wire has "" instead before version 7."""
    leader_id: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    """Whom to assign; empty for everyone but the leader."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    error: ErrorCode


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """Versions before 3 carry one member: its error, if any, is then the error of the whole."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class PartitionError(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class CommitResult:
    """One entry for every partition of the request, in its order."""

    partitions: tuple[PartitionError, ...]


class FetchedOffset(NamedTuple):
    """`offset` -1 and error NONE: nothing is committed for this partition."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchResult:
    error: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeResult:
    """What DescribeGroups shows, and a little more for our own surfaces (generation, leader, timeouts).

    An unknown group has state "Dead" and error NONE; `exists` tells it apart for clients that know better (KIP-1043).
    """

    error: ErrorCode
    group_id: str
    exists: bool = False
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    generation: int = UNKNOWN_GENERATION
    leader_id: str | None = None
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListResult:
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteResult:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class DeleteOffsetsResult:
    error: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


Result: TypeAlias = (
    JoinResult
    | SyncResult
    | HeartbeatResult
    | LeaveResult
    | CommitResult
    | FetchResult
    | DescribeResult
    | ListResult
    | DeleteResult
    | DeleteOffsetsResult
)
