"""Facts about groups, told as they happen: for logs, for tests, and to answer "why did it rebalance?".

Every fact names its group and the generation in force when it was told. A fact is news, not state: nobody needs to hear
it, and losing one changes nothing.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

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


@dataclass(frozen=True, slots=True)
class StateChanged:
    group_id: str
    generation: int
    from_state: GroupState
    to_state: GroupState
    reason: str


@dataclass(frozen=True, slots=True)
class MemberJoined:
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
class MemberRejoined:
    """A member that is in the group has joined again, and now waits for the others."""

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
class MemberSynced:
    """A member has asked for its assignment for the first time in this generation."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    is_leader: bool
    sync_phase_ms: int
    """How long the generation had lasted."""


@dataclass(frozen=True, slots=True)
class MemberAssigned:
    """What the leader gave a member; told for each of them just before the generation is complete."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class MemberIdHandedOut:
    """Answered MEMBER_ID_REQUIRED; the id holds later join phases open until it joins or its session time is over."""

    group_id: str
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberDropped:
    group_id: str
    generation: int
    member_id: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class MemberRemoved:
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
class SessionExpired:
    group_id: str
    generation: int
    member_id: str
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    group_id: str
    generation: int
    group_instance_id: str
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StaticMemberRestored:
    """The takeover of a seat could not be stored and was undone."""

    group_id: str
    generation: int
    group_instance_id: str
    member_id: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    group_id: str
    generation: int
    """The one that ends."""
    cause: Cause
    member_id: str | None
    """Whose doing it was; None when nobody's in particular."""
    client_reason: str | None
    members: int
    join_deadline_ms: int


@dataclass(frozen=True, slots=True)
class JoinPhaseExtended:
    group_id: str
    generation: int
    join_deadline_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """The join phase has ended; members now wait for their assignment."""

    group_id: str
    generation: int
    protocol_name: str
    leader_id: str
    member_ids: tuple[str, ...]
    join_phase_ms: int


@dataclass(frozen=True, slots=True)
class GenerationCompleted:
    """The leader's assignment is stored; every member can consume."""

    group_id: str
    generation: int
    leader_id: str
    member_ids: tuple[str, ...]
    sync_phase_ms: int


@dataclass(frozen=True, slots=True)
class MissingAssignments:
    """The leader assigned nothing to these members, not even an empty list (G15)."""

    group_id: str
    generation: int
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Records could not be appended, or not in time; `what` says which."""

    group_id: str
    generation: int
    what: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    group_id: str
    member_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    group_id: str
    partitions: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    group_id: str
    generation: int
    state: GroupState
    members: int
    offsets: int


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """Records of `__consumer_offsets` that this coordinator does not read, told once per reason and load."""

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
