"""What clients have used of their quotas: how long they rest, whose budget it is, and what is forgotten (§64)."""

import pytest

from ottla.security import quota_budgets
from ottla.security.quota_budgets import IDLE_MS_MAX, MutationQuotas, RateQuotas
from ottla.security.quotas import (
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
)
from ottla.security.rates import Window

WINDOW = Window(11, 1000)
ALICE = QuotaEntity("alice")


def byte_quotas(entity: QuotaEntity = ALICE, limit: float = 1000) -> RateQuotas:
    quotas = RateQuotas(PRODUCER_BYTE_RATE, WINDOW)
    quotas.take(ClientQuotas({entity: {PRODUCER_BYTE_RATE: limit}}))
    return quotas


def test_throttles_are_those_of_kafka() -> None:
    quotas = byte_quotas()
    history = ((0, 5000), (100, 5000), (200, 5000), (1500, 1000), (9000, 3000))
    assert [quotas.record("alice", "app", size, now_ms) for now_ms, size in history] == [0, 0, 4800, 5500, 9000]
    assert (quotas.throttles.count, quotas.throttles.sum_ms) == (3, 19_300)


def test_who_has_no_quota_is_not_measured() -> None:
    quotas = byte_quotas()
    assert quotas.record("bob", "app", 1 << 30, 0) == 0
    assert len(quotas.budgets) == 0
    assert quotas.most_at_once("bob", "app") == 2**31 - 1


def test_a_user_shares_one_budget_with_all_client_ids() -> None:
    quotas = byte_quotas()
    assert quotas.record("alice", "one", 10_000, 0) == 0
    assert quotas.record("alice", "two", 1, 0) == 1


def test_a_default_gives_each_a_budget_of_its_own() -> None:
    """ST-24"""
    quotas = byte_quotas(QuotaEntity(None, DEFAULT))
    assert [quotas.record("alice", f"app-{n}", 10_000, 0) for n in range(3)] == [0, 0, 0]
    assert quotas.record("bob", "app-0", 1, 0) == 1


def test_a_changed_quota_holds_at_the_next_record() -> None:
    """ST-25: and what was recorded stays."""
    quotas = byte_quotas()
    assert quotas.record("alice", "app", 20_000, 0) == 10_000
    quotas.take(ClientQuotas({ALICE: {PRODUCER_BYTE_RATE: 4000.0}}))
    assert quotas.record("alice", "app", 0, 0) == 0
    quotas.take(ClientQuotas({ALICE: {PRODUCER_BYTE_RATE: 500.0}}))
    assert quotas.record("alice", "app", 0, 0) == 30_000
    quotas.take(ClientQuotas({}))
    assert quotas.record("alice", "app", 1 << 20, 0) == 0
    quotas.take(ClientQuotas({ALICE: {PRODUCER_BYTE_RATE: 1000.0}}))
    assert quotas.record("alice", "app", 0, 0) == 10_000


def test_a_throttle_of_request_time_is_at_most_a_window() -> None:
    quotas = RateQuotas(REQUEST_PERCENTAGE, WINDOW, throttle_ms_max=1000)
    quotas.take(ClientQuotas({ALICE: {REQUEST_PERCENTAGE: 1.0}}))
    assert quotas.record("alice", "app", 1000, 0) == 1000


def test_most_at_once_is_what_the_window_allows() -> None:
    assert byte_quotas().most_at_once("alice", "app") == 10_000


def test_budgets_are_forgotten_after_an_hour_and_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = byte_quotas(QuotaEntity(None, DEFAULT))
    for number in range(5):
        quotas.record("alice", f"app-{number}", 1, 0)
    quotas.record("alice", "app-0", 1, 1000)
    quotas.budgets.expire(IDLE_MS_MAX, at_most=3)
    assert len(quotas.budgets) == 2
    quotas.budgets.expire(IDLE_MS_MAX, at_most=10)
    assert [entity.client_id for entity, _ in quotas.budgets.used_last(10)] == ["app-0"]

    monkeypatch.setattr(quota_budgets, "BUDGETS_MAX", 3)
    for number in range(1, 5):
        quotas.record("alice", f"app-{number}", 1, 2000)
    assert [entity.client_id for entity, _ in quotas.budgets.used_last(10)] == ["app-4", "app-3", "app-2"]


def mutations(limit: float = 1) -> MutationQuotas:
    quotas = MutationQuotas(CONTROLLER_MUTATION_RATE, WINDOW)
    quotas.take(ClientQuotas({ALICE: {CONTROLLER_MUTATION_RATE: limit}}))
    return quotas


def test_a_strict_quota_refuses_while_in_debt_only() -> None:
    """ST-26"""
    quotas = mutations()
    request = quotas.of_request("alice", "app", is_strict=True)
    assert request is not None
    assert [request.record(8, 0), request.record(8, 0), request.record(1, 0)] == [True, True, False]
    assert request.throttle_ms(0) == 5000
    assert request.throttle_ms(2000) == 3000
    later = quotas.of_request("alice", "other", is_strict=True)
    assert later is not None
    assert later.record(1, 4999) is False
    assert later.record(1, 5000) is True
    assert quotas.of_request("bob", "app", is_strict=True) is None


def test_a_permissive_quota_records_and_throttles() -> None:
    request = mutations().of_request("alice", "app", is_strict=False)
    assert request is not None
    assert [request.record(8, 0), request.record(8, 0), request.record(1, 0)] == [True, True, True]
    assert request.throttle_ms(0) == 6000
