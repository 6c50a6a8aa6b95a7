"""Client quotas: who is bound by which, with whom they share it, and what can be set (§64.3, §64.4, §65.1)."""

from itertools import product

import pytest

from ottla.security.quotas import (
    CONNECTION_CREATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    why_no_entity,
    why_no_quota,
)

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


def test_the_largest_connection_rate_is_no_limit() -> None:
    quotas = ClientQuotas({QuotaEntity(ip="10.0.0.7"): {CONNECTION_CREATION_RATE: 2147483647}})
    assert quotas.find_for_address("10.0.0.7") is None


@pytest.mark.parametrize(
    ("entity", "key", "value", "is_possible"),
    [
        (LEVELS[0], PRODUCER_BYTE_RATE, 1024.0, True),
        (LEVELS[0], PRODUCER_BYTE_RATE, 1024.5, False),
        (LEVELS[0], PRODUCER_BYTE_RATE, 0.0, False),
        (LEVELS[0], PRODUCER_BYTE_RATE, float("nan"), False),
        (LEVELS[0], REQUEST_PERCENTAGE, float("inf"), False),
        (LEVELS[0], PRODUCER_BYTE_RATE, 1e300, False),
        # To Java the nearest to the largest of its numbers.
        (LEVELS[0], PRODUCER_BYTE_RATE, 2.0**63, True),
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


@pytest.mark.parametrize(
    ("entity", "is_possible"),
    [
        (QuotaEntity(), False),
        (QuotaEntity("alice"), True),
        (QuotaEntity(""), False),
        (QuotaEntity("alice", ""), False),
        (QuotaEntity(DEFAULT, DEFAULT), True),
        (QuotaEntity(ip="10.0.0.7"), True),
        (QuotaEntity(ip=DEFAULT), True),
        (QuotaEntity(ip="::1"), True),
        (QuotaEntity(ip="0:0:0:0:0:0:0:1"), False),
        (QuotaEntity(ip="localhost"), False),
        (QuotaEntity("alice", ip="10.0.0.7"), False),
        (QuotaEntity(None, "app", "10.0.0.7"), False),
    ],
)
def test_entities_that_can_have_quotas(entity: QuotaEntity, is_possible: bool) -> None:
    assert (why_no_entity(entity) is None) == is_possible
