"""The answers: what a `Reply` carries, for a handler to turn into a response, with the errors of failed appends."""

from typing import Final, NamedTuple, TypeAlias

from ottla.coordinator.events import CommitOffsets
from ottla.protocol.errors import ErrorCode

UNKNOWN_GENERATION = -1
NO_MEMBER_ID = ""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
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


class SyncResult(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatResult(NamedTuple):
    error: ErrorCode


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class LeaveResult(NamedTuple):
    """Versions before 3 carry one member: its error, if any, is then the error of the whole."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class PartitionError(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


class CommitResult(NamedTuple):
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


class FetchResult(NamedTuple):
    error: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[str, ...]


class DescribeResult(NamedTuple):
    """What DescribeGroups shows, and a little more for our own surfaces (generation, leader, timeouts).

    An unknown group has state "Dead" and error NONE; `exists` distinguishes it for clients that know better (KIP-1043).
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


class ListResult(NamedTuple):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


class DeleteResult(NamedTuple):
    error: ErrorCode


class DeleteOffsetsResult(NamedTuple):
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


def all_partitions(event: CommitOffsets, error: ErrorCode) -> CommitResult:
    return CommitResult(tuple(PartitionError(offset.topic, offset.partition, error) for offset in event.offsets))


# What clients get when records could not be appended (docs/semantics §4.6.1).

# REQUEST_TIMED_OUT becomes COORDINATOR_NOT_AVAILABLE, as in Kafka 4, and not REBALANCE_IN_PROGRESS or itself, as
# before: every client answers it by looking for the coordinator again and retrying, which also gives a log that has got
# stuck the pause it needs, and does least harm if the records turn out to be committed after all.
_COMMON: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE: Final = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}


def group_error(error: ErrorCode) -> ErrorCode:
    """For joins, syncs and deletions, which store group metadata."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else _COMMON.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """For offset commits."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _COMMON.get(error, error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """For offset commits that the transaction coordinator refuses, or could not be asked about (docs/semantics §46.2).
    PRODUCER_FENCED is fatal to clients of later versions, which their own coordinator alone may say."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else commit_error(error)
