"""Proofs of life: a member's session timer, and how a member is taken out of its group.

A timer belongs to (group, member id). Every deadline is also kept with what it bounds, so that a timer that fires late,
or after it was moved, finds nothing to do: the heartbeat that came first wins.
"""

from typing import Final

from ottla.coordinator.events import SessionTimer
from ottla.coordinator.facts import Cause, MemberRemoved, SessionExpired
from ottla.coordinator.group import Group
from ottla.coordinator.member import NOT_ARMED, Member
from ottla.coordinator.results import NO_MEMBER_ID, JoinResult, SyncResult
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A member whose first join is parked does not know its id and cannot heartbeat. This bounds how long a ghost, left by
a client that gave up and joined anew, can hold its group open. Fixed in Kafka too."""


def renew(turn: Turn, member: Member) -> None:
    """The member has shown that it lives: its session starts again."""
    arm(turn, member, member.session_timeout_ms)


def arm(turn: Turn, member: Member, timeout_ms: int) -> None:
    member.session_deadline_ms = turn.now_ms + timeout_ms
    if member.session_deadline_ms < member.armed_ms:
        _set_timer(turn, member)


def disarm(turn: Turn, member: Member) -> None:
    member.armed_ms = NOT_ARMED
    turn.cancel_timer(member.timer_key)


def _set_timer(turn: Turn, member: Member) -> None:
    member.armed_ms = member.session_deadline_ms
    turn.set_timer(member.timer_key, member.armed_ms)


def has_expired(turn: Turn, group: Group, key: SessionTimer) -> bool:
    """Whether the member whose timer fired is to be removed; if not, the timer is set again."""
    member = group.members.get(key.member_id)
    if member is None:
        return False
    if turn.now_ms < member.session_deadline_ms:
        _set_timer(turn, member)
        return False
    if member.is_waiting and not member.is_new:
        # Its connection is muted while its request is parked, so it cannot heartbeat.
        member.armed_ms = NOT_ARMED
        renew(turn, member)
        return False
    turn.observe(SessionExpired(group.group_id, group.generation, member.member_id, member.session_timeout_ms))
    return True


def drop_member(turn: Turn, group: Group, member: Member, cause: Cause, client_reason: str | None = None) -> None:
    """Take the member out and answer what it has parked. To rebalance, if need be, is up to the caller."""
    answer_parked(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
    disarm(turn, member)
    group.remove(member)
    turn.observe(
        MemberRemoved(
            group.group_id,
            group.generation,
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            cause,
            client_reason,
            len(group.members),
        )
    )


def answer_parked(turn: Turn, group: Group, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer a parked join and a parked sync with an error."""
    join = group.take_join(member)
    if join is not None:
        turn.reply(join, JoinResult(error, member_id))
    sync = group.take_sync(member)
    if sync is not None:
        turn.reply(sync, SyncResult(error))
