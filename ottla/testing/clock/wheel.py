"""The timing wheel of broker time: the loop turns it while time runs, a walk runs its timers one by one."""

from collections.abc import Callable, Hashable, Iterator
from typing import cast

from ottla.broker.loop_wheel import LoopWheel
from ottla.broker.runtime import LoopRuntime
from ottla.testing.clock.timeline import BrokerTimeline, NodeClock
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry


class DrivenEntry(TimerEntry):
    """A timer that knows what it is for."""

    __slots__ = ("key", "kind")

    def __init__(self, wheel: "DrivenWheel", action: Callable[[], None], kind: TimerKind, key: Hashable) -> None:
        super().__init__(wheel, action)
        self.kind = kind
        self.key = key


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
        entry = DrivenEntry(self, action, kind, key)
        self.reschedule(entry, deadline_ms)
        return entry

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
