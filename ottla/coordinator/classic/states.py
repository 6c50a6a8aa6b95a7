"""The states of a classic group, and every transition that is legal (docs/semantics §6).

    state                what it waits for                       ends by
    -------------------  --------------------------------------  ------------------------------------------------
    EMPTY                nothing; may hold committed offsets      a first member, expiry, deletion
    PREPARING_REBALANCE  members to join                          all have joined, or the deadline of the phase
    COMPLETING_REBALANCE the leader's assignment, and its store   the stored assignment, or a membership change
    STABLE               nothing; members heartbeat               a membership change
    DEAD                 nothing, for ever                        -

    request     EMPTY      PREPARING_REBALANCE     COMPLETING_REBALANCE           STABLE                 DEAD
    ----------  ---------  ----------------------  -----------------------------  ---------------------  ----
    Join, new   rebalance  parked                  rebalance, parked              rebalance, parked      15
    Join, same  25         parked                  current generation at once     follower: at once      15
                                                                                  leader: rebalance
    Sync        25         27                      parked; the leader's is stored its assignment         15
    Heartbeat   25         27, session renewed     0, session renewed             0, session renewed     15
    Leave       25         join phase re-checked   rebalance                      rebalance              15
    Commit      simple     accepted                27                             accepted               15

(15 COORDINATOR_NOT_AVAILABLE, 25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS.)
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """The value is the name that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = GroupState.EMPTY
PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

VALID_PREVIOUS: Final = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE, STABLE},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    DEAD: {EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD},
}


class IllegalTransition(AssertionError):
    """A bug in the coordinator: no request and no timer may cause it."""

    def __init__(self, group_id: str, from_state: GroupState, to_state: GroupState) -> None:
        super().__init__(f"group {group_id!r} cannot go from {from_state.name} to {to_state.name}")


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
    """A member joined since the current wait began: worth another wait."""
