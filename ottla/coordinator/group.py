"""A classic group: its members, its state, and what follows from them. It decides nothing and emits nothing.

Committed offsets are not here: they belong to the partition's durable state.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.coordinator.member import Member, Protocols
from ottla.coordinator.records import NO_TIMESTAMP, GroupMetadata, StoredMember
from ottla.coordinator.states import (
    EMPTY,
    VALID_PREVIOUS,
    GroupState,
    IllegalTransition,
)


@dataclass(slots=True)
class JoinPhase:
    """The wait for members to join. A group has one exactly while it is in PREPARING_REBALANCE."""

    started_ms: int
    deadline_ms: int
    is_initial: bool
    """It began in an Empty group: it never ends before its deadline, however many have joined."""
    wait_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False
    """Somebody joined since the current wait began: worth another wait."""


class Group:
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
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        # Ids handed out by MEMBER_ID_REQUIRED and not joined yet, with the deadline of each.
        self.pending_members: dict[str, int] = {}
        # Members that have not synced in this generation; a dict because its order is used.
        self.pending_sync: dict[str, None] = {}
        self.pending_sync_deadline_ms: int | None = None
        self.join_phase: JoinPhase | None = None
        self.storing_generation: int | None = None
        """The generation whose assignment is on its way into the log."""
        self.parked_joins = 0
        self.supporters: Counter[str] = Counter()
        """How many members know each protocol."""

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """The only place that assigns the state. Raises `IllegalTransition`."""
        if self.state not in VALID_PREVIOUS[state]:
            raise IllegalTransition(self.group_id, self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    def successor(self) -> "Group":
        """What goes on where this Empty group ends, should its end not come about after all."""
        group = Group(self.group_id)
        group.state_timestamp_ms = self.state_timestamp_ms
        group.generation = self.generation
        group.protocol_type = self.protocol_type
        return group

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def everybody_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending_members

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.supporters.update(member.protocol_names)

    def remove(self, member: Member) -> None:
        """The member must have nothing parked: whoever removes it answers first."""
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
        """Give a static member's seat to `new_member_id`, with its place, its leadership and its duty to sync."""
        assert member.group_instance_id is not None, "only a static member has a seat that outlives its id"
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
        """Whether somebody with these protocols can be in this group (docs/semantics §5.6)."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self.supporters[name] == everybody for name, _ in protocols)

    def choose_protocol(self) -> str:
        """The protocol known to all that most members would rather have; the leader's preference breaks ties."""
        everybody = len(self.members)
        candidates = {name for name, count in self.supporters.items() if count == everybody}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        assert self.leader_id is not None, "a group without members chooses no protocol"
        leaders_order = self.members[self.leader_id].protocol_names
        return max((name for name in leaders_order if name in candidates), key=votes.__getitem__)

    # What is stored

    def metadata(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadata:
        """What the log should say about this group; `assignments` stands in for those that members hold."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                self._stored(member, member.assignment if assignments is None else assignments.get(key, b""))
                for key, member in self.members.items()
            ),
        )

    def _stored(self, member: Member, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata_for(self.protocol_name),
            assignment=assignment,
        )
