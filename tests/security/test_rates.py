"""Rates and token buckets by Kafka's arithmetic (§64.6–64.9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.rates import THROTTLE_MS_MAX, Rate, TokenBucket, Window

WINDOW = Window(11, 1000)


class KafkasRate:
    """SampledStat and Rate of Kafka, line by line."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self.samples_max, self.sample_ms = samples, sample_ms
        self.samples: list[dict[str, float]] = []
        self.current = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append({"start": now, "last": now, "value": 0.0})
        sample = self.samples[self.current]
        if now - sample["start"] >= self.sample_ms:
            self.current = (self.current + 1) % (self.samples_max + 1)
            if self.current >= len(self.samples):
                self.samples.append({"start": now, "last": now, "value": 0.0})
            sample = self.samples[self.current]
            if sample["start"] != now:
                sample.update(start=now, last=now, value=0.0)
        sample["value"] += value
        sample["last"] = now

    def window_ms(self, now: int) -> int:
        for sample in self.samples:
            if now - sample["last"] >= self.samples_max * self.sample_ms:
                sample.update(start=now, last=now, value=0.0)
        elapsed = now - int(min(sample["start"] for sample in self.samples))
        full = elapsed // self.sample_ms
        if full < self.samples_max - 1:
            elapsed += (self.samples_max - 1 - full) * self.sample_ms
        return max(elapsed, 1)

    def measure(self, now: int) -> float:
        window_ms = self.window_ms(now)
        return sum(sample["value"] for sample in self.samples) / (window_ms / 1000)


def test_a_rate_is_measured_as_in_kafka() -> None:
    """ST-21"""
    rate = Rate(WINDOW)
    seen = []
    for now_ms, size in ((0, 5000), (100, 5000), (200, 5000), (1500, 1000), (9000, 3000)):
        rate.record(size, now_ms)
        seen.append((round(rate.per_second(now_ms), 2), rate.throttle_ms(1000, now_ms)))
    assert seen == [(500.0, 0), (990.1, 0), (1470.59, 4800), (1523.81, 5500), (1900.0, 9000)]


@given(
    st.integers(1, 12),
    st.sampled_from([100, 1000, 3000]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(-100, 10_000)), min_size=1, max_size=60),
)
def test_any_history_is_measured_as_in_kafka(samples: int, sample_ms: int, history: list[tuple[int, int]]) -> None:
    ours, theirs, now_ms = Rate(Window(samples, sample_ms)), KafkasRate(samples, sample_ms), 1
    for pause_ms, amount in history:
        now_ms += pause_ms
        ours.record(amount, now_ms)
        theirs.record(amount, now_ms)
        assert ours.per_second(now_ms) == pytest.approx(theirs.measure(now_ms))


def test_a_rate_that_is_just_kept_is_not_throttled() -> None:
    rate = Rate(WINDOW)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(1000, 0) == 1


def test_what_is_older_than_the_window_is_forgotten() -> None:
    rate = Rate(WINDOW)
    rate.record(50_000, 0)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0
    assert rate.per_second(11_000) == 0


def test_an_amount_can_be_taken_back() -> None:
    rate = Rate(WINDOW)
    rate.record(50_000, 0)
    rate.record(-50_000, 10)
    assert rate.per_second(10) == 0


@given(
    st.integers(1_000, 10 << 20),
    st.lists(st.floats(0.001, 0.1), min_size=1, max_size=30),
    st.integers(0, 50),
)
def test_who_rests_as_long_as_due_keeps_the_rate(limit: int, parts: list[float], pause_ms: int) -> None:
    """Whatever sizes come and however fast, of up to a tenth of a second's bytes: over half a minute within 1 % and a
    window's burst above the quota; and one that could do more gets all of it."""
    rate, now_ms, amount, throttles, number = Rate(WINDOW), 0, 0.0, 0, 0
    while now_ms < 30_000:
        size = max(parts[number % len(parts)] * limit, 1)
        number += 1
        rate.record(size, now_ms)
        amount += size
        throttle_ms = rate.throttle_ms(limit, now_ms)
        throttles += throttle_ms > 0
        now_ms += max(throttle_ms, pause_ms, 1)
    seconds = now_ms / 1000
    assert amount <= limit * (seconds * 1.01 + 11)
    if throttles > number / 2:
        assert amount >= limit * seconds * 0.99


def greedy(window: Window, part: float, connections: int, seconds: int) -> list[float]:
    """What clients get in each second, as a share of their quota, that send again as soon as they may: `connections` of
    them, requests that are `part` of a second's bytes."""
    rate, got = Rate(window), [0.0] * (seconds + 1)
    due = [0] * connections
    while min(due) < seconds * 1000:
        number = due.index(min(due))
        now_ms = due[number]
        rate.record(part, now_ms)
        got[now_ms // 1000] += part
        due[number] += max(rate.throttle_ms(1, now_ms), 1)
    return got[:seconds]


@pytest.mark.parametrize(("part", "connections"), [(0.01, 1), (0.02, 1), (0.1, 1), (0.01, 2), (0.02, 2)])
def test_a_short_window_keeps_every_half_minute(part: float, connections: int) -> None:
    """Within 5 %, after the first burst."""
    got = greedy(Window(2, 1000), part, connections, 300)
    shares = [sum(got[begin : begin + 30]) / 30 for begin in range(10, 270)]
    assert 0.95 <= min(shares) <= max(shares) <= 1.05


@pytest.mark.parametrize(("part", "connections"), [(0.05, 1), (0.1, 1), (0.1, 4), (0.06, 5)])
def test_kafkas_window_allows_bursts_and_keeps_the_mean(part: float, connections: int) -> None:
    """As in Kafka, ten seconds' bytes may come at once, so that half a minute has three bursts, or two."""
    got = greedy(WINDOW, part, connections, 900)
    assert 0.97 <= sum(got[22:]) / (900 - 22) <= 1.03
    shares = [sum(got[begin : begin + 30]) / 30 for begin in range(22, 870)]
    assert 0.7 <= min(shares) <= max(shares) <= 1.3


def test_a_bucket_may_be_overdrawn_once() -> None:
    """ST-26"""
    bucket = TokenBucket(WINDOW, limit_per_s=1, now_ms=0)
    bucket.take(8, 1, 0)
    assert (bucket.tokens(1, 0), bucket.throttle_ms(1, 0)) == (3, 0)
    bucket.take(8, 1, 0)
    assert (bucket.tokens(1, 0), bucket.throttle_ms(1, 0)) == (-5, 5000)
    assert bucket.throttle_ms(1, 4000) == 1000
    assert bucket.throttle_ms(1, 100_000) == 0
    assert bucket.tokens(1, 100_000) == 11


@pytest.mark.parametrize("limit", [1e-9, 1e-300, 5e-324])
def test_a_throttle_fits_its_field_however_small_the_quota(limit: float) -> None:
    rate, bucket = Rate(WINDOW), TokenBucket(WINDOW, limit, now_ms=0)
    rate.record(1e9, 0)
    bucket.take(1e9, limit, 0)
    assert rate.throttle_ms(limit, 0) == bucket.throttle_ms(limit, 0) == THROTTLE_MS_MAX == 2**31 - 1
