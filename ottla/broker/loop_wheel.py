"""Time in production: the machine's clocks, and the timing wheel turned by the loop's timers, one at a time."""

import asyncio
import time
from collections.abc import Callable, Hashable

from ottla.broker.histogram import Histogram
from ottla.timer.clock import Clock, TimerKind
from ottla.timer.wheel import TimerEntry, TimingWheel

# Later than any deadline: when the loop has no timer for the wheel.
NEVER = 1 << 62


class SystemClock:
    """`ottla.timer.clock.Clock` over the machine's monotonic and wall clocks."""

    __slots__ = ()

    # The function itself: it is called for every read event.
    now_ns = staticmethod(time.monotonic_ns)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class TransportLoginClock:
    """`ottla.timer.clock.LoginClock` in production."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = clock.now_ms
        self.wall_ms = clock.wall_ms

    def transport_ms(self, deadline_ms: int) -> int:
        return deadline_ms


class LoopWheel(TimingWheel):
    """A timing wheel that advances by itself while the loop runs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        end_event: Callable[[], None],
        report: Callable[[Exception], None],
    ) -> None:
        """`end_event` is called after timers have run; `report` gets what they have raised."""
        super().__init__(start_ms=clock.now_ms())
        self._loop = loop
        self._clock = clock
        self._end_event = end_event
        self._report = report
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = NEVER
        self.lateness = Histogram()
        """By how much the loop was late for its timers."""
        self._stopped = False
        self._is_held = False

    def schedule(
        self,
        deadline_ms: int,
        action: Callable[[], None],
        kind: TimerKind = TimerKind.TRANSPORT,  # noqa: ARG002 - as of the wheel
        key: Hashable = None,  # noqa: ARG002
    ) -> TimerEntry:
        entry = super().schedule(deadline_ms, action)
        if deadline_ms < self._armed_ms:
            self._arm(deadline_ms)
        return entry

    def reschedule(self, entry: TimerEntry, deadline_ms: int) -> None:
        super().reschedule(entry, deadline_ms)
        if deadline_ms < self._armed_ms:
            self._arm(deadline_ms)

    def stop(self) -> None:
        """No timer runs any more."""
        self._stopped = True
        self._disarm()

    def hold(self) -> None:
        """No timer runs before `release`, as in a process that is stopped and will be continued."""
        self._is_held = True
        self._disarm()

    def release(self) -> None:
        """What was due since then runs now."""
        self._is_held = False
        self._arm_next()

    def _arm_next(self) -> None:
        self._disarm()
        wakeup_ms = self.next_wakeup_ms()
        if wakeup_ms is not None:
            self._arm(wakeup_ms)

    def _arm(self, wakeup_ms: int) -> None:
        if self._stopped or self._is_held:
            return
        self._disarm()
        delay_s = self._delay_s(wakeup_ms)
        if delay_s is not None:
            self._armed_ms = wakeup_ms
            self._handle = self._loop.call_later(delay_s, self._turn)

    def _disarm(self) -> None:
        self._armed_ms = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _delay_s(self, deadline_ms: int) -> float | None:
        """How long the loop has to wait for a deadline; None: it does not come by itself."""
        return max(deadline_ms - self._clock.now_ms(), 0) / 1000

    def _turn(self) -> None:
        # Whatever the actions schedule arms the next call, and `_handle` must not stand for the one that runs.
        self._handle = None
        now_ms, armed_ms, self._armed_ms = self._clock.now_ms(), self._armed_ms, NEVER
        self.lateness.observe(max(now_ms - armed_ms, 0) * 1_000_000)
        try:
            self.advance(now_ms)
        except ExceptionGroup as errors:
            for error in errors.exceptions:
                self._report(error)
        self._end_event()
        wakeup_ms = self.next_wakeup_ms()
        if wakeup_ms is not None and wakeup_ms < self._armed_ms:
            self._arm(wakeup_ms)
