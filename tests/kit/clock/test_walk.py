"""Broker time walks from timer to timer: order, chains, periodic jobs, and that ways to one moment are the same."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.timer.clock import TimerKind
from tests.kit.clock.world import World

DAY_MS = 86_400_000


def test_chain_of_timers_counts_from_the_moment_of_each() -> None:
    """A clock that is set to the target first makes three timers of 10 s take 7 d and 30 s."""
    world = World()
    world.set(
        10_000, "first", lambda: world.set(10_000, "second", lambda: world.set(10_000, "third") and None) and None
    )

    world.advance(7 * DAY_MS)

    assert world.ran == [(10_000, "first"), (20_000, "second"), (30_000, "third")]


def test_order_is_deadline_then_node_then_as_they_were_set() -> None:
    world = World(nodes=2)
    for node, in_ms, name in [(1, 5, "c"), (0, 9, "e"), (0, 5, "a"), (1, 4, "first"), (0, 5, "b"), (1, 5, "d")]:
        world.set(in_ms, name, node=node)

    fired = world.advance(10)

    assert [name for _, name in world.ran] == ["first", "a", "b", "c", "d", "e"]
    assert [(each.node, each.kind) for each in fired][:2] == [(1, "session"), (0, "session")]


def test_ties_are_shuffled_and_deadlines_are_not() -> None:
    orders = set[tuple[str, ...]]()
    for seed in range(20):
        world = World()
        for name in "abc":
            world.set(5, name)
        world.set(6, "last")
        world.advance(10, ties=Random(seed))
        orders.add(tuple(name for _, name in world.ran))

    assert len(orders) == 6
    assert {order[-1] for order in orders} == {"last"}


def test_nothing_beyond_the_target_runs() -> None:
    world = World()
    world.set(10, "at the target")
    world.set(11, "beyond")

    world.advance(10)
    assert world.ran == [(10, "at the target")]
    world.advance(1)
    assert world.ran[1:] == [(11, "beyond")]


def test_zero_runs_what_is_due_and_no_job() -> None:
    world = World()
    world.set(0, "due")
    world.repeat(100, "job", TimerKind.RETENTION)

    assert [each.kind for each in world.advance(0)] == ["session"]


def test_jobs_run_before_the_timers_of_a_stop_and_at_the_target() -> None:
    """Not in each of the rounds that they would have had."""
    world = World()
    world.repeat(1_000, "job", TimerKind.RETENTION)
    world.set(500, "early")
    world.set(DAY_MS, "late")

    world.advance(2 * DAY_MS)

    assert world.ran == [(500, "early"), (DAY_MS, "job"), (DAY_MS, "late"), (2 * DAY_MS, "job")]


def test_every_round_of_a_job_runs_on_request() -> None:
    world = World()
    world.repeat(1_000, "job", TimerKind.RETENTION)

    world.advance(3_500, every=True)

    assert [at_ms for at_ms, _ in world.ran] == [1_000, 2_000, 3_000]


def test_jobs_of_one_stop_run_in_an_order_of_their_own() -> None:
    world = World()
    for kind in (TimerKind.FILE_DELETION, TimerKind.COMPACTION, TimerKind.RETENTION, TimerKind.OFFSETS_EXPIRY):
        world.repeat(10, kind, kind)

    world.advance(DAY_MS)

    assert [name for _, name in world.ran] == ["offsets-expiry", "retention", "compaction", "file-deletion"]


def test_timers_moved_on_the_way_run_once_at_their_last_deadline() -> None:
    world = World()
    later, cancelled = world.set(50, "later"), world.set(60, "cancelled")

    def move() -> None:
        for in_ms in (30, 20, 70):
            later.reschedule(world.start_ms + in_ms)
        cancelled.cancel()

    world.set(10, "moves", move)
    world.set(70, "tied")
    world.advance(100)

    assert world.ran == [(10, "moves"), (70, "tied"), (70, "later")]


def test_timer_that_raises_is_reported_and_the_walk_goes_on() -> None:
    world = World()

    def fail() -> None:
        raise ValueError("no")

    world.set(1, "fails", fail)
    world.set(2, "next")
    world.advance(5)

    assert [str(error) for error in world.errors] == ["no"]
    assert [name for _, name in world.ran] == ["fails", "next"]


def test_loop_runs_timers_while_time_is_not_frozen() -> None:
    world = World()
    world.set(6_000, "session")
    assert [delay_s for delay_s, _ in world.loop.calls] == [6.0]

    world.timeline.freeze()
    world.wheels[0].drive()
    assert world.loop.calls == []
    world.set(0, "due")
    world.loop.run()
    assert world.ran == [(0, "due")]

    world.timeline.resume()
    world.wheels[0].drive()
    world.machine.pass_ms(6_000)
    world.loop.run()
    assert world.ran[1:] == [(6_000, "session")]


def test_loop_goes_on_with_what_a_walk_has_left() -> None:
    world = World()
    world.set(100, "left")
    world.advance(40)

    assert [delay_s for delay_s, _ in world.loop.calls] == [0.06]


timers = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 2), st.integers(0, 3), st.integers(1, 90)), max_size=8)


def with_timers(given_timers: list[tuple[int, int, int, int]]) -> World:
    """Each timer sets another one when it runs, some times."""
    world = World(nodes=3)

    def begin(in_ms: int, node: int, again: int, later_ms: int, name: object) -> None:
        def then() -> None:
            if again:
                begin(later_ms, node, again - 1, later_ms, (name, again))

        world.set(in_ms, name, then, node=node)

    for number, (in_ms, node, again, later_ms) in enumerate(given_timers):
        begin(in_ms, node, again, later_ms, number)
    return world


@given(steps=st.lists(st.integers(0, 300), min_size=1, max_size=6), given_timers=timers)
def test_one_advance_is_many_small_ones(steps: list[int], given_timers: list[tuple[int, int, int, int]]) -> None:
    at_once, in_steps = with_timers(given_timers), with_timers(given_timers)
    at_once.advance(sum(steps))
    for step in steps:
        in_steps.advance(step)

    assert at_once.ran == in_steps.ran


@given(given_timers=timers)
def test_a_walk_runs_timers_as_the_passing_of_time_does(given_timers: list[tuple[int, int, int, int]]) -> None:
    walked, lived = with_timers(given_timers), with_timers(given_timers)
    walked.advance(300)
    for _ in range(301):
        lived.loop.run()
        lived.machine.pass_ms(1)

    # Brokers have loops of their own as far as the order within a millisecond goes.
    assert sorted(walked.ran, key=repr) == sorted(lived.ran, key=repr)


def test_walking_back_is_a_bug() -> None:
    world = World()
    world.timeline.begin_walk()
    with pytest.raises(AssertionError, match="went backwards"):
        world.timeline.go_to(world.timeline.now_ms() - 1)
