"""Static members: a client that restarts takes over its seat under a new member id (KIP-345, docs/semantics §7.2).

The old id is fenced at once. While the group is Stable, and would still choose the same protocol, nobody else need
notice: the takeover is stored, then answered. If it cannot be stored it is undone, unless the group has moved on since.
"""

from dataclasses import dataclass

from ottla.coordinator import rebalance, sessions
from ottla.coordinator.append_errors import group_error
from ottla.coordinator.events import JoinGroup, SessionTimer
from ottla.coordinator.facts import Cause, StaticMemberReplaced, StaticMemberRestored, StoreFailed
from ottla.coordinator.group import Group
from ottla.coordinator.member import Member, Protocols
from ottla.coordinator.rebalance import Why
from ottla.coordinator.results import NO_MEMBER_ID, JoinResult
from ottla.coordinator.states import STABLE
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Occupant:
    """Who sits in a static member's seat, before a takeover or after it."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols


def take_over_seat(turn: Turn, group: Group, event: JoinGroup, group_instance_id: str) -> None:
    member = group.members[group.static_members[group_instance_id]]
    leader_before = group.leader_id or ""
    # Captured before anything is overwritten: an undo must bring back the old protocols, not the new.
    former = _occupant(member.member_id, member)
    newcomer = _occupant(turn.new_member_id(group_instance_id), event)
    sessions.answer_parked(turn, group, member, ErrorCode.FENCED_INSTANCE_ID, former.member_id)
    _seat(turn, group, member, newcomer)
    turn.observe(
        StaticMemberReplaced(group.group_id, group.generation, group_instance_id, former.member_id, newcomer.member_id)
    )
    if group.state is STABLE and group.choose_protocol() == group.protocol_name:
        answer = _answer_without_rebalance(group, member, event, leader_before)
        after = TakeoverStored(event.token, group, member, former, answer)
        turn.append(group.group_id, [rebalance.metadata_record(group)], after)
    else:
        group.park_join(member, event.token)
        why = Why(Cause.STATIC_MEMBER_REPLACED, member.member_id, event.reason)
        rebalance.rebalance(turn, group, why)


def _occupant(member_id: str, described_by: Member | JoinGroup) -> Occupant:
    return Occupant(
        member_id,
        described_by.client_id,
        described_by.client_host,
        described_by.session_timeout_ms,
        described_by.rebalance_timeout_ms,
        described_by.protocols,
    )


def _seat(turn: Turn, group: Group, member: Member, occupant: Occupant) -> None:
    """Let `occupant` sit where `member` sits: its assignment, leadership and place in the group stay."""
    sessions.disarm(turn, member)
    group.rename(member, occupant.member_id)
    group.set_protocols(member, occupant.protocols)
    member.client_id = occupant.client_id
    member.client_host = occupant.client_host
    member.session_timeout_ms = occupant.session_timeout_ms
    member.rebalance_timeout_ms = occupant.rebalance_timeout_ms
    member.timer_key = SessionTimer(group.group_id, occupant.member_id)
    sessions.renew(turn, member)


def _answer_without_rebalance(group: Group, member: Member, event: JoinGroup, leader_before: str) -> JoinResult:
    """A client that cannot be told to skip the assignment is kept from believing that it leads (KIP-814)."""
    knows_to_skip = event.supports_skip_assignment
    skips = knows_to_skip and group.leader_id == member.member_id
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=(group.leader_id or "") if knows_to_skip else leader_before,
        members=rebalance.members_to_assign(group) if skips else (),
        skip_assignment=skips,
    )


@dataclass(frozen=True, slots=True)
class TakeoverStored:
    token: int
    group: Group
    member: Member
    former: Occupant
    answer: JoinResult

    def completed(self, turn: Turn) -> None:
        if self._still_holds():
            turn.reply(self.token, self.answer)
        else:
            self._refuse(turn, self._reason_it_lost_the_seat())

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        group, member = self.group, self.member
        turn.observe(StoreFailed(group.group_id, group.generation, "the takeover of a static member's seat", error))
        if self._can_be_undone():
            _seat(turn, group, member, self.former)
            assert member.group_instance_id is not None, "a seat has a name"
            turn.observe(
                StaticMemberRestored(
                    group.group_id, group.generation, member.group_instance_id, member.member_id, error
                )
            )
        self._refuse(turn, group_error(error))

    def _still_holds(self) -> bool:
        """False after the next takeover of the seat, or when its occupant was removed."""
        return self.group.members.get(self.answer.member_id) is self.member

    def _can_be_undone(self) -> bool:
        """Once the group has moved on, the newcomer stays: the others may have joined with what only it supports. Its
        client will take the seat over again, and a group that is rebalancing need not store that."""
        is_unchanged = self.group.state is STABLE and self.group.generation == self.answer.generation
        return is_unchanged and self._still_holds()

    def _reason_it_lost_the_seat(self) -> ErrorCode:
        seated = self.group.members.get(self.member.member_id) is self.member
        return ErrorCode.FENCED_INSTANCE_ID if seated else ErrorCode.UNKNOWN_MEMBER_ID

    def _refuse(self, turn: Turn, error: ErrorCode) -> None:
        turn.reply(self.token, JoinResult(error, NO_MEMBER_ID))
