"""The two clocks a broker needs, as an interface; the shell and the simulator each hand one in."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds from an arbitrary start: the only clock for deadlines, sessions and timers."""
        ...

    def now_ns(self) -> int:
        """The same clock in nanoseconds, to measure durations."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch: for timestamps that people or other programs read, never for deadlines."""
        ...
