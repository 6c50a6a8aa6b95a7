"""Scripts that run. Everything here is used on the loop of the brokers alone.

A step is due when broker time comes to its moment, or when what it waits for has happened. While time runs by itself,
the loop wakes for it; while a test moves the time, the jump stops at it. Time stands while a step runs, and goes on
when the brokers have come to rest. Steps of one moment run in the order of the list, behind the timers of brokers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ottla.coordinator.facts import Fact
from ottla.testing.clock.timeline import describe_ms, moment
from ottla.testing.step_lists.actions import ActedOn, run_action
from ottla.testing.step_lists.steps import Happening, Hits, ScriptError, Step, check_rules
from ottla.testing.surroundings.around import FaultSteps

if TYPE_CHECKING:
    from ottla.testing.histories import GroupHistories
    from ottla.testing.waits import Waits


RUNS_KEPT: Final = 1000
"""Of one script: those of steps with `every` may be any number."""


class ScriptedBrokers(ActedOn, Protocol):
    """A testbed, as scripts see it."""

    histories: "GroupHistories"
    steps: FaultSteps
    waits: "Waits"


@dataclass(frozen=True, slots=True)
class StepRun:
    """One run of a step, with both times, in milliseconds since the epoch."""

    step: str
    transport_ms: int
    broker_ms: int
    error: str | None
    """None: it was done."""


class StepState:
    def __init__(self, step: Step, due_ms: int | None) -> None:
        self.step = step
        self.due_ms = due_ms
        """By the monotonic clock of broker time; None: it waits for something."""
        self.runs = 0
        self.error: str | None = None
        """Of its last run."""

    @property
    def is_over(self) -> bool:
        return self.step.times is not None and self.runs >= self.step.times


class ScriptRun:
    """One script, from the moment on at which it is made."""

    def __init__(self, script_id: str, steps: Sequence[Step], now_ms: int, wall_ahead_ms: int) -> None:
        """Raises ScriptError."""
        self.id = script_id
        self.begin_ms = now_ms
        self.log: deque[StepRun] = deque(maxlen=RUNS_KEPT)
        """What has run, the oldest first."""
        self.listeners: list[Callable[[StepRun], None]] = []
        self.is_cancelled = False
        self.states = [StepState(step, self._first_ms(step, now_ms, wall_ahead_ms)) for step in steps]

    def _first_ms(self, step: Step, now_ms: int, wall_ahead_ms: int) -> int | None:
        if step.wall_ms is not None:
            if step.wall_ms < now_ms + wall_ahead_ms:
                now = moment(now_ms + wall_ahead_ms).isoformat(timespec="seconds")
                raise ScriptError(f"step {step.id!r}: {step.when} has passed: broker time is {now}")
            return step.wall_ms - wall_ahead_ms
        delta_ms = step.every_ms if step.after_ms is None else step.after_ms
        return None if delta_ms is None else now_ms + delta_ms

    def note(self, ran: StepRun) -> None:
        self.log.append(ran)
        for listener in self.listeners:
            listener(ran)

    @property
    def is_done(self) -> bool:
        """All that has an end has come to it."""
        return all(each.is_over or (each.step.times is None and each.runs) for each in self.states)

    def unused(self, now_ms: int, hits_of: dict[str, int]) -> Iterator[str]:
        """In sentences: steps that have never run, and those that could not be done."""
        for state in self.states:
            if state.error is not None:
                yield f"script step {state.step} failed: {state.error}"
            elif not state.runs and not state.step.is_optional:
                yield f"script step {state.step} never ran: {self._why(state, now_ms, hits_of)}"

    def _why(self, state: StepState, now_ms: int, hits_of: dict[str, int]) -> str:
        if state.due_ms is not None:
            passed = describe_ms(now_ms - self.begin_ms)
            return f"broker time went on by {passed} since the script began"
        match state.step.cause:
            case Hits(rule, hits):
                return f"rule {rule!r} had {hits_of.get(rule, 0)} of {hits} hits"
            case Happening(kind):
                return f"no such {kind.__name__} came"
            case _:
                return "the step before it had not run"


class Scripts:
    """Of a testbed. It is the agenda of its clock."""

    def __init__(self, bed: ScriptedBrokers) -> None:
        self._bed = bed
        self._timeline = bed.clock.timeline
        self._runs: list[ScriptRun] = []
        self._count = 0
        """Of scripts that have begun."""
        self._alarm: asyncio.TimerHandle | None = None
        self._waking: asyncio.Task[None] | None = None
        bed.clock.follow(self)

    def begin(self, steps: Sequence[Step]) -> ScriptRun:
        """Steps for now have run when the caller awaits `run_due` of the clock. Raises ScriptError."""
        script_id = f"script-{self._count + 1}"
        run = ScriptRun(script_id, steps, self._timeline.now_ms(), self._timeline.wall_ahead_ms)
        check_rules(steps, self._hits())
        self._count += 1
        if not self._runs:
            self._bed.histories.listeners.append(self._hear)
            self._bed.waits.watch(self._look)
        self._runs.append(run)
        self.drive()
        return run

    @property
    def runs(self) -> Sequence[ScriptRun]:
        """Since the last `clear`, in the order of their begins."""
        return self._runs

    def cancel(self, run: ScriptRun) -> None:
        """Steps that have not run do not run any more."""
        run.is_cancelled = True
        self.drive()

    def unused(self) -> list[str]:
        hits, now_ms = self._hits(), self._timeline.now_ms()
        return [each for run in self._runs for each in run.unused(now_ms, hits)]

    def failed(self, run: ScriptRun) -> list[str]:
        return list(run.unused(self._timeline.now_ms(), self._hits()))

    async def clear(self) -> None:
        """Steps that have not run do not run any more. One that runs comes to its end."""
        if not self._runs:
            return
        self._runs.clear()
        self._bed.histories.listeners.remove(self._hear)
        self._bed.waits.unwatch(self._look)
        self.drive()
        if self._waking is not None:
            await self._waking

    # The agenda.

    def next_ms(self) -> int | None:
        return min((due_ms for due_ms, *_ in self._timed()), default=None)

    def is_due(self) -> bool:
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= self._timeline.now_ms()

    async def run_one(self) -> None:
        due_ms, _, index, run = min(self._timed(), key=lambda each: each[:3])
        state = run.states[index]
        self._bed.steps.note(f"script: {state.step}")
        began_ms = self._timeline.machine.wall_ms(), self._timeline.wall_ms()
        state.runs += 1
        error: str | None = None
        if state.step.every_ms is not None:
            state.due_ms = due_ms + state.step.every_ms
        try:
            await run_action(self._bed, state.step.do, state.step.given)
        except Exception as failure:
            state.error = error = f"{type(failure).__name__}: {failure}"
            self._bed.steps.note(f"script: step {state.step.id!r} failed: {error}")
        run.note(StepRun(state.step.id, *began_ms, error))
        follower = run.states[index + 1] if index + 1 < len(run.states) else None
        if follower is not None and follower.due_ms is None and follower.step.cause is None:
            follower.due_ms = self._timeline.now_ms()
        self._look()
        self._bed.waits.look()

    def drive(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        next_ms = self.next_ms()
        delay_s = None if next_ms is None else self._timeline.delay_s(next_ms)
        if delay_s is not None:
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _timed(self) -> Iterator[tuple[int, int, int, ScriptRun]]:
        """What has a moment to run at: that, and its places among scripts and steps."""
        for number, run in enumerate(self._runs):
            for index, state in enumerate(run.states):
                if state.due_ms is not None and not state.is_over and not run.is_cancelled:
                    yield self._moment_of(state), number, index, run

    def _moment_of(self, state: StepState) -> int:
        """A wall clock may have been set since."""
        if state.step.wall_ms is not None:
            return state.step.wall_ms - self._timeline.wall_ahead_ms
        assert state.due_ms is not None, "it has a moment"
        return state.due_ms

    # What steps wait for.

    def _hear(self, fact: Fact, now_ms: int) -> None:
        del now_ms
        self._set_due(
            [
                each
                for each in self._waiting()
                if isinstance(each.step.cause, Happening) and each.step.cause.is_met(fact)
            ]
        )

    def _look(self) -> None:
        waiting = [each for each in self._waiting() if isinstance(each.step.cause, Hits)]
        if waiting:
            hits = self._hits()
            self._set_due(
                [
                    each
                    for each in waiting
                    if isinstance(cause := each.step.cause, Hits) and hits.get(cause.rule, 0) >= cause.hits
                ]
            )

    def _waiting(self) -> Iterator[StepState]:
        for run in self._runs:
            if not run.is_cancelled:
                yield from (each for each in run.states if each.due_ms is None)

    def _set_due(self, states: Sequence[StepState]) -> None:
        for state in states:
            state.due_ms = self._timeline.now_ms()
        if states:
            self.drive()

    def _hits(self) -> dict[str, int]:
        faults = self._bed.hosted.fault_host.faults_if_used
        return {} if faults is None else {each.id: each.hits for each in faults.all_since_clear()}

    def _wake(self) -> None:
        """Time runs by itself, and a step is due."""
        if self._waking is None:
            self._waking = asyncio.get_running_loop().create_task(self._bed.clock.run_due(), name="script")
            self._waking.add_done_callback(self._woken)

    def _woken(self, task: "asyncio.Task[None]") -> None:
        self._waking = None
        self.drive()
        if not task.cancelled():
            task.result()
