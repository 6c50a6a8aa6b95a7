"""Members go: they say so, or their session or promise to join runs out (docs/semantics §7.5, §8.1, §8.7)."""

from ottla.coordinator import rebalance, sessions
from ottla.coordinator.events import LeaveGroup, LeavingMember, PendingMemberTimer, SessionTimer
from ottla.coordinator.facts import Cause
from ottla.coordinator.group import Group
from ottla.coordinator.identity import identity_error
from ottla.coordinator.rebalance import Why
from ottla.coordinator.results import LeaveResult, LeftMember
from ottla.coordinator.states import DEAD
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


def leave_group(turn: Turn, event: LeaveGroup) -> None:
    group = turn.groups.get(event.group_id)
    if group is None:
        turn.reply(event.token, LeaveResult(ErrorCode.NONE, _all(event, ErrorCode.UNKNOWN_MEMBER_ID)))
    elif group.state is DEAD:
        turn.reply(event.token, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        _leave(turn, group, event)


def _all(event: LeaveGroup, error: ErrorCode) -> tuple[LeftMember, ...]:
    return tuple(LeftMember(leaving.member_id, leaving.group_instance_id, error) for leaving in event.members)


def _leave(turn: Turn, group: Group, event: LeaveGroup) -> None:
    """All members of the request go before one rebalance starts."""
    members_before = len(group.members)
    left: list[LeftMember] = []
    why = Why(Cause.MEMBER_LEFT)
    for leaving in event.members:
        error, member_id = _remove(turn, group, leaving)
        left.append(LeftMember(leaving.member_id, leaving.group_instance_id, error))
        if error is ErrorCode.NONE and why.member_id is None:
            why = Why(Cause.MEMBER_LEFT, member_id, leaving.reason)
    turn.reply(event.token, LeaveResult(ErrorCode.NONE, tuple(left)))
    if len(group.members) < members_before:
        rebalance.rebalance(turn, group, why)
    else:
        rebalance.end_join_phase_if_complete(turn, group)


def _remove(turn: Turn, group: Group, leaving: LeavingMember) -> tuple[ErrorCode, str]:
    """The error, and the id of the member that went."""
    member_id = leaving.member_id
    if not member_id:
        # An administrator clears a static member's seat, whoever sits in it.
        member_id = group.static_members.get(leaving.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
    elif member_id in group.pending_members:
        rebalance.drop_pending_member(turn, group, member_id, Cause.MEMBER_LEFT)
        return ErrorCode.NONE, member_id
    else:
        error = identity_error(group, member_id, leaving.group_instance_id)
        if error is not None:
            return error, ""
    sessions.drop_member(turn, group, group.members[member_id], Cause.MEMBER_LEFT, leaving.reason)
    return ErrorCode.NONE, member_id


def session_timer_fired(turn: Turn, group: Group, key: SessionTimer) -> None:
    if not sessions.has_expired(turn, group, key):
        return
    member = group.members[key.member_id]
    cause = Cause.NEW_MEMBER_TIMED_OUT if member.is_new else Cause.SESSION_EXPIRED
    sessions.drop_member(turn, group, member, cause)
    rebalance.rebalance(turn, group, Why(cause, key.member_id))


def pending_member_timer_fired(turn: Turn, group: Group, key: PendingMemberTimer) -> None:
    deadline_ms = group.pending_members.get(key.member_id)
    if deadline_ms is None:
        return
    if turn.now_ms < deadline_ms:
        turn.set_timer(key, deadline_ms)
        return
    rebalance.drop_pending_member(turn, group, key.member_id, Cause.SESSION_EXPIRED)
    rebalance.end_join_phase_if_complete(turn, group)
