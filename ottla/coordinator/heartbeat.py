"""Heartbeat: the most frequent request, and during a rebalance the only way a member learns that it must rejoin.

The path of a heartbeat in a Stable group is a handful of look-ups and one reply; it sets no timer (see `Member`).
"""

from typing import Final

from ottla.coordinator import sessions
from ottla.coordinator.events import Heartbeat
from ottla.coordinator.identity import identity_error
from ottla.coordinator.results import HeartbeatResult
from ottla.coordinator.states import DEAD, PREPARING_REBALANCE
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode

_ALIVE: Final = HeartbeatResult(ErrorCode.NONE)


def heartbeat(turn: Turn, event: Heartbeat) -> None:
    token, group_id, member_id, group_instance_id, generation = event
    group = turn.groups.get(group_id)
    if group is None:
        turn.reply(token, HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return
    if group.state is DEAD:
        turn.reply(token, HeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    error = identity_error(group, member_id, group_instance_id)
    if error is None and generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is not None:
        turn.reply(token, HeartbeatResult(error))
        return
    sessions.renew(turn, group.members[member_id])
    # While the group waits for its assignment a heartbeat is answered NONE: told to rejoin, members would do so for
    # ever (T-2).
    if group.state is PREPARING_REBALANCE:
        turn.reply(token, HeartbeatResult(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        turn.reply(token, _ALIVE)
