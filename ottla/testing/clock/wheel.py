"""The timing wheel of broker time: the loop turns it while time runs, a walk runs its timers one by one."""

from collections.abc import Callable, Hashable, Iterator
from typing import cast

from ottla.broker.loop_wheel import LoopWheel
from ottla.broker.runtime import LoopRuntime
from ottla.testing.clock.timeline import BrokerTimeline, NodeClock
from ottla.timer.clock import REPLICATION, TimerKind
from ottla.timer.wheel import TimerEntry


class DrivenEntry(TimerEntry):
    """A timer that knows what it is for."""

    __slots__ = ("key", "kind")

    def __init__(self, wheel: "DrivenWheel", action: Callable[[], None], kind: TimerKind, key: Hashable) -> None:
        super().__init__(wheel, action)
        self.kind = kind
        self.key = key


class OptionalEntry(DrivenEntry):
    """A timer that lies in the wheel of broker time while its kind is included, else in the one of transport time."""

    __slots__ = ("elsewhere",)

    wheel: "DrivenWheel"
    elsewhere: TimerEntry | None
    """In the wheel of transport time."""

    def cancel(self) -> bool:
        return self.wheel.cancel_optional(self)


class DrivenWheel(LoopWheel):
    def __init__(
        self,
        runtime: LoopRuntime,
        timeline: BrokerTimeline,
        clock: NodeClock,
        before_turn: Callable[["DrivenWheel", int], None],
    ) -> None:
        """`before_turn` is called, with the time, before the loop runs timers."""
        super().__init__(runtime.loop, clock, lambda: runtime.end_event(), runtime.report)
        self.node_id = runtime.node_id
        self._timeline = timeline
        self._before_turn = before_turn
        self._runtime = runtime
        self._includes_replication = False
        self._optional: dict[OptionalEntry, None] = {}
        """Those that are pending, in either wheel."""
        self.newly_set: list[DrivenEntry] = []
        """Of a walk: timers that were set, or moved, since this was emptied last."""

    @property
    def is_stopped(self) -> bool:
        """No timer runs: the broker has ended, or is paused."""
        return self._stopped or self._is_held

    def schedule(
        self,
        deadline_ms: int,
        action: Callable[[], None],
        kind: TimerKind = TimerKind.TRANSPORT,
        key: Hashable = None,
    ) -> TimerEntry:
        if kind in REPLICATION:
            return self._schedule_optional(deadline_ms, action, kind)
        entry = DrivenEntry(self, action, kind, key)
        self.reschedule(entry, deadline_ms)
        return entry

    def _schedule_optional(self, deadline_ms: int, action: Callable[[], None], kind: TimerKind) -> OptionalEntry:
        def run() -> None:
            self._optional.pop(entry, None)
            action()

        entry = OptionalEntry(self, run, kind, None)
        entry.elsewhere = None
        self._optional[entry] = None
        self._arm_optional(entry, deadline_ms - self._clock.now_ms())
        return entry

    def _arm_optional(self, entry: OptionalEntry, left_ms: int) -> None:
        if self._includes_replication:
            self.reschedule(entry, self._clock.now_ms() + left_ms)
        else:
            deadline_ms = self._runtime.clock.now_ms() + left_ms
            entry.elsewhere = self._runtime.wheel.schedule(deadline_ms, entry.action)

    def _disarm_optional(self, entry: OptionalEntry) -> bool:
        elsewhere, entry.elsewhere = entry.elsewhere, None
        return super().cancel(entry) if elsewhere is None else elsewhere.cancel()

    def cancel_optional(self, entry: OptionalEntry) -> bool:
        self._optional.pop(entry, None)
        return self._disarm_optional(entry)

    def include_replication(self, *, is_included: bool) -> None:
        """From now on the timers of these kinds go by broker time, or by the machine's again."""
        if is_included is self._includes_replication:
            return
        left_ms = {entry: max(self._left_ms(entry), 0) for entry in self._optional}
        for entry in left_ms:
            self._disarm_optional(entry)
        self._includes_replication = is_included
        for entry, each_ms in left_ms.items():
            self._arm_optional(entry, each_ms)

    def _left_ms(self, entry: OptionalEntry) -> int:
        if entry.elsewhere is None:
            return entry.deadline_ms - self._clock.now_ms()
        return entry.elsewhere.deadline_ms - self._runtime.clock.now_ms()

    def reschedule(self, entry: TimerEntry, deadline_ms: int) -> None:
        super().reschedule(entry, deadline_ms)
        if self._timeline.is_walking:
            self.newly_set.append(cast("DrivenEntry", entry))

    def advance(self, now_ms: int) -> None:
        self._before_turn(self, now_ms)
        super().advance(now_ms)

    def driven_entries(self) -> Iterator[DrivenEntry]:
        """All that is pending, in no order."""
        return cast("Iterator[DrivenEntry]", self.entries())

    def fire(self, entry: DrivenEntry) -> bool:
        """Runs one timer now, as an event; whether it has come to something, and was not just set again."""
        entry.cancel()
        before = len(self.newly_set)
        try:
            entry.action()
        except Exception as error:
            self._report(error)
        self._end_event()
        return entry.key is None or all(each.key != entry.key for each in self.newly_set[before:])

    def drive(self) -> None:
        """Time has begun to run in another way: the loop calls when the next timer is due by that."""
        self._arm_next()

    def _delay_s(self, deadline_ms: int) -> float | None:
        return self._timeline.delay_s(deadline_ms)
