"""Quotas: rates by Kafka's arithmetic, and who is bound by which."""

from itertools import product

import pytest

from ottla.security.quotas import (
    CONNECTION_CREATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    why_no_quota,
)
from ottla.security.rates import Rate, TokenBucket

WINDOW = 11, 1000
LEVELS = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


def test_a_rate_is_measured_as_in_kafka() -> None:
    """ST-21"""
    rate = Rate(*WINDOW)
    seen = []
    for now_ms, size in ((0, 5000), (100, 5000), (200, 5000), (1500, 1000), (9000, 3000)):
        rate.record(size, now_ms)
        seen.append((round(rate.per_second(now_ms), 2), rate.throttle_ms(1000, now_ms)))
    assert seen == [(500.0, 0), (990.1, 0), (1470.59, 4800), (1523.81, 5500), (1900.0, 9000)]


def test_a_rate_that_is_just_kept_is_not_throttled() -> None:
    rate = Rate(*WINDOW)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(1000, 0) == 1


def test_what_is_older_than_the_window_is_forgotten() -> None:
    rate = Rate(*WINDOW)
    rate.record(50_000, 0)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0
    assert rate.per_second(11_000) == 0


def test_an_amount_can_be_taken_back() -> None:
    rate = Rate(*WINDOW)
    rate.record(50_000, 0)
    rate.record(-50_000, 10)
    assert rate.per_second(10) == 0


@pytest.mark.parametrize(("size", "limit"), [(100, 1_000), (1_000, 10_000), (16_384, 1 << 20), (65_536, 1 << 20)])
def test_who_rests_as_long_as_asked_keeps_the_rate(size: int, limit: int) -> None:
    """Within 1 % over five minutes; in the first of them by a window more."""
    rate, now_ms, amount = Rate(*WINDOW), 0, 0
    while now_ms < 300_000:
        rate.record(size, now_ms)
        amount += size
        now_ms += max(rate.throttle_ms(limit, now_ms), 1)
    assert 0.99 <= amount / (300 * limit) <= 1.01


def test_a_bucket_may_be_overdrawn_once() -> None:
    """ST-26"""
    bucket = TokenBucket(*WINDOW, limit_per_s=1, now_ms=0)
    bucket.take(8, 1, 0)
    assert (bucket.tokens, bucket.throttle_ms(1, 0)) == (3, 0)
    bucket.take(8, 1, 0)
    assert (bucket.tokens, bucket.throttle_ms(1, 0)) == (-5, 5000)
    assert bucket.throttle_ms(1, 4000) == 1000
    assert bucket.throttle_ms(1, 100_000) == 0
    assert bucket.tokens == 11


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_first_level_that_has_the_key_counts(level: int) -> None:
    quotas = ClientQuotas(
        {
            entity: {PRODUCER_BYTE_RATE: float(number)} if number >= level else {REQUEST_PERCENTAGE: 1.0}
            for number, entity in enumerate(LEVELS)
        }
    )
    found = quotas.find(PRODUCER_BYTE_RATE, "alice", "app")
    assert found is not None
    assert found.limit == level


@pytest.mark.parametrize(
    ("level", "budgets"),
    [(0, 1), (1, 2), (2, 1), (3, 2), (4, 4), (5, 2), (6, 1), (7, 2)],
    ids=[str(n) for n in range(8)],
)
def test_who_shares_a_budget(level: int, budgets: int) -> None:
    """ST-24: pairs have one each, users one for all their client ids, client ids one over all users."""
    quotas = ClientQuotas({LEVELS[level]: {PRODUCER_BYTE_RATE: 5.0}})
    found = [quotas.find(PRODUCER_BYTE_RATE, *each) for each in product(("alice", "bob"), ("app", "other"))]
    assert len({each.shared_by for each in found if each is not None}) == budgets


def test_without_a_quota_nothing_is_measured() -> None:
    quotas = ClientQuotas({LEVELS[0]: {REQUEST_PERCENTAGE: 5.0}})
    assert quotas.limited_keys == {REQUEST_PERCENTAGE}
    assert quotas.find(PRODUCER_BYTE_RATE, "alice", "app") is None
    assert quotas.find(REQUEST_PERCENTAGE, "bob", "app") is None


def test_addresses_have_quotas_of_their_own() -> None:
    quotas = ClientQuotas(
        {
            QuotaEntity(ip="10.0.0.7"): {CONNECTION_CREATION_RATE: 5},
            QuotaEntity(ip=DEFAULT): {CONNECTION_CREATION_RATE: 9},
        }
    )
    assert (quotas.find_for_address("10.0.0.7"), quotas.find_for_address("10.0.0.8")) == (5, 9)
    assert ClientQuotas({}).find_for_address("10.0.0.7") is None


@pytest.mark.parametrize(
    ("entity", "key", "value", "is_possible"),
    [
        (LEVELS[0], PRODUCER_BYTE_RATE, 1024.0, True),
        (LEVELS[0], PRODUCER_BYTE_RATE, 1024.5, False),
        (LEVELS[0], PRODUCER_BYTE_RATE, 0.0, False),
        (LEVELS[0], PRODUCER_BYTE_RATE, float("nan"), False),
        (LEVELS[0], REQUEST_PERCENTAGE, float("inf"), False),
        (LEVELS[0], PRODUCER_BYTE_RATE, 1e300, False),
        (LEVELS[0], REQUEST_PERCENTAGE, 0.5, True),
        (LEVELS[0], CONNECTION_CREATION_RATE, 5.0, False),
        (LEVELS[0], "bytes", 5.0, False),
        (QuotaEntity(ip="10.0.0.7"), CONNECTION_CREATION_RATE, 5.0, True),
        (QuotaEntity(ip="10.0.0.7"), PRODUCER_BYTE_RATE, 5.0, False),
        (QuotaEntity(ip=DEFAULT), CONNECTION_CREATION_RATE, 2.0**31, False),
    ],
)
def test_values_that_can_be_set(entity: QuotaEntity, key: str, value: float, is_possible: bool) -> None:
    assert (why_no_quota(entity, key, value) is None) == is_possible
