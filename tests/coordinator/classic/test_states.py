"""The state machine as a table (G02, §6)."""

import itertools

import pytest

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupState,
    IllegalTransition,
)

# Of docs/semantics §6.2, written out once more: a copy of the table under test would prove nothing.
LEGAL = {
    (EMPTY, PREPARING_REBALANCE),
    (STABLE, PREPARING_REBALANCE),
    (COMPLETING_REBALANCE, PREPARING_REBALANCE),
    (PREPARING_REBALANCE, COMPLETING_REBALANCE),
    (PREPARING_REBALANCE, EMPTY),
    (COMPLETING_REBALANCE, STABLE),
    *((state, DEAD) for state in GroupState),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(GroupState, GroupState)))
def test_only_kafkas_transitions_are_legal(before: GroupState, after: GroupState) -> None:
    """G02"""
    group = ClassicGroup("g", before)

    if (before, after) in LEGAL:
        group.transition_to(after, wall_ms=7)
        assert (group.state, group.state_timestamp_ms) == (after, 7)
    else:
        with pytest.raises(IllegalTransition) as caught:
            group.transition_to(after, wall_ms=7)
        assert before.name in str(caught.value)
        assert after.name in str(caught.value)
        assert group.state is before
