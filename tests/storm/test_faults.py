from hypothesis import given
from hypothesis import strategies as st

from tests.storm.faults import ETCD, Action, plan

# What can be done to a broker in the state that the last action has left it in; None is the beginning.
NEXT = {
    None: {Action.KILL, Action.STOP, Action.PAUSE},
    Action.KILL: {Action.START},
    Action.STOP: {Action.START},
    Action.START: {Action.KILL, Action.STOP, Action.PAUSE},
    Action.PAUSE: {Action.RESUME},
    Action.RESUME: {Action.KILL, Action.STOP, Action.PAUSE},
}


@given(seed=st.integers(), brokers=st.integers(1, 3))
def test_every_broker_is_well_at_the_end_of_a_plan(seed: int, brokers: int) -> None:
    node_ids = range(1, brokers + 1)
    latest: dict[int, Action | None] = dict.fromkeys((ETCD, *node_ids))
    steps = plan(seed, 120, node_ids)

    for step in steps:
        assert step.action in NEXT[latest[step.node_id]], f"{step} after {latest[step.node_id]}"
        latest[step.node_id] = step.action

    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    assert set(latest.values()) <= {None, Action.START, Action.RESUME}


def test_a_seed_names_its_plan() -> None:
    assert plan(7, 120, [1, 2, 3]) == plan(7, 120, [1, 2, 3])
    assert plan(7, 120, [1, 2, 3]) != plan(8, 120, [1, 2, 3])


def test_ten_minutes_have_everything_in_them() -> None:
    steps = plan(1, 600, [1, 2, 3])

    assert {step.action for step in steps} == set(Action)
    assert {step.node_id for step in steps} == {ETCD, 1, 2, 3}
    assert len(steps) > 100
