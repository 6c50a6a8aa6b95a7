"""The timing wheel: scenarios T01, T02, T03 and T05, docs/semantics §17."""

from collections.abc import Callable

import pytest

from ottla.timer.wheel import TimerEntry, TimingWheel

HOUR_MS = 3_600_000


def recorder() -> tuple[list[object], Callable[[object], Callable[[], None]]]:
    fired: list[object] = []
    return fired, lambda name: lambda: fired.append(name)


def nothing() -> None:
    pass


def drive(wheel: TimingWheel) -> list[int]:
    """Let time pass from wake-up to wake-up, as a shell does; gives the moments."""
    wakeups: list[int] = []
    while (wakeup := wheel.next_wakeup_ms()) is not None:
        wakeups.append(wakeup)
        wheel.advance(wakeup)
    return wakeups


class TestHierarchyT01:
    @pytest.mark.parametrize(
        ("deadline_ms", "level", "slots_from_hand"),
        [
            (1, 0, 1),
            (19, 0, 19),
            (20, 1, 1),
            (399, 1, 19),
            (400, 2, 1),
            (7_999, 2, 19),
            (8_000, 3, 1),
            (45_000, 3, 5),
            (7 * 24 * HOUR_MS, 6, 9),
        ],
    )
    def test_an_entry_lies_in_the_lowest_wheel_that_reaches_it(self, deadline_ms, level, slots_from_hand):
        wheel = TimingWheel()
        assert wheel.position(wheel.schedule(deadline_ms, nothing)) == (level, slots_from_hand)

    def test_entry_moves_down_wheel_by_wheel_and_fires_on_time(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        entry = wheel.schedule(8_421, fire("due"))
        way = [wheel.position(entry)]
        for wakeup in (8_000, 8_400, 8_420):
            assert wheel.next_wakeup_ms() == wakeup
            wheel.advance(wakeup)
            way.append(wheel.position(entry))
        assert (way, fired) == ([(3, 1), (2, 1), (1, 1), (0, 1)], [])
        wheel.advance(8_421)
        assert (wheel.position(entry), fired) == (None, ["due"])

    def test_the_wheels_turn_with_the_hand(self):
        wheel = TimingWheel(start_ms=12_345)
        assert wheel.position(wheel.schedule(12_364, nothing)) == (0, 19)
        assert wheel.position(wheel.schedule(12_365, nothing)) == (1, 1)
        wheel.advance(12_346)
        assert wheel.position(wheel.schedule(12_365, nothing)) == (0, 19)


class TestWorkedExampleT02:
    """Eight slots of 200 ms."""

    def test_700_ms_is_the_fourth_slot_from_the_hand(self):
        fired, fire = recorder()
        wheel = TimingWheel(tick_ms=200, wheel_size=8)
        entry = wheel.schedule(700, fire("700"))
        assert wheel.position(entry) == (0, 4)
        wheel.advance(799)
        assert fired == []
        wheel.advance(800)
        assert fired == ["700"]

    def test_entry_of_the_second_wheel_moves_down_before_it_fires(self):
        fired, fire = recorder()
        wheel = TimingWheel(tick_ms=200, wheel_size=8)
        entry = wheel.schedule(2_000, fire("2 s"))
        assert wheel.position(entry) == (1, 1)
        wheel.advance(1_599)
        assert wheel.position(entry) == (1, 1)
        wheel.advance(1_600)
        assert wheel.position(entry) == (0, 2)
        wheel.advance(1_999)
        assert fired == []
        wheel.advance(2_000)
        assert fired == ["2 s"]


class TestOrderT03:
    def test_equal_deadlines_run_in_scheduling_order_from_any_wheel(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        wheel.schedule(1_000, fire("first, from the third wheel"))
        wheel.advance(990)
        wheel.schedule(1_000, fire("second, straight into the lowest"))
        wheel.advance(2_000)
        assert fired == ["first, from the third wheel", "second, straight into the lowest"]

    def test_within_a_coarse_tick_deadlines_decide(self):
        fired, fire = recorder()
        wheel = TimingWheel(tick_ms=200, wheel_size=8)
        for deadline_ms in (790, 610, 700, 610):
            wheel.schedule(deadline_ms, fire((deadline_ms, len(wheel))))
        wheel.advance(800)
        assert fired == [(610, 1), (610, 3), (700, 2), (790, 0)]

    def test_rescheduling_goes_behind_others_of_the_same_deadline(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        entry = wheel.schedule(5, fire("moved"))
        wheel.schedule(5, fire("stayed"))
        entry.reschedule(5)
        wheel.advance(5)
        assert fired == ["stayed", "moved"]

    def test_a_deadline_that_has_passed_waits_for_the_next_advance(self):
        fired, fire = recorder()
        wheel = TimingWheel(start_ms=100)
        wheel.schedule(40, fire("long ago"))
        wheel.schedule(100, fire("now"))
        assert (fired, wheel.next_wakeup_ms(), len(wheel)) == ([], 100, 2)
        wheel.advance(100)
        assert (fired, wheel.next_wakeup_ms(), len(wheel)) == (["long ago", "now"], None, 0)

    def test_a_clock_that_goes_backwards_is_refused(self):
        wheel = TimingWheel(start_ms=100)
        with pytest.raises(AssertionError, match="backwards, from 100 to 99"):
            wheel.advance(99)


class TestCancelAndReschedule:
    def test_a_cancelled_entry_never_runs_and_counts_no_more(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        entry = wheel.schedule(5, fire("cancelled"))
        assert entry.cancel()
        assert not entry.cancel()
        assert (len(wheel), entry.pending) == (0, False)
        wheel.advance(HOUR_MS)
        assert fired == []

    def test_heartbeat_restarts_a_session_and_leaves_nothing_behind(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        session = wheel.schedule(10_000, fire("expired"))
        for now_ms in range(3_000, 90_000, 3_000):
            wheel.advance(now_ms)
            session.reschedule(now_ms + 10_000)
        assert (fired, len(wheel)) == ([], 1)
        wheel.advance(87_000 + 9_999)
        assert fired == []
        wheel.advance(87_000 + 10_000)
        assert fired == ["expired"]

    def test_an_entry_that_has_run_can_be_armed_again(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        entry = wheel.schedule(1, fire("run"))
        wheel.advance(1)
        entry.reschedule(7)
        assert (len(wheel), entry.pending) == (1, True)
        wheel.advance(7)
        assert fired == ["run", "run"]


class TestActions:
    def test_an_action_schedules_what_is_due_in_the_same_advance(self):
        fired, fire = recorder()
        wheel = TimingWheel()

        def action() -> None:
            fired.append("5")
            wheel.schedule(30, fire("30"))
            wheel.schedule(3, fire("3"))
            wheel.schedule(5, fire("5 again"))

        wheel.schedule(5, action)
        wheel.schedule(6, fire("6"))
        wheel.advance(40)
        assert fired == ["5", "3", "5 again", "6", "30"]

    def test_an_action_cancels_one_that_is_due_with_it(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        victims: list[TimerEntry] = []
        wheel.schedule(5, lambda: [victim.cancel() for victim in victims])
        victims.append(wheel.schedule(5, fire("same tick")))
        victims.append(wheel.schedule(6, fire("next tick")))
        wheel.advance(50)
        assert (fired, len(wheel)) == ([], 0)

    def test_an_action_moves_one_that_is_due_with_it(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        wheel.schedule(5, lambda: moved.reschedule(9))
        moved = wheel.schedule(5, fire("moved"))
        wheel.advance(8)
        assert (fired, len(wheel)) == ([], 1)
        wheel.advance(9)
        assert fired == ["moved"]

    def test_an_action_arms_itself_again(self):
        moments: list[int] = []
        wheel = TimingWheel()

        def tick() -> None:
            moments.append(entry.deadline_ms)
            entry.reschedule(entry.deadline_ms + 100)

        entry = wheel.schedule(100, tick)
        wheel.advance(450)
        assert (moments, len(wheel)) == ([100, 200, 300, 400], 1)

    def test_an_action_that_raises_costs_no_other_its_turn(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        wheel.schedule(5, lambda: [][1])
        wheel.schedule(5, fire("same tick"))
        wheel.schedule(6, lambda: {}["missing"])
        wheel.schedule(700, fire("later"))
        with pytest.raises(ExceptionGroup) as raised:
            wheel.advance(1_000)
        assert [type(error) for error in raised.value.exceptions] == [IndexError, KeyError]
        assert (fired, len(wheel), wheel.next_wakeup_ms()) == (["same tick", "later"], 0, None)

    def test_an_interrupt_leaves_the_rest_to_the_next_advance(self):
        fired, fire = recorder()
        wheel = TimingWheel()

        def interrupt() -> None:
            raise KeyboardInterrupt

        wheel.schedule(5, interrupt)
        wheel.schedule(5, fire("same tick"))
        wheel.schedule(6, fire("next tick"))
        with pytest.raises(KeyboardInterrupt):
            wheel.advance(10)
        assert (fired, len(wheel), wheel.next_wakeup_ms()) == ([], 2, 10)
        wheel.advance(10)
        assert fired == ["same tick", "next tick"]

    def test_an_action_may_not_advance(self):
        wheel = TimingWheel()
        wheel.schedule(1, lambda: wheel.advance(2))
        with pytest.raises(ExceptionGroup) as raised:
            wheel.advance(1)
        assert "an action called advance" in str(raised.value.exceptions[0])


class TestWakeupsT05:
    def test_none_while_nothing_is_pending(self):
        wheel = TimingWheel()
        assert wheel.next_wakeup_ms() is None
        entries = [wheel.schedule(deadline_ms, nothing) for deadline_ms in (0, 1, 50, 5_000, HOUR_MS)]
        for entry in entries:
            entry.cancel()
        assert wheel.next_wakeup_ms() is None

    def test_one_for_a_slot_however_many_entries_it_holds(self):
        wheel = TimingWheel(tick_ms=200, wheel_size=8)
        for deadline_ms in [*range(401, 601)] * 5:
            wheel.schedule(deadline_ms, nothing)
        assert drive(wheel) == [600]
        assert len(wheel) == 0

    def test_session_restarted_in_time_causes_no_wakeup(self):
        wheel = TimingWheel()
        session = wheel.schedule(45_000, nothing)
        wakeups = []
        for now_ms in range(3_000, 300_000, 3_000):
            while (wakeup := wheel.next_wakeup_ms()) is not None and wakeup <= now_ms:
                wakeups.append(wakeup)
                wheel.advance(wakeup)
            wheel.advance(now_ms)
            session.reschedule(now_ms + 45_000)
        assert wakeups == []

    def test_a_jump_of_hours_touches_only_slots_that_hold_something(self):
        fired, fire = recorder()
        wheel = TimingWheel()
        for day in range(1, 8):
            wheel.schedule(day * 24 * HOUR_MS, fire(day))
        wheel.advance(8 * 24 * HOUR_MS)
        assert fired == [1, 2, 3, 4, 5, 6, 7]
        assert wheel.position(wheel.schedule(8 * 24 * HOUR_MS + 5, nothing)) == (0, 5)


def test_entries_are_all_that_is_pending() -> None:
    wheel = TimingWheel(start_ms=100)
    entries = [wheel.schedule(deadline_ms, nothing) for deadline_ms in (50, 120, 7 * 24 * HOUR_MS)]
    cancelled = wheel.schedule(300, nothing)
    cancelled.cancel()
    seen: list[set[TimerEntry]] = []
    looks = wheel.schedule(110, lambda: seen.append(set(wheel.entries())))
    tied = wheel.schedule(110, nothing)

    assert set(wheel.entries()) == {*entries, looks, tied}
    wheel.advance(130)
    assert seen == [{*entries[1:], tied}]
    assert set(wheel.entries()) == {entries[2]}
