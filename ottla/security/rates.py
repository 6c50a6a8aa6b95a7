"""How fast something happens, measured over samples of time, and for how long it must rest to keep to a quota.

The arithmetic is Kafka's, so that clients are throttled alike: `Rate` for bytes, time and connections (KIP-13,
KIP-124), `TokenBucket` for changes of topics (KIP-599).
"""


class Rate:
    """An amount per second over a window of samples. What comes after a pause is measured over almost the whole window,
    which allows bursts."""

    __slots__ = ("_sample_ms", "_samples", "_samples_max")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples_max = samples
        self._sample_ms = sample_ms
        # [begin, time of the last record, amount], the oldest first; one more than a window has.
        self._samples: list[list[float]] = []

    def record(self, amount: float, now_ms: int) -> None:
        """A negative amount takes one back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._sample_ms:
            if len(samples) > self._samples_max:
                del samples[0]
            samples.append([now_ms, now_ms, 0.0])
        last = samples[-1]
        last[1] = now_ms
        last[2] += amount

    def throttle_ms(self, limit_per_s: float, now_ms: int) -> int:
        """The time after which the rate is `limit_per_s` again if nothing else comes; 0 if it is not above it."""
        amount, elapsed_ms = self._measured(now_ms)
        if amount * 1000 / elapsed_ms <= limit_per_s:
            return 0
        return round(amount * 1000 / limit_per_s - elapsed_ms)

    def per_second(self, now_ms: int) -> float:
        amount, elapsed_ms = self._measured(now_ms)
        return amount * 1000 / elapsed_ms

    def _measured(self, now_ms: int) -> tuple[float, int]:
        """What came, and in which time, ms."""
        for sample in self._samples:
            if now_ms - sample[1] >= self._samples_max * self._sample_ms:
                sample[:] = [now_ms, now_ms, 0.0]
        oldest = min((sample[0] for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - int(oldest)
        missing = self._samples_max - 1 - elapsed_ms // self._sample_ms
        elapsed_ms += max(missing, 0) * self._sample_ms
        return sum(sample[2] for sample in self._samples), max(elapsed_ms, 1)


class TokenBucket:
    """Tokens that come back at a rate; more may be taken at once than are there."""

    __slots__ = ("_filled_ms", "_seconds", "tokens")

    def __init__(self, samples: int, sample_ms: int, limit_per_s: float, now_ms: int) -> None:
        """Full: of what comes in a window."""
        self._seconds = samples * sample_ms / 1000
        self._filled_ms = now_ms
        self.tokens = self._seconds * limit_per_s

    def take(self, amount: float, limit_per_s: float, now_ms: int) -> None:
        self.refill(limit_per_s, now_ms)
        self.tokens -= amount

    def throttle_ms(self, limit_per_s: float, now_ms: int) -> int:
        """Until the bucket is no longer in debt; 0 if it is not."""
        self.refill(limit_per_s, now_ms)
        return round(-self.tokens * 1000 / limit_per_s) if self.tokens < 0 else 0

    def refill(self, limit_per_s: float, now_ms: int) -> None:
        came = (now_ms - self._filled_ms) * limit_per_s / 1000
        self.tokens = min(self.tokens + came, self._seconds * limit_per_s)
        self._filled_ms = now_ms
