"""Facts about groups, reported as they happen: for logs, for tests, and to answer "why did it rebalance?".

Every fact names its group and the generation in force when it was reported. A fact is no state: losing one changes
nothing. Its class says which event it is in `ottla.events` and at which level it is logged.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias

from ottla.coordinator.classic.states import GroupState
from ottla.protocol.errors import ErrorCode


class Cause(StrEnum):
    """Why a rebalance started, or a member went."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    NEW_MEMBER_TIMED_OUT = "new member's join timed out"
    LEADER_REJOINED = "leader rejoined"
    METADATA_CHANGED = "member's metadata changed"
    PENDING_SYNC_EXPIRED = "members never synced"
    NOT_REJOINED = "did not rejoin in time"
    STATIC_MEMBER_REPLACED = "static member replaced"
    SYNC_STORE_FAILED = "storing the assignment failed"
    GROUP_OVER_SIZE = "loaded group is over its maximum size"
    GROUP_FULL = "group is full"
    GROUP_REMOVED = "group expired or deleted"


class BaseFact:
    """What is done with facts of a type."""

    __slots__ = ()

    event: ClassVar[str | None] = None
    """The type of its event in `ottla.events`; None: it has none of its own."""
    level: ClassVar[str | None] = None
    """The level of its line in the log; None: it has no line."""


@dataclass(frozen=True, slots=True)
class StateChanged(BaseFact):
    event: ClassVar = "state_changed"

    group_id: str
    generation: int
    from_state: GroupState
    to_state: GroupState
    reason: str


@dataclass(frozen=True, slots=True)
class MemberJoined(BaseFact):
    event: ClassVar = "member_joined"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    client_reason: str | None
    members: int
    """Count with the new one."""


@dataclass(frozen=True, slots=True)
class MemberRejoined(BaseFact):
    """A member that is in the group has joined again, and now waits for the others."""

    event: ClassVar = "member_rejoined"

    group_id: str
    generation: int
    """The one that ends."""
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    client_reason: str | None
    protocol_type: str
    subscription: bytes
    """What it says about itself under the protocol it likes best."""
    join_phase_ms: int
    """How long the join phase had lasted; 0 when this join begins it."""


@dataclass(frozen=True, slots=True)
class MemberSynced(BaseFact):
    """A member has asked for its assignment for the first time in this generation."""

    event: ClassVar = "member_synced"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    is_leader: bool
    sync_phase_ms: int
    """How long the generation had lasted."""


@dataclass(frozen=True, slots=True)
class MemberAssigned(BaseFact):
    """What the leader gave a member; reported for each of them just before the generation is complete."""

    event: ClassVar = "member_assigned"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class MemberIdHandedOut(BaseFact):
    """Answered MEMBER_ID_REQUIRED; the id holds later join phases open until it joins or its session time is over."""

    event: ClassVar = "member_id_handed_out"

    group_id: str
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberDropped(BaseFact):
    event: ClassVar = "pending_member_dropped"

    group_id: str
    generation: int
    member_id: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class MemberRemoved(BaseFact):
    event: ClassVar = "member_removed"
    level: ClassVar = "info"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    cause: Cause
    client_reason: str | None
    members: int
    """Count of those left."""


@dataclass(frozen=True, slots=True)
class SessionExpired(BaseFact):
    event: ClassVar = "session_expired"

    group_id: str
    generation: int
    member_id: str
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced(BaseFact):
    event: ClassVar = "static_member_replaced"
    level: ClassVar = "info"

    group_id: str
    generation: int
    group_instance_id: str
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StaticMemberRestored(BaseFact):
    """The replacement of a static member could not be stored and was undone."""

    event: ClassVar = "static_member_restored"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    group_instance_id: str
    member_id: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RebalanceStarted(BaseFact):
    event: ClassVar = "rebalance_started"
    level: ClassVar = "info"

    group_id: str
    generation: int
    """The one that ends."""
    cause: Cause
    member_id: str | None
    """The member that caused it; None when no single one did."""
    client_reason: str | None
    members: int
    join_deadline_ms: int


@dataclass(frozen=True, slots=True)
class JoinPhaseExtended(BaseFact):
    event: ClassVar = "join_phase_extended"

    group_id: str
    generation: int
    join_deadline_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationStarted(BaseFact):
    """The join phase has ended; members now wait for their assignment."""

    event: ClassVar = "generation_started"
    level: ClassVar = "info"

    group_id: str
    generation: int
    protocol_name: str
    leader_id: str
    member_ids: tuple[str, ...]
    join_phase_ms: int


@dataclass(frozen=True, slots=True)
class GenerationCompleted(BaseFact):
    """The leader's assignment is stored; every member can consume."""

    event: ClassVar = "generation_completed"
    level: ClassVar = "info"

    group_id: str
    generation: int
    leader_id: str
    member_ids: tuple[str, ...]
    sync_phase_ms: int


@dataclass(frozen=True, slots=True)
class MissingAssignments(BaseFact):
    """The leader assigned nothing to these members, not even an empty list (G15)."""

    event: ClassVar = "missing_assignments"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreFailed(BaseFact):
    """Records could not be appended, or not in time; `what` says which."""

    event: ClassVar = "store_failed"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    what: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(BaseFact):
    """Too many for an event each: the broker sums them up (`CommitsSummedUp`)."""

    group_id: str
    member_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OffsetsRemoved(BaseFact):
    event: ClassVar = "offsets_removed"

    group_id: str
    partitions: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupLoaded(BaseFact):
    event: ClassVar = "group_loaded"

    group_id: str
    generation: int
    state: GroupState
    members: int
    offsets: int


@dataclass(frozen=True, slots=True)
class RecordsSkipped(BaseFact):
    """Records of `__consumer_offsets` that this coordinator does not read, reported once per reason and load."""

    event: ClassVar = "records_skipped"
    level: ClassVar = "warning"

    reason: str
    count: int
    first_record_offset: int


Fact: TypeAlias = (
    StateChanged
    | MemberJoined
    | MemberRejoined
    | MemberSynced
    | MemberAssigned
    | MemberIdHandedOut
    | PendingMemberDropped
    | MemberRemoved
    | SessionExpired
    | StaticMemberReplaced
    | StaticMemberRestored
    | RebalanceStarted
    | JoinPhaseExtended
    | GenerationStarted
    | GenerationCompleted
    | MissingAssignments
    | StoreFailed
    | OffsetsCommitted
    | OffsetsRemoved
    | GroupLoaded
    | RecordsSkipped
)
