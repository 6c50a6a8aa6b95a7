"""What a process that is a broker and nothing else does for itself: its limits, its collector, its memory, its age."""

import asyncio
import contextlib
import gc
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path

from ottla.broker.logging import LazyLog
from ottla.broker.upkeep.idle_memory import IdleMemory

# Until then, the clients that waited for the broker have the processor for themselves.
DEFERRED_WORK_AFTER_S = 0.5
# Collections of the generation before, beyond which one is looked through as well; in CPython 10 of each.
MIDDLE_GENERATION_THRESHOLD = 1
OLD_GENERATION_THRESHOLD = 500


@contextlib.contextmanager
def process_upkeep(loop: asyncio.AbstractEventLoop, log: LazyLog) -> Generator[None]:
    """While the broker serves. What it does in threads is not begun any more when the process ends, which ends these
    first."""
    deferred = loop.call_later(DEFERRED_WORK_AFTER_S, loop.run_in_executor, None, _do_deferred_work, log, loop)
    idle_memory = IdleMemory(loop)
    idle_memory.start()
    try:
        yield
    finally:
        deferred.cancel()
        idle_memory.stop()


def _do_deferred_work(log: LazyLog, loop: asyncio.AbstractEventLoop) -> None:
    """What a start need not wait for, in a thread: imports that would be a long step of the loop later."""
    log.prepare()
    tune_garbage_collector()
    log.debug("deferred start work done")
    loop.call_soon_threadsafe(log.release)


def tune_garbage_collector() -> None:
    """All that was imported leaves the garbage collector's sight, which would look through it again and again while all
    clients wait; it seldom looks through all that is old, and often through what is young (decision 0019)."""
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], MIDDLE_GENERATION_THRESHOLD, OLD_GENERATION_THRESHOLD)


def raise_file_limit() -> None:
    """As far as it may be raised, as Java does it too: every partition and every connection takes a descriptor."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        with contextlib.suppress(ValueError, OSError):  # Some systems promise more than they grant.
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def startup_ms() -> int:
    """Since the process began, by the kernel's books."""
    started_ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 - started_ticks * 1000 / os.sysconf("SC_CLK_TCK"))
