"""When a process gives back what its allocator keeps."""

import itertools

import pytest

from ottla.broker.upkeep.idle_memory import INTERVAL_S, QUIET_CPU_S, QUIET_INTERVALS, IdleMemory, trim_heap
from tests.simulation.loop import SimulationLoop

BUSY, QUIET = 2 * QUIET_CPU_S, QUIET_CPU_S / 2


@pytest.mark.parametrize(
    ("load", "trimmed_at"),
    [
        ([QUIET] * 9, []),
        ([BUSY] + [QUIET] * (QUIET_INTERVALS - 1), []),
        ([BUSY] + [QUIET] * 9, [1 + QUIET_INTERVALS]),
        ([BUSY, QUIET, QUIET, BUSY] + [QUIET] * 9, [4 + QUIET_INTERVALS]),
        (([BUSY] + [QUIET] * QUIET_INTERVALS) * 2, [1 + QUIET_INTERVALS, 2 + 2 * QUIET_INTERVALS]),
    ],
    ids=["always quiet", "not for long", "once", "the last load counts", "after each load"],
)
def test_the_heap_is_trimmed_once_after_each_load(load: list[float], trimmed_at: list[int]) -> None:
    loop = SimulationLoop(start_us=0)
    used = itertools.chain([0], itertools.accumulate(load))
    trims: list[int] = []
    memory = IdleMemory(
        loop, cpu_s=lambda: next(used), trim=lambda: trims.append(loop.now_us // (INTERVAL_S * 1_000_000))
    )
    memory.start()
    loop.call_later(len(load) * INTERVAL_S + 1, loop.stop)
    loop.run_forever()
    loop.close()

    assert trims == trimmed_at


def test_nothing_is_trimmed_once_the_process_stops() -> None:
    """Its threads have ended by then."""
    loop = SimulationLoop(start_us=0)
    used = itertools.chain([0], itertools.accumulate([BUSY] + [QUIET] * 9))
    trims: list[int] = []
    memory = IdleMemory(loop, cpu_s=lambda: next(used), trim=lambda: trims.append(1))
    memory.start()
    loop.call_later(2.5 * INTERVAL_S, memory.stop)
    loop.call_later(9 * INTERVAL_S, loop.stop)
    loop.run_forever()
    loop.close()

    assert trims == []
    assert len([*used]) == 8, "it does not look any more"


def test_trimming_harms_nothing() -> None:
    kept = [bytes([n]) * 100_000 for n in range(9)]
    trim_heap()
    assert kept == [bytes([n]) * 100_000 for n in range(9)]
