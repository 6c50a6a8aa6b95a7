"""The machine's clocks."""

import time


class SystemClock:
    """`ottla.timer.clock.Clock` over the machine's monotonic and wall clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
