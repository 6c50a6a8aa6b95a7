"""Static members: a client that restarts replaces its former self under a new member id (KIP-345, docs/semantics §7.2).

The old id is fenced at once. While the group is Stable, and would still choose the same protocol, no other member need
notice: the replacement is stored, then answered. If that fails it is undone, unless the group has changed since.
"""

from dataclasses import dataclass

from ottla.coordinator.classic import rebalance, sessions
from ottla.coordinator.classic.causes import SessionTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member, Protocols
from ottla.coordinator.classic.rebalance import Why
from ottla.coordinator.classic.states import STABLE
from ottla.coordinator.events import JoinGroup
from ottla.coordinator.facts import Cause, StaticMemberReplaced, StaticMemberRestored, StoreFailed
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import NO_MEMBER_ID, JoinResult, group_error
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class StaticMember:
    """What a replacement changes about a member, before it or after it."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols


def replace_static_member(context: GroupContext, group: ClassicGroup, event: JoinGroup, group_instance_id: str) -> None:
    member = group.members[group.static_members[group_instance_id]]
    leader_before = group.leader_id or ""
    # Taken before anything is overwritten: an undo must restore the old protocols, not the new.
    replaced = _described(member.member_id, member)
    replacement = _described(context.new_member_id(group_instance_id), event)
    sessions.answer_parked(context, group, member, ErrorCode.FENCED_INSTANCE_ID, replaced.member_id)
    _put_in_place(context, group, member, replacement)
    context.observe(
        StaticMemberReplaced(
            group_id=group.group_id,
            generation=group.generation,
            group_instance_id=group_instance_id,
            old_member_id=replaced.member_id,
            new_member_id=replacement.member_id,
        )
    )
    if group.state is STABLE and group.choose_protocol() == group.protocol_name:
        answer = _answer_without_rebalance(group, member, event, leader_before)
        stored = ReplacementStored(event.token, group, member, replaced, answer)
        context.run(rebalance.append_metadata(context, group, stored))
    else:
        group.park_join(member, event.token)
        why = Why(Cause.STATIC_MEMBER_REPLACED, member.member_id, event.reason)
        rebalance.rebalance(context, group, why)


def _described(member_id: str, described_by: Member | JoinGroup) -> StaticMember:
    return StaticMember(
        member_id,
        described_by.client_id,
        described_by.client_host,
        described_by.session_timeout_ms,
        described_by.rebalance_timeout_ms,
        described_by.protocols,
    )


def _put_in_place(context: GroupContext, group: ClassicGroup, member: Member, replacement: StaticMember) -> None:
    """Replace the member's id and settings; its assignment, leadership and place in the group stay."""
    sessions.disarm(context, member)
    group.rename(member, replacement.member_id)
    group.set_protocols(member, replacement.protocols)
    member.client_id = replacement.client_id
    member.client_host = replacement.client_host
    member.session_timeout_ms = replacement.session_timeout_ms
    member.rebalance_timeout_ms = replacement.rebalance_timeout_ms
    member.timer_key = SessionTimer(group.group_id, replacement.member_id)
    sessions.renew(context, member)


def _answer_without_rebalance(group: ClassicGroup, member: Member, event: JoinGroup, leader_before: str) -> JoinResult:
    """A client that cannot skip the assignment must not believe that it leads (KIP-814)."""
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
class ReplacementStored:
    """Follows the record of a static member that replaces another one."""

    token: int
    group: ClassicGroup
    member: Member
    replaced: StaticMember
    answer: JoinResult

    def completed(self, context: GroupContext) -> None:
        if self._still_holds():
            context.reply(self.token, self.answer)
        else:
            self._refuse(context, self._fencing_reason())

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        group, member = self.group, self.member
        context.observe(
            StoreFailed(
                group_id=group.group_id,
                generation=group.generation,
                what="the replacement of a static member",
                error=error,
            )
        )
        if self._can_be_undone():
            _put_in_place(context, group, member, self.replaced)
            assert member.group_instance_id is not None, "a static member has an instance id"
            context.observe(
                StaticMemberRestored(
                    group_id=group.group_id,
                    generation=group.generation,
                    group_instance_id=member.group_instance_id,
                    member_id=member.member_id,
                    error=error,
                )
            )
        self._refuse(context, group_error(error))

    def _still_holds(self) -> bool:
        """False after the next replacement, or when the member was removed."""
        return self.group.members.get(self.answer.member_id) is self.member

    def _can_be_undone(self) -> bool:
        """Once the group has changed, the replacement stays: the others may have joined with what only it supports. Its
        client will replace it again, and a group that is rebalancing need not store that."""
        is_unchanged = self.group.state is STABLE and self.group.generation == self.answer.generation
        return is_unchanged and self._still_holds()

    def _fencing_reason(self) -> ErrorCode:
        is_member = self.group.members.get(self.member.member_id) is self.member
        return ErrorCode.FENCED_INSTANCE_ID if is_member else ErrorCode.UNKNOWN_MEMBER_ID

    def _refuse(self, context: GroupContext, error: ErrorCode) -> None:
        context.reply(self.token, JoinResult(error, NO_MEMBER_ID))
