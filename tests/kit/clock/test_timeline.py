"""Broker time as a clock: it stops, runs faster, is moved, and never goes back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.clock.timeline import MomentError, NodeClock, describe_ms, parse_delta, parse_forward, parse_moment
from tests.kit.clock.world import WALL_MS, World


def test_it_begins_as_the_machines_and_runs_with_it() -> None:
    world = World()
    world.machine.pass_ms(250)

    assert world.timeline.now_ms() == world.machine.now_ms()
    assert world.timeline.wall_ms() == world.machine.wall_ms()


def test_frozen_it_stands_and_runs_on_from_there() -> None:
    world = World()
    timeline, begin_ms = world.timeline, world.timeline.now_ms()
    timeline.freeze()
    world.machine.pass_ms(10_000)
    assert timeline.now_ms() == begin_ms
    timeline.resume()
    world.machine.pass_ms(30)
    assert timeline.now_ms() == begin_ms + 30


def test_rate_counts_from_when_it_was_set() -> None:
    world = World()
    begin_ms = world.timeline.now_ms()
    world.machine.pass_ms(100)
    world.timeline.set_rate(60.0)
    world.machine.pass_ms(100)

    assert world.timeline.now_ms() == begin_ms + 6_100


def test_wall_clock_is_set_back_and_deadlines_stay() -> None:
    world = World()
    now_ms = world.timeline.now_ms()
    world.timeline.set_wall(WALL_MS - 1_000_000)

    assert (world.timeline.wall_ms(), world.timeline.now_ms()) == (WALL_MS - 1_000_000, now_ms)


def test_skew_is_of_one_broker() -> None:
    world = World(nodes=2)
    world.timeline.skews_ms[1] = -400
    clocks = [NodeClock(world.timeline, node_id) for node_id in (0, 1)]

    assert clocks[1].wall_ms() - clocks[0].wall_ms() == -400
    assert clocks[1].now_ms() == clocks[0].now_ms()


def test_made_real_it_has_the_right_wall_time() -> None:
    world = World()
    world.advance(86_400_000)
    world.timeline.freeze()
    world.timeline.set_wall(5)
    world.timeline.make_real()
    world.machine.pass_ms(7)

    assert world.timeline.wall_ms() == world.machine.wall_ms()
    assert world.timeline.now_ms() == world.machine.now_ms() + 86_400_000


def test_latest_wall_time_is_known_after_it_was_set_back() -> None:
    world = World()
    world.advance(86_400_000)
    latest_ms = world.timeline.wall_ms()
    world.timeline.make_real()
    assert world.timeline.latest_wall_ms == latest_ms
    world.timeline.forget_latest()
    assert world.timeline.latest_wall_ms == world.timeline.wall_ms()


@given(st.lists(st.tuples(st.sampled_from(["freeze", "resume", "rate", "walk", "real"]), st.integers(0, 90_000))))
def test_broker_time_never_goes_back(steps: list[tuple[str, int]]) -> None:
    world = World()
    timeline, seen = world.timeline, [world.timeline.now_ns()]
    for step, ms in steps:
        match step:
            case "freeze":
                timeline.freeze()
            case "resume":
                timeline.resume()
            case "rate":
                timeline.set_rate(0.01 + ms / 100)
            case "walk":
                world.advance(ms)
            case _:
                timeline.make_real()
        seen.append(timeline.now_ns())
        world.machine.pass_ms(ms)
        seen.append(timeline.now_ns())

    assert seen == sorted(seen)


def test_delay_of_a_deadline_follows_the_rate() -> None:
    world = World()
    timeline = world.timeline
    deadline_ms = timeline.now_ms() + 6_000
    assert timeline.delay_s(deadline_ms) == 6.0
    timeline.set_rate(60.0)
    assert timeline.delay_s(deadline_ms) == pytest.approx(0.1)
    timeline.freeze()
    assert timeline.delay_s(deadline_ms) is None
    assert timeline.delay_s(timeline.now_ms()) == 0, "what is due runs"


@pytest.mark.parametrize(
    ("delta", "ms"),
    [
        (10, 10_000),
        (0.25, 250),
        (timedelta(days=8), 691_200_000),
        ("500ms", 500),
        ("90s", 90_000),
        ("7d", 604_800_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        (0, 0),
    ],
)
def test_durations_are_read(delta: float | timedelta | str, ms: int) -> None:
    assert parse_forward(delta) == ms


@pytest.mark.parametrize("delta", ["8", "8 days", "", "d", True, None, "-5s", -1, timedelta(seconds=-1)])
def test_other_durations_and_the_way_back_are_refused(delta: object) -> None:
    with pytest.raises(ValueError, match=r"expected seconds|does not go back"):
        parse_forward(delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", ["9" * 400 + "d", "-9999999d", 1e300, float("nan"), timedelta.max, "3000000d"])
def test_durations_beyond_all_moments_are_refused(delta: float | timedelta | str) -> None:
    with pytest.raises(MomentError, match="no clock goes as far"):
        parse_delta(delta)


@pytest.mark.parametrize("year", [1969, 9999])
def test_moments_that_brokers_cannot_show_are_refused(year: int) -> None:
    with pytest.raises(MomentError, match="from 1970 to 9998"):
        parse_moment(datetime(year, 1, 2, tzinfo=UTC))


def test_skews_may_be_negative_and_moments_are_utc() -> None:
    assert parse_delta(-1.5) == -1500
    assert parse_moment(datetime(2020, 1, 1)) == parse_moment(datetime(2020, 1, 1, tzinfo=UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("ms", "text"), [(691_200_000, "8 d"), (5_400_000, "1.5 h"), (60_000, "1 m"), (44_700, "44.7 s"), (300, "300 ms")]
)
def test_durations_are_described(ms: int, text: str) -> None:
    assert describe_ms(ms) == text
