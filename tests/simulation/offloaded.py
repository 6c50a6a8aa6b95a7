"""Offloaded work that the loop comes between: what a broker gives to a thread runs in a greenlet, and is suspended at
drawn operations of its disk, before them and after those that change something. It goes on a drawn time later.

On a real machine a thread runs beside the loop: between any two of its operations the loop may append, roll, truncate
or delete a log. Other threads run then too. A lock is waited for as there: by a thread until it is released, and by the
loop by letting the thread that holds it go on, while nothing else happens.

Work of a process that has died never goes on. It is ended where it was suspended, and on the way out it finds a disk
that does nothing any more.
"""

import asyncio
import contextlib
import contextvars
import random
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from ottla.storage import leader_epoch_cache, log_start_file, segment_swap
from tests.simulation.draws import randint

WITH_LOCKS = (leader_epoch_cache, log_start_file, segment_swap)
"""Modules whose locks are between threads and the loop."""
SHARE_OF_WORLDS = 0.28
HABITS = ((0.1, 50_000), (0.3, 5_000), (1.0, 1_000))
"""How often work is suspended at an operation, and for how many microseconds at most."""
LOCK_LOOK_US = 20
"""How often a thread looks whether a lock is free."""


class Suspensions:
    """Those of one world. `counts` says how often there were some."""

    def __init__(self, rng: random.Random, share: float, longest_us: int) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._share = share
        self._longest_us = longest_us

    @classmethod
    def draw(cls, rng: random.Random) -> "Suspensions":
        """In most worlds there are none."""
        drawn, habits = rng.random(), rng.choice(HABITS)
        return cls(rng, *habits) if drawn < SHARE_OF_WORLDS else cls(rng, 0.0, 0)

    @property
    def are_drawn(self) -> bool:
        return self._share > 0

    def draw_us(self) -> int | None:
        """For how long the work at hand is suspended; None if it goes on at once."""
        if self._rng.random() >= self._share:
            return None
        self.counts["offloaded work suspended"] += 1
        return self._rng.choice([0, randint(self._rng, 1, 200), randint(self._rng, 1, self._longest_us)])

    @contextlib.contextmanager
    def locks(self) -> Iterator[None]:
        """While it lasts, the locks of storage are such as work in greenlets can wait for."""
        with contextlib.ExitStack() as stack:
            for module in WITH_LOCKS if self.are_drawn else ():
                threading = SimpleNamespace(Lock=lambda: WorkLock(self.counts))
                stack.enter_context(patch.object(module, "threading", threading))
            yield


class Abandoned(BaseException):
    """Ends the work of a process that has died."""


class OffloadedWork(greenlet):
    """`function` runs as in a thread, in the context of the caller."""

    def __init__(
        self,
        function: Callable[[], None],
        draw_us: Callable[[], int | None],
        call_later_us: Callable[[int, Callable[[], None]], asyncio.TimerHandle],
    ) -> None:
        super().__init__(function)
        self.gr_context = contextvars.copy_context()
        self._draw_us = draw_us
        self._call_later_us = call_later_us
        # None while it runs.
        self._timer: asyncio.TimerHandle | None = None
        # The one that the loop waits for; the work is not suspended before it has released it.
        self._lock: WorkLock | None = None
        self._is_abandoned = False

    def go_on(self) -> None:
        """Called by the loop: returns when the work is suspended or has ended. Raises what kills its process."""
        self._timer = None
        self.switch()

    def maybe_suspend(self) -> None:
        """Called by the work."""
        self.check()
        delay_us = self._draw_us() if self._lock is None else None
        if delay_us is not None:
            self.suspend(delay_us)

    def suspend(self, delay_us: int) -> None:
        """Called by the work."""
        self.check()
        assert self.parent is not None, "the work was begun by the loop"
        self._timer = self._call_later_us(delay_us, self.go_on)
        self.parent.switch()

    def check(self) -> None:
        """Raises Abandoned if the process has died."""
        if self._is_abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """Called by the loop, when the process has died."""
        self._is_abandoned = True
        if self._timer is not None:
            self._timer.cancel()
        # Whatever the work makes of its end: nothing is left that could hear of it.
        with contextlib.suppress(Abandoned, Exception):
            self.throw(Abandoned)
        assert self.dead, "work of a dead process waits for something"

    def release(self, lock: "WorkLock") -> None:
        """Called by the loop, which waits for the lock: returns when the work has released it."""
        assert self._timer is not None, "the work that holds the lock is suspended"
        self._timer.cancel()
        self._lock = lock
        self.go_on()

    def released(self, lock: "WorkLock") -> None:
        """Called by the work."""
        if self._lock is lock:
            self._lock = None
            self.suspend(0)


def current_work() -> OffloadedWork | None:
    """The work that runs; None while the loop does."""
    current = getcurrent()
    return current if isinstance(current, OffloadedWork) else None


class WorkLock:
    """Stands for a `threading.Lock`."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._holder: OffloadedWork | None = None
        self._is_held = False

    def __enter__(self) -> None:
        work = current_work()
        while self._is_held:
            if work is not None:
                assert self._holder is not work, "work waits for a lock that it holds itself"
                work.suspend(LOCK_LOOK_US)
            else:
                assert self._holder is not None, "the loop waits for a lock that it holds itself"
                self._counts["loop waited for a lock"] += 1
                self._holder.release(self)
        self._holder, self._is_held = work, True

    def __exit__(self, *_: Any) -> None:
        work, self._holder, self._is_held = self._holder, None, False
        if work is not None:
            work.released(self)
