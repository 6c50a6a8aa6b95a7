"""The purgatory: scenario T06, seeded bug T-23, docs/semantics §18."""

import gc
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.timer.purgatory import DelayedOperation, Purgatory
from ottla.timer.wheel import TimingWheel


class Wait(DelayedOperation):
    """Waits until `ready`, and writes down what happens to it."""

    def __init__(self, deadline_ms=100, ready=False, on_try=None):
        super().__init__(deadline_ms)
        self.ready = ready
        self.on_try = on_try
        self.events = []

    def try_complete(self):
        self.events.append("tried")
        if self.on_try is not None:
            self.on_try(self)
        return self.ready and self.force_complete()

    def on_complete(self):
        self.events.append("completed")

    def on_expiration(self):
        self.events.append("expired")


@pytest.fixture
def wheel():
    return TimingWheel()


@pytest.fixture
def purgatory(wheel):
    return Purgatory("fetch", wheel)


def is_empty(purgatory, wheel):
    return (len(purgatory), purgatory.watched, len(wheel)) == (0, 0, 0)


def test_what_can_complete_at_once_never_waits(purgatory, wheel):
    operation = Wait(ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.events == ["tried", "completed"]
    assert is_empty(purgatory, wheel)


def test_event_between_the_first_try_and_watching_is_not_missed(purgatory, wheel):
    """T-23: without the second try it would wait for its whole timeout."""

    def event_after_the_first_try(operation):
        operation.ready = len(operation.events) > 1

    operation = Wait(on_try=event_after_the_first_try)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["tried", "tried", "completed"]
    assert is_empty(purgatory, wheel)


def test_what_its_caller_has_tried_is_tried_once_more_and_waits(purgatory, wheel):
    operation = Wait()
    assert not purgatory.watch(operation, ["a"])
    assert operation.events == ["tried"]

    operation.ready = True
    purgatory.check_and_complete("a")

    assert operation.events == ["tried", "tried", "completed"]
    assert is_empty(purgatory, wheel)


def test_operation_is_watched_before_second_try_and_timed_after(purgatory, wheel):
    seen = []
    operation = Wait(on_try=lambda _: seen.append((purgatory.watched, len(wheel))))
    assert not purgatory.try_complete_else_watch(operation, ["a", "b", "a"])
    assert seen == [(0, 0), (2, 0)]
    assert (len(purgatory), purgatory.watched, len(wheel)) == (1, 2, 1)


def test_operation_completed_during_the_second_try_gets_no_timer(purgatory, wheel):
    def completes_but_says_no(operation):
        if len(operation.events) > 1:
            operation.force_complete()

    operation = Wait(on_try=completes_but_says_no)
    assert not purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["tried", "tried", "completed"]
    assert is_empty(purgatory, wheel)


def test_event_completes_all_that_are_ready_in_arrival_order(purgatory):
    order = []
    operations = [Wait() for _ in range(4)]
    for number, operation in enumerate(operations):
        operation.on_complete = lambda number=number: order.append(number)
        purgatory.try_complete_else_watch(operation, ["a", number])
    for number in (3, 0, 2):
        operations[number].ready = True
    assert purgatory.check_and_complete("a") == 3
    assert order == [0, 2, 3]
    assert (len(purgatory), purgatory.watched) == (1, 2)


def test_an_event_of_another_key_tries_nothing(purgatory):
    operation = Wait()
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = True
    assert purgatory.check_and_complete("b") == 0
    assert not operation.completed


def test_the_deadline_completes_and_then_expires(purgatory, wheel):
    operation = Wait(deadline_ms=100)
    purgatory.try_complete_else_watch(operation, ["a"])
    wheel.advance(99)
    assert operation.events == ["tried", "tried"]
    wheel.advance(100)
    assert operation.events == ["tried", "tried", "completed", "expired"]
    assert is_empty(purgatory, wheel)


def test_after_an_event_the_deadline_does_nothing(purgatory, wheel):
    operation = Wait(deadline_ms=100)
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = True
    assert purgatory.check_and_complete("a") == 1
    wheel.advance(1_000)
    assert operation.events == ["tried", "tried", "tried", "completed"]
    assert not operation.force_complete()


def test_a_cancelled_one_neither_completes_nor_expires(purgatory, wheel):
    operation = Wait(deadline_ms=100)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert purgatory.cancel(operation)
    assert not purgatory.cancel(operation)
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    wheel.advance(1_000)
    assert operation.events == ["tried", "tried"]
    assert is_empty(purgatory, wheel)


def test_completed_operations_do_not_stay_under_idle_keys(purgatory, wheel):
    for number in range(1_000):
        operation = Wait(deadline_ms=number)
        purgatory.try_complete_else_watch(operation, ["quiet", f"busy {number}"])
        operation.ready = True
        purgatory.check_and_complete(f"busy {number}")
    assert is_empty(purgatory, wheel)


@pytest.mark.parametrize("end", ["event", "deadline", "cancel"])
def test_what_has_finished_is_gone_without_the_garbage_collector(purgatory, wheel, end):
    """It may hold megabytes, and in a quiet process the collector does not come."""
    gc.disable()
    try:
        operation = Wait()
        purgatory.try_complete_else_watch(operation, ["a"])
        if end == "event":
            operation.ready = True
            purgatory.check_and_complete("a")
        elif end == "deadline":
            wheel.advance(200)
        else:
            purgatory.cancel(operation)
        gone = weakref.ref(operation)
        del operation
        assert gone() is None
    finally:
        gc.enable()


def test_completing_may_use_the_purgatory(purgatory):
    first, second, third = Wait(), Wait(), Wait()

    def chain():
        first.events.append("completed")
        second.ready = third.ready = True
        purgatory.check_and_complete("a")
        purgatory.try_complete_else_watch(Wait(), ["a"])

    first.on_complete = chain
    for operation in (first, second, third):
        purgatory.try_complete_else_watch(operation, ["a"])
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert [operation.events.count("completed") for operation in (first, second, third)] == [1, 1, 1]
    assert (len(purgatory), purgatory.watched) == (1, 1)


def test_one_that_raises_costs_no_other_its_turn(purgatory):
    bad, good = Wait(), Wait()
    for operation in (bad, good):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    bad.on_complete = lambda: [][1]
    with pytest.raises(ExceptionGroup, match="purgatory fetch"):
        purgatory.check_and_complete("a")
    assert good.completed
    assert len(purgatory) == 0


KEYS = st.sampled_from("abc")


class PurgatoryModel(RuleBasedStateMachine):
    """Conditions are values that keys reach: the model knows for each operation when, and by what, it must complete."""

    def __init__(self):
        super().__init__()
        self.wheel = TimingWheel()
        self.purgatory = Purgatory("model", self.wheel)
        self.now_ms = 0
        self.values = dict.fromkeys("abc", 0)
        self.waiting = []
        self.finished = []

    @rule(wants=st.dictionaries(KEYS, st.integers(0, 20), min_size=1), timeout_ms=st.integers(0, 200))
    def park(self, wants, timeout_ms):
        def check(operation):
            operation.ready = any(self.values[key] >= value for key, value in wants.items())

        operation = Wait(self.now_ms + timeout_ms, on_try=check)
        at_once = any(self.values[key] >= value for key, value in wants.items())
        assert self.purgatory.try_complete_else_watch(operation, wants) == at_once
        (self.finished if at_once else self.waiting).append((operation, wants, "completed"))

    @rule(key=KEYS, by=st.integers(1, 5))
    def event(self, key, by):
        self.values[key] += by
        due = [item for item in self.waiting if self.values[key] >= item[1].get(key, 1_000_000)]
        assert self.purgatory.check_and_complete(key) == len(due)
        self.finish(due, "completed")

    @rule(step_ms=st.integers(0, 150))
    def let_time_pass(self, step_ms):
        self.now_ms += step_ms
        self.wheel.advance(self.now_ms)
        self.finish([item for item in self.waiting if item[0].deadline_ms <= self.now_ms], "expired")

    @rule(which=st.integers(0, 100))
    def cancel(self, which):
        if self.waiting:
            item = self.waiting[which % len(self.waiting)]
            assert self.purgatory.cancel(item[0])
            self.finish([item], "tried")

    def finish(self, items, last_event):
        self.waiting = [item for item in self.waiting if item not in items]
        self.finished += [(operation, wants, last_event) for operation, wants, _ in items]

    @invariant()
    def each_completed_once_and_by_the_right_cause(self):
        for operation, _, last_event in self.finished:
            assert operation.completed
            assert operation.events[-1] == last_event
            assert operation.events.count("completed") == (last_event != "tried")
        assert not any(operation.completed for operation, _, _ in self.waiting)

    @invariant()
    def only_what_waits_is_kept(self):
        keys = sum(len(wants) for _, wants, _ in self.waiting)
        expected = (len(self.waiting), keys, len(self.waiting))
        assert (len(self.purgatory), self.purgatory.watched, len(self.wheel)) == expected


PurgatoryModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestPurgatoryModel = PurgatoryModel.TestCase


def test_an_operation_gets_the_key_that_had_the_event(purgatory):
    class ByKey(Wait):
        def try_complete_for(self, key):
            self.events.append(key)
            return key == "b" and self.force_complete()

    operation = ByKey()
    purgatory.watch(operation, ["a", "b"])

    assert (purgatory.check_and_complete("a"), purgatory.check_and_complete("b")) == (0, 1)

    assert operation.events == ["tried", "a", "b", "completed"]


def test_too_many_watched_keys_complete_the_oldest(wheel):
    purgatory = Purgatory("fetch", wheel, watched_max=3)
    first, second, third = Wait(), Wait(), Wait()
    purgatory.watch(first, ["a", "b"])
    purgatory.watch(second, ["a"])
    assert not first.completed

    assert not purgatory.watch(third, ["c"])

    assert (first.events, second.completed, third.completed) == (["tried", "completed"], False, False)
    assert (len(purgatory), purgatory.watched, len(wheel)) == (2, 2, 2)


def test_an_operation_of_too_many_keys_does_not_wait(wheel):
    purgatory = Purgatory("fetch", wheel, watched_max=3)
    operation = Wait()

    purgatory.watch(operation, ["a", "b", "c", "d"])

    assert operation.events == ["tried", "completed"]
    assert is_empty(purgatory, wheel)


class Keyed(Wait):
    """Ready when one of these keys has an event."""

    def __init__(self, *keys):
        super().__init__()
        self.keys_ready = keys

    def try_complete_for(self, key):
        self.events.append(key)
        return key in self.keys_ready and self.force_complete()


def test_further_keys_of_a_waiting_operation_are_watched(purgatory, wheel):
    operation = Keyed("c")
    purgatory.watch(operation, ())
    purgatory.watch_more(operation, ["a", "b", "a"])
    purgatory.watch_more(operation, ["b"])
    assert (operation.events, purgatory.watched, len(purgatory)) == (["tried", "a", "b"], 2, 1)
    purgatory.watch_more(operation, ["d"])

    purgatory.check_and_complete("a")
    assert not operation.completed
    assert purgatory.cancel(operation)

    assert is_empty(purgatory, wheel)


def test_further_key_whose_event_came_before_completes(purgatory, wheel):
    operation = Keyed("b")
    purgatory.watch(operation, ())

    purgatory.watch_more(operation, ["a", "b", "c"])
    purgatory.watch_more(operation, ["d"])

    assert operation.events == ["tried", "a", "b", "completed"]
    assert is_empty(purgatory, wheel)


def test_too_many_further_keys_complete_the_oldest(wheel):
    purgatory = Purgatory("fetch", wheel, watched_max=3)
    first, second = Wait(), Wait()
    purgatory.watch(first, ["a", "b"])
    purgatory.watch(second, ())

    purgatory.watch_more(second, ["a", "c"])

    assert (first.completed, second.completed, purgatory.watched) == (True, False, 2)
