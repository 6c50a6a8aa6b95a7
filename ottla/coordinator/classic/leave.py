"""Members leave: by request, or because their session or time to join has expired (docs/semantics §7.5, §8.1, §8.7)."""

from collections.abc import Iterator

from ottla.coordinator.classic import rebalance, sessions
from ottla.coordinator.classic.causes import PendingMemberTimer, SessionTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.rebalance import Why
from ottla.coordinator.classic.states import COMPLETING_REBALANCE, DEAD, STABLE
from ottla.coordinator.events import LeaveGroup, LeavingMember
from ottla.coordinator.facts import Cause
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import LeaveResult, LeftMember
from ottla.protocol.errors import ErrorCode
from ottla.timer.clock import TimerKind


def leave_group(context: GroupContext, event: LeaveGroup) -> None:
    group = context.groups.get(event.group_id)
    if group is None:
        context.reply(event.token, LeaveResult(ErrorCode.NONE, _all(event, ErrorCode.UNKNOWN_MEMBER_ID)))
    elif group.state is DEAD:
        context.reply(event.token, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        context.run(_leave(context, group, event))


def _all(event: LeaveGroup, error: ErrorCode) -> tuple[LeftMember, ...]:
    return tuple(LeftMember(leaving.member_id, leaving.group_instance_id, error) for leaving in event.members)


def _leave(context: GroupContext, group: ClassicGroup, event: LeaveGroup) -> Iterator[None]:
    """All members of the request go before one rebalance starts. As in Kafka, one that was only promised its member id
    starts a rebalance too when it leaves."""
    left: list[LeftMember] = []
    why = Why(Cause.MEMBER_LEFT)
    for number, leaving in enumerate(event.members, 1):
        error, member_id = _remove(context, group, leaving)
        left.append(LeftMember(leaving.member_id, leaving.group_instance_id, error))
        if error is ErrorCode.NONE and why.member_id is None:
            why = Why(Cause.MEMBER_LEFT, member_id, leaving.reason)
        if not number % context.members_per_slice:
            yield
    context.reply(event.token, LeaveResult(ErrorCode.NONE, tuple(left)))
    if why.member_id is not None and group.state in (STABLE, COMPLETING_REBALANCE):
        rebalance.rebalance(context, group, why)
    else:
        rebalance.end_join_phase_if_complete(context, group)


def _remove(context: GroupContext, group: ClassicGroup, leaving: LeavingMember) -> tuple[ErrorCode, str]:
    """The error, and the id of the member that went."""
    member_id = leaving.member_id
    if not member_id:
        # An administrator removes a static member by its instance id, whatever its member id is.
        member_id = group.static_members.get(leaving.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
    elif member_id in group.pending_members:
        rebalance.drop_pending_member(context, group, member_id, Cause.MEMBER_LEFT)
        return ErrorCode.NONE, member_id
    else:
        error = group.identity_error(member_id, leaving.group_instance_id)
        if error is not None:
            return error, ""
    sessions.drop_member(context, group, group.members[member_id], Cause.MEMBER_LEFT, leaving.reason)
    return ErrorCode.NONE, member_id


def session_timer_fired(context: GroupContext, group: ClassicGroup, key: SessionTimer) -> None:
    if not sessions.has_expired(context, group, key):
        return
    member = group.members[key.member_id]
    cause = Cause.NEW_MEMBER_TIMED_OUT if member.is_new else Cause.SESSION_EXPIRED
    sessions.drop_member(context, group, member, cause)
    rebalance.rebalance(context, group, Why(cause, key.member_id))


def pending_member_timer_fired(context: GroupContext, group: ClassicGroup, key: PendingMemberTimer) -> None:
    deadline_ms = group.pending_members.get(key.member_id)
    if deadline_ms is None:
        return
    if context.now_ms < deadline_ms:
        context.set_timer(key, deadline_ms, TimerKind.PENDING_MEMBER)
        return
    rebalance.drop_pending_member(context, group, key.member_id, Cause.SESSION_EXPIRED)
    rebalance.end_join_phase_if_complete(context, group)
