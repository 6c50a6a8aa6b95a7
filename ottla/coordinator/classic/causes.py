"""Why a rebalance starts or a member is removed, and the timers whose end is such a cause.

A timer is what names it on the timing wheel: two of one kind and one group or member are the same. They are dataclasses
because tuples of two kinds would be equal.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Cause(StrEnum):
    """Why a rebalance started, or a member was removed."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    NEW_MEMBER_TIMED_OUT = "new member's join timed out"
    LEADER_REJOINED = "leader rejoined"
    METADATA_CHANGED = "member's metadata changed"
    PENDING_SYNC_EXPIRED = "members never synced"
    NOT_REJOINED = "did not rejoin in time"
    STATIC_MEMBER_REPLACED = "static member replaced"
    SYNC_STORE_FAILED = "storing the assignment failed"
    GROUP_OVER_SIZE = "loaded group is over its maximum size"
    GROUP_FULL = "group is full"
    GROUP_REMOVED = "group expired or deleted"
    TOO_MANY_PENDING = "too many pending members"
    REQUESTED = "asked for"


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """Of a member that may be silent for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberTimer:
    """Of an id handed out by MEMBER_ID_REQUIRED that has not joined yet."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinPhaseTimer:
    """Of the time that members have to join."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PendingSyncTimer:
    """Of the time that members have to sync."""

    group_id: str


TimerKey: TypeAlias = SessionTimer | PendingMemberTimer | JoinPhaseTimer | PendingSyncTimer
