"""What goes by the machine's time unless a test includes it in broker time: `clock.include({"tokens"})`.

Tokens and the sessions of logins end by a clock of their own, and followers lag by another; each goes on from where it
is when a test changes by which time. Of the jobs of replication the timers move from one wheel to the other, with what
is left of them (`ottla.testing.clock.wheel`).
"""

import sys
from collections.abc import Iterable
from typing import Final

from ottla.testing.clock.timeline import NS_PER_MS, BrokerTimeline, MachineClock, NodeClock
from ottla.testing.faults.rule_values import nearest

TOKENS: Final = "tokens"
REPLICATION: Final = "replication"
INCLUDABLE: Final = (TOKENS, REPLICATION)
NEVER_MS: Final = sys.maxsize


def checked_included(names: Iterable[str]) -> frozenset[str]:
    """Raises ValueError."""
    if isinstance(names, str):
        raise ValueError(f"{names!r}: expected a set, such as {{{names!r}}}")
    given = frozenset(names)
    for name in sorted(given, key=str):
        if name not in INCLUDABLE:
            raise ValueError(f"there is no {name!r} to include{nearest(str(name), INCLUDABLE)}")
    return given


class IncludedClock:
    """`ottla.timer.clock.Clock` that goes on by the machine's time, or by that of a broker."""

    def __init__(self, machine: MachineClock, broker: NodeClock) -> None:
        self.is_included = False
        self._machine, self._broker = machine, broker
        self._source: MachineClock | NodeClock = machine
        self._ahead_ns = 0
        """Of its source."""

    def now_ns(self) -> int:
        return self._source.now_ns() + self._ahead_ns

    def now_ms(self) -> int:
        return self.now_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return self._source.wall_ms()

    def include(self, is_included: bool) -> None:
        if is_included is self.is_included:
            return
        now_ns = self.now_ns()
        self.is_included, self._source = is_included, self._broker if is_included else self._machine
        self._ahead_ns = now_ns - self._source.now_ns()


class IncludedLoginClock(IncludedClock):
    """`ottla.timer.clock.LoginClock`."""

    def __init__(self, machine: MachineClock, broker: NodeClock, timeline: BrokerTimeline) -> None:
        super().__init__(machine, broker)
        self._timeline = timeline

    def transport_ms(self, deadline_ms: int) -> int:
        """A deadline that has come is past, and one that broker time does not come to by itself never is."""
        left_ms = deadline_ms - self.now_ms()
        now_ms = self._machine.now_ms()
        if not self.is_included:
            return now_ms + left_ms
        if left_ms <= 0:
            return now_ms - 1
        if self._timeline.stands_still:
            return NEVER_MS
        return now_ms + int(left_ms / self._timeline.rate)
