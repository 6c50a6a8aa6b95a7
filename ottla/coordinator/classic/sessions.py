"""Sessions: heartbeats, a member's session timer, and how a member is taken out of its group.

A timer belongs to (group, member id). Every deadline is also kept with what it bounds, so that a timer that fires late,
or after it was moved, finds nothing to do: the heartbeat that came first wins.
"""

from typing import Final

from ottla.coordinator.classic.causes import SessionTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import NOT_ARMED, Member
from ottla.coordinator.classic.states import DEAD, PREPARING_REBALANCE
from ottla.coordinator.events import Heartbeat
from ottla.coordinator.facts import Cause, MemberRemoved, SessionExpired
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import NO_MEMBER_ID, HeartbeatResult, JoinResult, SyncResult
from ottla.protocol.errors import ErrorCode
from ottla.timer.clock import TimerKind

_ALIVE: Final = HeartbeatResult(ErrorCode.NONE)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A member whose first join is parked does not know its id and cannot heartbeat. This bounds how long a ghost, left by
a client that gave up and joined again, can hold its group open. Fixed in Kafka too."""


def renew(context: GroupContext, member: Member, timeout_ms: int | None = None) -> None:
    """The member is alive: its session starts again, for `timeout_ms` if that is given."""
    member.session_deadline_ms = context.now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
    if member.session_deadline_ms < member.armed_ms:
        _set_timer(context, member)


def disarm(context: GroupContext, member: Member) -> None:
    member.armed_ms = NOT_ARMED
    context.cancel_timer(member.timer_key)


def _set_timer(context: GroupContext, member: Member) -> None:
    member.armed_ms = member.session_deadline_ms
    context.set_timer(member.timer_key, member.armed_ms, TimerKind.SESSION)


def has_expired(context: GroupContext, group: ClassicGroup, key: SessionTimer) -> bool:
    """Whether the member whose timer fired is to be removed; if not, the timer is set again."""
    member = group.members.get(key.member_id)
    if member is None:
        return False
    if context.now_ms < member.session_deadline_ms:
        _set_timer(context, member)
        return False
    if member.is_waiting and not member.is_new:
        # Its connection is muted while its request is parked, so it cannot heartbeat.
        member.armed_ms = NOT_ARMED
        renew(context, member)
        return False
    context.observe(
        SessionExpired(
            group_id=group.group_id,
            generation=group.generation,
            member_id=member.member_id,
            session_timeout_ms=member.session_timeout_ms,
        )
    )
    return True


def drop_member(
    context: GroupContext, group: ClassicGroup, member: Member, cause: Cause, client_reason: str | None = None
) -> None:
    """Take the member out and answer what it has parked. To rebalance, if need be, is up to the caller."""
    answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
    disarm(context, member)
    group.remove(member)
    context.observe(
        MemberRemoved(
            group_id=group.group_id,
            generation=group.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            cause=cause,
            client_reason=client_reason,
            members=len(group.members),
        )
    )


def answer_parked(context: GroupContext, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer a parked join and a parked sync with an error."""
    join = group.take_join(member)
    if join is not None:
        context.reply(join, JoinResult(error, member_id))
    sync = group.take_sync(member)
    if sync is not None:
        context.reply(sync, SyncResult(error))


# Heartbeat (docs/semantics §7.4)


def heartbeat(context: GroupContext, event: Heartbeat) -> None:
    """The most frequent request, and during a rebalance the only way a member learns that it must rejoin.

    In a Stable group it is a handful of look-ups and one reply; it sets no timer (see `Member`)."""
    token, group_id, member_id, group_instance_id, generation = event
    group = context.groups.get(group_id)
    if group is None:
        context.reply(token, HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return
    if group.state is DEAD:
        context.reply(token, HeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    error = group.identity_error(member_id, group_instance_id)
    if error is None and generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is not None:
        context.reply(token, HeartbeatResult(error))
        return
    renew(context, group.members[member_id])
    # While the group waits for its assignment a heartbeat is answered NONE: with the error, members would rejoin for
    # ever (T-2).
    if group.state is PREPARING_REBALANCE:
        context.reply(token, HeartbeatResult(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        context.reply(token, _ALIVE)
