"""What the steps of one `__consumer_offsets` partition work with: its properties, its groups, what its log says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import DEAD, EMPTY, GroupState
from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.events import CommitOffsets
from ottla.coordinator.facts import StateChanged
from ottla.coordinator.oldest_first import OldestFirst
from ottla.coordinator.records import GroupMetadata
from ottla.coordinator.runtime.step_context import StepContext
from ottla.protocol.errors import ErrorCode

UNLIMITED_GROUP_SIZE = 2**31 - 1
PENDING_MEMBERS_BYTES: Final = 4 << 20
"""Of one partition: some 6,000 members with names of usual length. A broker may lead fifty."""
TRACELESS_GROUPS_BYTES: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's defaults. Field names are the property names with `.` written `_`."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = UNLIMITED_GROUP_SIZE
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


class Group(Protocol):
    """What offsets need to know of a group, whatever its type. Kafka's interface of the same name."""

    @property
    def group_id(self) -> str: ...

    def offset_commit_error(self, event: CommitOffsets) -> ErrorCode | None:
        """Why this commit is refused."""
        ...

    def offset_delete_error(self) -> ErrorCode | None:
        """Why none of its offsets can be deleted by request."""
        ...

    def subscribed_topics(self, stored: GroupMetadata | None) -> frozenset[str] | None:
        """None when it cannot be known: then it may be any topic. `stored` is what the log says about the group."""
        ...

    def topics_kept(self) -> frozenset[str] | None:
        """Topics whose offsets do not expire now; None: no offset of the group does."""
        ...

    def expiry_base_ms(self, commit_timestamp_ms: int) -> int:
        """From when on the retention of an offset counts that was committed at `commit_timestamp_ms`."""
        ...


class GroupContext(StepContext):
    __slots__ = (
        "config",
        "durable",
        "generation_floor",
        "groups",
        "new_member_id",
        "pending_members",
        "traceless_groups",
    )

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str], *, generation_floor: int = 0) -> None:
        """`new_member_id` makes a fresh id from a client id or an instance id: `<prefix>-<UUID>`. Generations are
        above `generation_floor`."""
        super().__init__()
        self.config = config
        self.generation_floor = generation_floor
        self.new_member_id = new_member_id
        self.groups: dict[str, ClassicGroup] = {}
        self.durable = DurableState()
        # Of all groups: group and member id. Invariant: those that are in the groups' own `pending_members`.
        self.pending_members: OldestFirst[tuple[str, str]] = OldestFirst(PENDING_MEMBERS_BYTES)
        self.traceless_groups: OldestFirst[str] = OldestFirst(TRACELESS_GROUPS_BYTES)

    def clear(self) -> None:
        """Nothing has been read."""
        self.groups.clear()
        self.pending_members.clear()
        self.traceless_groups.clear()
        self.durable = DurableState()

    def transition(self, group: ClassicGroup, state: GroupState, reason: str) -> None:
        from_state = group.state
        group.transition_to(state, self.wall_ms)
        self.observe(
            StateChanged(
                group_id=group.group_id,
                generation=group.generation,
                from_state=from_state,
                to_state=state,
                reason=reason,
            )
        )

    def create_empty(self, group_id: str) -> None:
        """The group exists, without members and offsets, if it has not before. The log knows nothing of it."""
        if group_id not in self.groups:
            group = self.groups[group_id] = ClassicGroup(group_id)
            self.note_if_traceless(group)

    def note_if_traceless(self, group: ClassicGroup) -> None:
        """A group that has no members and of which the log knows nothing stays until offsets are looked at for expiry,
        as in Kafka, unless many others come."""
        if not self._is_traceless(group):
            return
        self.traceless_groups.add(group.group_id, group.group_id)
        for group_id in self.traceless_groups.overflow():
            oldest = self.groups.get(group_id)
            if oldest is not None and self._is_traceless(oldest):
                self.transition(oldest, DEAD, "nothing was ever stored of it")
                self.remove(group_id)

    def _is_traceless(self, group: ClassicGroup) -> bool:
        return (
            group.state is EMPTY
            and not group.generation
            and not group.pending_members
            and not self.durable.knows(group.group_id)
            and not self.appends.is_owner_pending(group.group_id)
        )

    def remove(self, group_id: str) -> None:
        del self.groups[group_id]
        self.traceless_groups.discard(group_id)

    def create_from_log(self, group_id: str) -> None:
        """A group that is not there exists from its first committed record on."""
        if group_id not in self.groups and self.durable.knows(group_id):
            self.groups[group_id] = ClassicGroup(group_id)

    def remove_if_not_in_log(self, group_id: str) -> None:
        """An Empty group ends when its tombstones are in the log, also those of a removal that was given up because it
        took too long: the next coordinator would not find it either."""
        group = self.groups.get(group_id)
        if group is None or group.state is not EMPTY or not group.generation or group.pending_members:
            return
        if not self.durable.knows(group_id) and not self.appends.is_owner_pending(group_id):
            self.transition(group, DEAD, "its removal is in the log")
            self.remove(group_id)

    def live_group(self, group_id: str) -> ClassicGroup | None:
        """The group, unless it is Dead: for requests to which both are the same."""
        group = self.groups.get(group_id)
        return None if group is None or group.state is DEAD else group
