"""What a process gives back to the system when its load is over.

The allocator of the C library keeps what was freed below something that is still in use. After a load of large requests
to three brokers that was more than what was in use (53 of 100 MiB), and would have stayed for as long as the process
lives. So once it has been quiet for a while, the allocator is asked to give all of it back.

This is for processes that are a broker and nothing else: an embedded one leaves the memory of its host alone.
"""

import asyncio
import time
from collections.abc import Callable

INTERVAL_S = 10
# Of an interval's processor time: a broker whose clients wait, and whose followers have all, needs less.
QUIET_CPU_S = 0.05 * INTERVAL_S
# By then the buffers are free that the broker keeps for the next request.
QUIET_INTERVALS = 3


def trim_heap() -> None:
    """Some milliseconds, in a thread. Does nothing where the C library has no such function."""
    # Imported here, for it takes its time too.
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class IdleMemory:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        cpu_s: Callable[[], float] = time.process_time,
        trim: Callable[[], None] = trim_heap,
    ) -> None:
        self._loop = loop
        self._cpu_s = cpu_s
        self._trim = trim
        self._last_cpu_s = cpu_s()
        self._quiet_intervals = 0
        self._was_busy = False
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Looks from now on."""
        self._next = self._loop.call_later(INTERVAL_S, self._look)

    def stop(self) -> None:
        """The process ends, and its threads first: there is none that could trim any more."""
        if self._next is not None:
            self._next.cancel()

    def _look(self) -> None:
        self.start()
        before_s, self._last_cpu_s = self._last_cpu_s, self._cpu_s()
        if self._last_cpu_s - before_s > QUIET_CPU_S:
            self._was_busy = True
            self._quiet_intervals = 0
            return
        self._quiet_intervals += 1
        if self._was_busy and self._quiet_intervals >= QUIET_INTERVALS:
            self._was_busy = False
            self._loop.run_in_executor(None, self._trim)
