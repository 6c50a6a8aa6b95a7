"""The timing wheel with a million timers pending against the same wheel with a thousand: insert + cancel (T04)."""

import random
import time

from benchmarks.figure import Figure, interleave
from ottla.timer.wheel import TimingWheel

FEW = 1_000
MANY = 1_000_000
ROUNDS = 15
OPERATIONS_PER_ROUND = 20_000
SESSION_TIMEOUT_MS = 45_000


def figures() -> list[Figure]:
    many, few = _filled_wheel(MANY), _filled_wheel(FEW)
    insert_cancel = interleave(ROUNDS, lambda: _time_insert_and_cancel(many), lambda: _time_insert_and_cancel(few))
    restart = interleave(ROUNDS, lambda: _time_restart(many), lambda: _time_restart(few))
    baseline = f"the same at {FEW:,} timers"
    return [
        Figure(f"timing wheel at {MANY:,} timers: insert + cancel", baseline, "µs", insert_cancel, at_most=2),
        Figure(f"timing wheel at {MANY:,} timers: restart a session", baseline, "µs", restart, at_most=2),
    ]


def _filled_wheel(pending: int) -> TimingWheel:
    rng = random.Random(pending)
    wheel = TimingWheel()
    for _ in range(pending):
        wheel.schedule(rng.randrange(1, 2 * SESSION_TIMEOUT_MS), _nothing)
    return wheel


def _time_insert_and_cancel(wheel: TimingWheel) -> float:
    """Inserted in one go and cancelled in another order, so that neither finds its neighbours in the cache."""
    rng = random.Random(1)
    deadlines = [rng.randrange(1, 2 * SESSION_TIMEOUT_MS) for _ in range(OPERATIONS_PER_ROUND)]
    order = list(range(OPERATIONS_PER_ROUND))
    rng.shuffle(order)
    started = time.perf_counter()
    entries = [wheel.schedule(deadline_ms, _nothing) for deadline_ms in deadlines]
    for index in order:
        entries[index].cancel()
    return (time.perf_counter() - started) / OPERATIONS_PER_ROUND * 1e6


def _time_restart(wheel: TimingWheel) -> float:
    entry = wheel.schedule(SESSION_TIMEOUT_MS, _nothing)
    started = time.perf_counter()
    for later_ms in range(OPERATIONS_PER_ROUND):
        entry.reschedule(SESSION_TIMEOUT_MS + later_ms)
    elapsed = time.perf_counter() - started
    entry.cancel()
    return elapsed / OPERATIONS_PER_ROUND * 1e6


def _nothing() -> None:
    pass


if __name__ == "__main__":
    for figure in figures():
        print(f"{figure.name:<55} {figure.ours:.2f} {figure.unit}, {figure.ratio:.2f} of {figure.baseline}")
