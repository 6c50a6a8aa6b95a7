"""How fast something happens, measured over samples of time, and for how long it must rest to keep to a quota.

The arithmetic is Kafka's, so that clients are throttled alike: `Rate` for bytes, time and connections (KIP-13,
KIP-124), `TokenBucket` for changes of topics (KIP-599). Sources: SampledStat, Rate, TokenBucket, QuotaUtils.
"""

from array import array
from math import floor
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""Answers have 32 bits for it; a quota may be next to nothing."""


class Window:
    """How a rate is measured: over so many samples, each so long; one more is kept than the window has."""

    __slots__ = ("sample_ms", "samples", "size_ms")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self.samples = samples
        self.sample_ms = sample_ms
        self.size_ms = samples * sample_ms


class Rate:
    """An amount per second over a window. What comes after a pause is measured over almost the whole window, which
    allows bursts."""

    __slots__ = ("_amounts", "_begins", "_current", "_lasts", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        # Of each sample: its begin, the time of its last record, the amount. The next takes the place of the oldest.
        self._begins, self._lasts, self._amounts = array("q"), array("q"), array("d")
        self._current = -1

    def record(self, amount: float, now_ms: int) -> None:
        """A negative amount takes one back."""
        current = self._current
        if current < 0 or now_ms - self._begins[current] >= self._window.sample_ms:
            current = self._advance(now_ms)
        self._lasts[current] = now_ms
        self._amounts[current] += amount

    def throttle_ms(self, limit_per_s: float, now_ms: int) -> int:
        """The time after which the rate is `limit_per_s` again if nothing else comes; 0 if it is not above it."""
        amount, elapsed_ms = self._measured(now_ms)
        value = amount * 1000 / elapsed_ms
        if value <= limit_per_s:
            return 0
        return floor(min((value - limit_per_s) / limit_per_s * elapsed_ms + 0.5, THROTTLE_MS_MAX))

    def per_second(self, now_ms: int) -> float:
        amount, elapsed_ms = self._measured(now_ms)
        return amount * 1000 / elapsed_ms

    def _advance(self, now_ms: int) -> int:
        current = self._current = (self._current + 1) % (self._window.samples + 1)
        if current == len(self._begins):
            self._begins.append(now_ms)
            self._lasts.append(now_ms)
            self._amounts.append(0.0)
        else:
            self._begins[current] = now_ms
            self._amounts[current] = 0.0
        return current

    def _measured(self, now_ms: int) -> tuple[float, int]:
        """What came, and in which time, ms."""
        window, begins, lasts, amounts = self._window, self._begins, self._lasts, self._amounts
        for index, last_ms in enumerate(lasts):
            if now_ms - last_ms >= window.size_ms:
                begins[index] = lasts[index] = now_ms
                amounts[index] = 0.0
        elapsed_ms = now_ms - min(begins, default=now_ms)
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        elapsed_ms += max(missing, 0) * window.sample_ms
        return sum(amounts), max(elapsed_ms, 1)


class TokenBucket:
    """Tokens that come back at a rate; more may be taken at once than are there."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: Window, limit_per_s: float, now_ms: int) -> None:
        """Full: of what comes in a window."""
        self._window = window
        self._filled_ms = now_ms
        self._tokens = self._most(limit_per_s)

    def tokens(self, limit_per_s: float, now_ms: int) -> float:
        """Those that are there; less than 0: more were taken."""
        came = (now_ms - self._filled_ms) * limit_per_s / 1000
        self._tokens = min(self._tokens + came, self._most(limit_per_s))
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit_per_s: float, now_ms: int) -> None:
        self._tokens = self.tokens(limit_per_s, now_ms) - amount

    def throttle_ms(self, limit_per_s: float, now_ms: int) -> int:
        """Until the bucket is no longer in debt; 0 if it is not."""
        tokens = self.tokens(limit_per_s, now_ms)
        return floor(min(-tokens / limit_per_s * 1000 + 0.5, THROTTLE_MS_MAX)) if tokens < 0 else 0

    def _most(self, limit_per_s: float) -> float:
        return self._window.size_ms / 1000 * limit_per_s
