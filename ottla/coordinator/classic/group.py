"""A classic group: its members, its state, and what follows from them. It has no effects of its own.

Committed offsets are not here: they belong to the partition's durable state. What a group allows to be done with them
is: see `Group` in `ottla.coordinator.group_context`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Never

from ottla.coordinator.classic.member import Member, Protocols
from ottla.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    VALID_PREVIOUS,
    GroupState,
    IllegalTransition,
    JoinPhase,
)
from ottla.coordinator.events import CommitOffsets
from ottla.coordinator.records import NO_TIMESTAMP, GroupMetadata, StoredMember
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_subscribed_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import Buffer, DecodeError


class _NothingYet(Counter[str]):
    """Shared by all groups, and by most for good: five empty containers of its own would be a quarter of the memory of
    a group that only commits offsets. To assign to it is an error."""

    def __setitem__(self, key: str, value: int) -> Never:
        raise TypeError(f"{key!r} is put into what all groups share")


NOTHING_YET: Final[Any] = _NothingYet()


class ClassicGroup:
    __slots__ = (
        "generation",
        "generation_started_ms",
        "group_id",
        "join_phase",
        "leader_id",
        "members",
        "parked_joins",
        "pending_members",
        "pending_sync",
        "pending_sync_deadline_ms",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "storing_generation",
        "supporters",
    )

    def __init__(self, group_id: str, state: GroupState = EMPTY) -> None:
        self.group_id = group_id
        self.state = state
        self.state_timestamp_ms = NO_TIMESTAMP
        self.generation = 0
        self.generation_started_ms = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # In the order in which they first joined; a static member that is replaced keeps its place.
        self.members: dict[str, Member] = NOTHING_YET
        self.static_members: dict[str, str] = NOTHING_YET
        # Ids handed out by MEMBER_ID_REQUIRED and not joined yet, with the deadline of each.
        self.pending_members: dict[str, int] = NOTHING_YET
        # Members that have not synced in this generation; a dict because its order is used.
        self.pending_sync: dict[str, None] = NOTHING_YET
        self.pending_sync_deadline_ms: int | None = None
        self.join_phase: JoinPhase | None = None
        self.storing_generation: int | None = None
        """The generation whose assignment is on its way into the log."""
        self.parked_joins = 0
        self.supporters: Counter[str] = NOTHING_YET
        """How many members know each protocol."""

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """The only place that assigns the state. Raises `IllegalTransition`."""
        if self.state not in VALID_PREVIOUS[state]:
            raise IllegalTransition(self.group_id, self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    def successor(self) -> "ClassicGroup":
        """What takes the place of this Empty group if its removal fails."""
        group = ClassicGroup(self.group_id)
        group.state_timestamp_ms = self.state_timestamp_ms
        group.generation = self.generation
        group.protocol_type = self.protocol_type
        return group

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending_members

    # Members

    def note_pending(self, member_id: str, deadline_ms: int) -> None:
        """The id was handed out, and has until then to join."""
        if self.pending_members is NOTHING_YET:
            self.pending_members = {}
        self.pending_members[member_id] = deadline_ms

    def add(self, member: Member, protocol_type: str) -> None:
        if self.members is NOTHING_YET:
            self.members, self.static_members, self.supporters = {}, {}, Counter()
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.supporters.update(member.protocol_names)

    def remove(self, member: Member) -> None:
        """The member must have nothing parked: answer it before the removal."""
        assert not member.is_waiting, f"member {member.member_id} leaves with a request unanswered"
        del self.members[member.member_id]
        self.pending_sync.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self._forget_protocols(member)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        if protocols != member.protocols:
            self._forget_protocols(member)
            member.protocols = protocols
            self.supporters.update(member.protocol_names)

    def _forget_protocols(self, member: Member) -> None:
        self.supporters.subtract(member.protocol_names)
        for name in member.protocol_names:
            if not self.supporters[name]:
                del self.supporters[name]

    def rename(self, member: Member, new_member_id: str) -> None:
        """Replace a static member's id; its place, its leadership and its duty to sync stay."""
        assert member.group_instance_id is not None, "only a static member outlives its id"
        old_member_id = member.member_id
        self.members = {new_member_id if key == old_member_id else key: value for key, value in self.members.items()}
        self.static_members[member.group_instance_id] = new_member_id
        if old_member_id in self.pending_sync:
            del self.pending_sync[old_member_id]
            self.pending_sync[new_member_id] = None
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        member.member_id = new_member_id

    def park_join(self, member: Member, token: int) -> int | None:
        """Returns the token of the older join that this one replaces, if there is one."""
        older = member.parked_join
        if older is None:
            self.parked_joins += 1
        member.parked_join = token
        return older

    def take_join(self, member: Member) -> int | None:
        token, member.parked_join = member.parked_join, None
        if token is not None:
            self.parked_joins -= 1
        return token

    def take_sync(self, member: Member) -> int | None:
        token, member.parked_sync = member.parked_sync, None
        return token

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in this group (docs/semantics §5.6)."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supporters[name] == member_count for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """The protocol known to all that most members would rather have; the leader's preference breaks ties."""
        member_count = len(self.members)
        candidates = {name for name, count in self.supporters.items() if count == member_count}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        assert self.leader_id is not None, "a group without members chooses no protocol"
        leaders_order = self.members[self.leader_id].protocol_names
        return max((name for name in leaders_order if name in candidates), key=votes.__getitem__)

    # Requests of members

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """None for a member of the group that is the static member it names, if it names one: what every request of a
        member passes before its generation is looked at (T-1, docs/semantics §7.1.3 d-f)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Offsets

    def offset_commit_error(self, event: CommitOffsets) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation < 0 and self.state is EMPTY:
            return None
        is_transactional = event.producer is not None
        if event.generation < 0 and not event.member_id and event.group_instance_id is None:
            # Below version 3 a producer does not name the member that it commits for: only its own id fences it.
            return None if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.identity_error(event.member_id, event.group_instance_id)
        if error is not None:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # While joins are collected the old generation may still commit: members must be able to before they rejoin.
        # Then a member must first learn what it has been assigned; a transaction holds what it had before.
        must_sync = self.state is COMPLETING_REBALANCE and not is_transactional
        return ErrorCode.REBALANCE_IN_PROGRESS if must_sync else None

    def offset_delete_error(self) -> ErrorCode | None:
        return None if self.state is EMPTY or self._consumes else ErrorCode.NON_EMPTY_GROUP

    def topics_kept(self) -> frozenset[str] | None:
        """In an Empty or simple group everything may expire; in a consuming one that is Stable, what it no longer
        reads."""
        if self.state is EMPTY:
            return frozenset()
        return self._topics_of_members() if self.state is STABLE and self._consumes else None

    def expiry_base_ms(self, commit_timestamp_ms: int) -> int:
        """A group that was used has the whole retention from when it became empty; a simple one is always empty."""
        was_used = self.state is EMPTY and self.protocol_type is not None and self.state_timestamp_ms != NO_TIMESTAMP
        return self.state_timestamp_ms if was_used else commit_timestamp_ms

    def subscribed_topics(self, stored: GroupMetadata | None) -> frozenset[str] | None:
        """Of the last generation (docs/semantics §5.8). Rarely asked for, so it is computed each time."""
        if self.state is not PREPARING_REBALANCE:
            return self._topics_of_members()
        if stored is None or stored.protocol_type != PROTOCOL_TYPE:
            return None
        return _united(member.subscription for member in stored.members)

    def _topics_of_members(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset()
        if not self._consumes or self.protocol_name is None:
            return None
        return _united(member.metadata_for(self.protocol_name) for member in self.members.values())

    @property
    def _consumes(self) -> bool:
        """Its members speak the consumer protocol, so that their metadata can be read."""
        return self.protocol_type == PROTOCOL_TYPE

    # What is stored

    def metadata(self, assignments: Mapping[str, Buffer] | None = None) -> GroupMetadata:
        """What the log should say about this group; `assignments` stands in for those that members hold."""
        return self.metadata_without_members()._replace(members=tuple(self.stored_members(assignments)))

    def stored_members(self, assignments: Mapping[str, Buffer] | None = None) -> Iterator[StoredMember]:
        for member_id, member in self.members.items():
            assignment = member.assignment if assignments is None else assignments.get(member_id, b"")
            yield member.stored(self.protocol_name, assignment)

    def metadata_without_members(self) -> GroupMetadata:
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=(),
        )


def _united(subscriptions: Iterable[Buffer]) -> frozenset[str] | None:
    """The topics of all; None where one cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(parse_subscribed_topics(subscription))
        except DecodeError:
            return None
    return frozenset(topics)
