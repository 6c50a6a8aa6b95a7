"""Facts about groups, reported as they happen: for logs, for tests, and to answer "why did it rebalance?".

A fact is no state: losing one changes nothing. Its class is the one place that says all about it: the event it is in
the topic `ottla.events`, the level of its line in the log, and, in its docstring and those of its fields, what
docs/events.md says. A field without a docstring means what the field of that name means in the first fact that has one.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ottla.coordinator.classic.causes import Cause as Cause
from ottla.coordinator.classic.states import GroupState
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fact:
    """What all facts have; a broker has more of them than its groups."""

    event: ClassVar[str | None] = None
    """The type of its event in `ottla.events`; None: it has none of its own."""
    level: ClassVar[str | None] = None
    """The level of its line in the log; None: it has no line."""

    # For all kinds of facts: a dataclass makes its own by compiling them, which is most of what its import costs.

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash((type(self), *_values(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{type(self).__name__}({shown})"


def _values(fact: Any) -> tuple[object, ...]:
    return tuple(getattr(fact, each.name) for each in fields(fact))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StateChanged(Fact):
    """The group is in another state."""

    event: ClassVar = "state_changed"

    group_id: str
    """The group."""
    generation: int
    """The generation in force when the event happened; -1 where the event does not depend on one."""
    from_state: GroupState
    """The state of the group before."""
    to_state: GroupState
    """The state of the group now."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberJoined(Fact):
    """A new member is in the group."""

    event: ClassVar = "member_joined"

    group_id: str
    generation: int
    member_id: str
    """The member, by the id that the coordinator gave it."""
    group_instance_id: str | None
    """The instance id of a static member."""
    client_id: str
    """The client id of the member."""
    client_host: str
    """The address that the member connects from."""
    client_reason: str | None
    """What the client itself gave as its reason (KIP-800)."""
    members: int
    """How many members the group has now."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberRejoined(Fact):
    """A member of the group has joined again, and waits for the others."""

    event: ClassVar = "member_rejoined"

    group_id: str
    generation: int
    """The generation that ends."""
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    client_reason: str | None
    protocol_type: str
    subscription: bytes
    """The member's metadata for the protocol it prefers."""
    join_phase_ms: int
    """How long the join phase had lasted; 0 when this join began it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberSynced(Fact):
    """A member asked for its assignment, for the first time in this generation."""

    event: ClassVar = "member_synced"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    is_leader: bool
    """Whether the member leads the group."""
    sync_phase_ms: int
    """How long the sync phase had lasted, since the generation began."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberAssigned(Fact):
    """The partitions that a member was given. Reported for each member just before `generation_completed`."""

    event: ClassVar = "member_assigned"

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberIdHandedOut(Fact):
    """A new member was given its id (MEMBER_ID_REQUIRED). Join phases wait for it until it joins with the id, or for
    its session timeout."""

    event: ClassVar = "member_id_handed_out"

    group_id: str
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PendingMemberDropped(Fact):
    """A member that was given such an id did not join in time, or left."""

    event: ClassVar = "pending_member_dropped"

    group_id: str
    generation: int
    member_id: str
    cause: Cause
    """One of the causes below."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberRemoved(Fact):
    """A member is out of the group."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SessionExpired(Fact):
    """A member sent no heartbeat for its session timeout. `member_removed` follows."""

    event: ClassVar = "session_expired"

    group_id: str
    generation: int
    member_id: str
    session_timeout_ms: int
    """The session timeout of the member."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StaticMemberReplaced(Fact):
    """A static member has restarted and replaces its former self."""

    event: ClassVar = "static_member_replaced"
    level: ClassVar = "info"

    group_id: str
    generation: int
    group_instance_id: str
    old_member_id: str
    """The id of the static member before, which is fenced."""
    new_member_id: str
    """The id of the static member now."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StaticMemberRestored(Fact):
    """The replacement of a static member could not be stored, and was undone."""

    event: ClassVar = "static_member_restored"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    group_instance_id: str
    member_id: str
    error: ErrorCode
    """The name of Kafka's error."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RebalanceStarted(Fact):
    """A join phase begins."""

    event: ClassVar = "rebalance_started"
    level: ClassVar = "info"

    group_id: str
    generation: int
    """The generation that ends."""
    cause: Cause
    member_id: str | None
    """The member that caused the rebalance; left out where no single one did."""
    client_reason: str | None
    members: int
    join_deadline_ms: int
    """When the join phase ends by itself: a `mono_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class JoinPhaseExtended(Fact):
    """The join phase ends later than planned."""

    event: ClassVar = "join_phase_extended"

    group_id: str
    generation: int
    join_deadline_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GenerationStarted(Fact):
    """The join phase has ended and this generation begins: members wait for their assignment."""

    event: ClassVar = "generation_started"
    level: ClassVar = "info"

    group_id: str
    generation: int
    protocol_name: str
    """The assignor that the group has chosen."""
    leader_id: str
    """The member that leads the group."""
    member_ids: tuple[str, ...]
    """The members of the generation."""
    join_phase_ms: int
    """How long the join phase lasted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GenerationCompleted(Fact):
    """The leader's assignment is stored: all members can consume."""

    event: ClassVar = "generation_completed"
    level: ClassVar = "info"

    group_id: str
    generation: int
    leader_id: str
    member_ids: tuple[str, ...]
    sync_phase_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MissingAssignments(Fact):
    """The leader left members out of the assignment: it did not give them so much as an empty list."""

    event: ClassVar = "missing_assignments"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    member_ids: tuple[str, ...]
    """The members that were left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StoreFailed(Fact):
    """Something about the group could not be written to its log, or not in time."""

    event: ClassVar = "store_failed"
    level: ClassVar = "warning"

    group_id: str
    generation: int
    what: str
    """What could not be written, in words."""
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OffsetsCommitted(Fact):
    """Too many for an event each: the broker sums them up (`CommitsSummedUp`)."""

    group_id: str
    member_id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OffsetsRemoved(Fact):
    """Committed offsets were removed."""

    event: ClassVar = "offsets_removed"

    group_id: str
    partitions: int
    """Of how many partitions offsets were removed."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GroupLoaded(Fact):
    """This broker has loaded the group and is its coordinator."""

    event: ClassVar = "group_loaded"

    group_id: str
    generation: int
    state: GroupState
    """The state of the group."""
    members: int
    offsets: int
    """Of how many partitions the group has committed an offset."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecordsSkipped(Fact):
    """Records of `__consumer_offsets` that this broker does not read, such as those of other group protocols. Reported
    once for each reason when the partition is loaded."""

    event: ClassVar = "records_skipped"
    level: ClassVar = "warning"

    reason: str
    count: int
    """How many records."""
    first_record_offset: int
    """The offset of the first of these records."""
