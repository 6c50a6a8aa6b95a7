from hypothesis import given
from hypothesis import strategies as st

from tests.storm.faults import ETCD, MEMBERS, Action, plan

ENDS = {Action.KILL, Action.STOP, Action.PAUSE}
MOMENTS = {Action.MOVE_LEADER, Action.COMPACT, Action.REVOKE_LEASE}
# What can be done to a broker or a member in the state that the last action has left it in; None is the beginning.
NEXT = {None: ENDS, Action.KILL: {Action.START}, Action.STOP: {Action.START}, Action.PAUSE: {Action.RESUME}}
NEXT |= {Action.START: ENDS, Action.RESUME: ENDS}


@given(seed=st.integers(), brokers=st.integers(1, 3))
def test_all_are_well_at_the_end_of_a_plan(seed: int, brokers: int) -> None:
    node_ids = range(1, brokers + 1)
    latest: dict[int, Action | None] = dict.fromkeys((ETCD, *MEMBERS, *node_ids))
    steps = plan(seed, 120, node_ids)

    for step in steps:
        if step.action in MOMENTS:
            assert not ENDS & {latest[each] for each in (ETCD, *MEMBERS, step.node_id)}
            continue
        assert step.action in NEXT[latest[step.node_id]], f"{step} after {latest[step.node_id]}"
        latest[step.node_id] = step.action

    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    assert set(latest.values()) <= {None, Action.START, Action.RESUME}


def test_a_seed_names_its_plan() -> None:
    assert plan(7, 120, [1, 2, 3]) == plan(7, 120, [1, 2, 3])
    assert plan(7, 120, [1, 2, 3]) != plan(8, 120, [1, 2, 3])


def test_twenty_minutes_have_everything_in_them() -> None:
    steps = plan(1, 1200, [1, 2, 3])

    assert {step.action for step in steps} == set(Action)
    assert {step.node_id for step in steps} == {*MEMBERS, ETCD, 1, 2, 3}
    assert len(steps) > 100
