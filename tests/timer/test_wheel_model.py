"""Scenario T03: the wheel against a dumb model that looks for the smallest (deadline, number) again and again."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.timer.wheel import TimerEntry, TimingWheel

DELAYS = st.one_of(st.integers(-5, 45), st.integers(-500, 10_000), st.integers(0, 10_000_000))
STEPS = st.one_of(st.integers(0, 3), st.integers(0, 500), st.integers(0, 20_000_000))
ENTRIES = st.integers(0, 1_000)
# What an action does when it runs: to which entry (or a new one), and how long after its own deadline.
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(["schedule", "cancel", "reschedule", "raise"]), ENTRIES, DELAYS), max_size=2
)


class ScriptError(Exception):
    pass


@dataclass
class Run:
    """One of the two worlds. `deadlines` and `fired` are kept by the scripts, alike in both."""

    scripts: list[list[tuple[str, int, int]]] = field(default_factory=list)
    deadlines: list[int] = field(default_factory=list)
    fired: list[int] = field(default_factory=list)

    def add(self, deadline_ms: int, script: list[tuple[str, int, int]]) -> None:
        self.deadlines.append(deadline_ms)
        self.scripts.append(script)
        self.insert(len(self.deadlines) - 1, deadline_ms)

    def move(self, which: int, deadline_ms: int) -> None:
        name = which % len(self.deadlines)
        self.deadlines[name] = deadline_ms
        self.insert(name, deadline_ms)

    def play(self, name: int) -> None:
        self.fired.append(name)
        # Each script is played once: two entries that revive one another would never come to an end.
        script, self.scripts[name] = self.scripts[name], []
        for verb, which, delay_ms in script:
            match verb:
                case "schedule":
                    self.add(self.deadlines[name] + delay_ms, [])
                case "cancel":
                    self.remove(which % len(self.deadlines))
                case "reschedule":
                    self.move(which, self.deadlines[name] + delay_ms)
                case _:
                    raise ScriptError

    def insert(self, name: int, deadline_ms: int) -> None:
        raise NotImplementedError

    def remove(self, name: int) -> bool:
        raise NotImplementedError


@dataclass
class Model(Run):
    tick_ms: int = 1
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    number: int = 0

    def insert(self, name, deadline_ms):
        self.pending[name] = (deadline_ms, self.number)
        self.number += 1

    def remove(self, name):
        return self.pending.pop(name, None) is not None

    def advance(self, now_ms: int) -> int:
        errors = 0
        end_of_tick_ms = now_ms // self.tick_ms * self.tick_ms
        while due := [(when, name) for name, when in self.pending.items() if when[0] <= end_of_tick_ms]:
            name = min(due)[1]
            del self.pending[name]
            try:
                self.play(name)
            except ScriptError:
                errors += 1
        return errors


@dataclass
class Real(Run):
    wheel: TimingWheel = field(default_factory=TimingWheel)
    entries: dict[int, TimerEntry] = field(default_factory=dict)

    def insert(self, name, deadline_ms):
        if name in self.entries:
            self.entries[name].reschedule(deadline_ms)
        else:
            self.entries[name] = self.wheel.schedule(deadline_ms, lambda: self.play(name))

    def remove(self, name):
        return self.entries[name].cancel()

    def advance(self, now_ms: int) -> int:
        try:
            self.wheel.advance(now_ms)
        except ExceptionGroup as group:
            return len(group.exceptions)
        return 0


class WheelAgainstModel(RuleBasedStateMachine):
    @initialize(
        tick_ms=st.sampled_from([1, 1, 2, 200]), size=st.sampled_from([2, 3, 8, 20]), now_ms=st.integers(0, 10_000)
    )
    def start(self, tick_ms, size, now_ms):
        self.now_ms = now_ms
        self.tick_ms = tick_ms
        self.model = Model(tick_ms=tick_ms)
        self.real = Real(wheel=TimingWheel(tick_ms, size, now_ms))

    @rule(delay_ms=DELAYS, script=SCRIPTS)
    def schedule(self, delay_ms, script):
        for world in (self.model, self.real):
            world.add(self.now_ms + delay_ms, script)

    @precondition(lambda self: self.model.deadlines)
    @rule(which=ENTRIES)
    def cancel(self, which):
        name = which % len(self.model.deadlines)
        assert self.real.remove(name) == self.model.remove(name)

    @precondition(lambda self: self.model.deadlines)
    @rule(which=ENTRIES, delay_ms=DELAYS)
    def reschedule(self, which, delay_ms):
        for world in (self.model, self.real):
            world.move(which, self.now_ms + delay_ms)

    @rule(step_ms=STEPS)
    def let_time_pass(self, step_ms):
        self.now_ms += step_ms
        assert self.real.advance(self.now_ms) == self.model.advance(self.now_ms)

    @rule(wakeups=st.integers(1, 5))
    def sleep_until_woken(self, wakeups):
        for _ in range(wakeups):
            wakeup_ms = self.real.wheel.next_wakeup_ms()
            if wakeup_ms is None:
                break
            self.now_ms = max(self.now_ms, wakeup_ms)
            assert self.real.advance(self.now_ms) == self.model.advance(self.now_ms)

    @invariant()
    def both_ran_the_same_in_the_same_order(self):
        assert self.real.fired == self.model.fired

    @invariant()
    def size_is_exact(self):
        assert len(self.real.wheel) == len(self.model.pending)
        assert {name for name, entry in self.real.entries.items() if entry.pending} == set(self.model.pending)

    @invariant()
    def the_next_wakeup_is_not_too_late(self):
        wakeup_ms = self.real.wheel.next_wakeup_ms()
        assert (wakeup_ms is None) == (not self.model.pending)
        if wakeup_ms is not None:
            soonest_ms = min(self.model.pending.values())[0]
            assert wakeup_ms < max(soonest_ms, self.now_ms) + self.tick_ms


WheelAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWheelAgainstModel = WheelAgainstModel.TestCase
