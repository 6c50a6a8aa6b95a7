"""Bugs of quotas that these tests must find, seeded one at a time (ST-21 to ST-27 in docs/seeded-bugs.md)."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.quotas import request_quotas
from ottla.broker.quotas.client_quotas import ClientQuotaEnforcer
from ottla.broker.quotas.request_quotas import QuotaRecorder
from ottla.broker.server.connection_limits import ConnectionLimits, MutedConnections
from ottla.security.quota_budgets import MutationQuota, RateQuotas
from ottla.security.quotas import ClientQuotas, Quota
from ottla.security.rates import Rate
from tests.broker.quotas import test_byte_quotas, test_connection_quotas
from tests.security import test_quota_budgets, test_rates

Patch = pytest.MonkeyPatch


def whole_window_from_the_beginning(patch: Patch) -> None:
    measured = Rate._measured
    patch.setattr(Rate, "_measured", lambda self, now_ms: (measured(self, now_ms)[0], self._window.size_ms))


def quota_is_exceeded_when_it_is_reached(patch: Patch) -> None:
    throttle_ms = Rate.throttle_ms

    def at_least(self: Rate, limit_per_s: float, now_ms: int) -> int:
        return throttle_ms(self, limit_per_s, now_ms) or int(self.per_second(now_ms) >= limit_per_s)

    patch.setattr(Rate, "throttle_ms", at_least)


def answer_does_not_say_so(patch: Patch) -> None:
    patch.setattr(request_quotas, "throttled", lambda response, *_: response)


def connection_is_not_muted(patch: Patch) -> None:
    patch.setattr(MutedConnections, "mute", lambda *_: None)


def idle_check_does_not_see_the_mute(patch: Patch) -> None:
    patch.setattr(MutedConnections, "__contains__", lambda *_: False)


def throttled_fetch_keeps_its_bytes(patch: Patch) -> None:
    patch.setattr(RateQuotas, "record_unchecked", lambda *_: None)


def throttled_fetch_is_sent_its_records(patch: Patch) -> None:
    fetched = QuotaRecorder.fetched

    def and_sent(self: QuotaRecorder, context: Any, size_bytes: int) -> int:
        fetched(self, context, size_bytes)
        return 0

    patch.setattr(QuotaRecorder, "fetched", and_sent)


def one_budget_for_a_default(patch: Patch) -> None:
    find = ClientQuotas.find

    def found(self: ClientQuotas, key: str, user: str, client_id: str) -> Quota | None:
        quota = find(self, key, user, client_id)
        if quota is None:
            return None
        entity = next(each for each, values in self.quotas.items() if values.get(key) == quota.limit)
        return quota._replace(shared_by=entity)

    patch.setattr(ClientQuotas, "find", found)


def quota_that_is_gone_stays_in_force(patch: Patch) -> None:
    take = ClientQuotaEnforcer.take

    def unless_gone(self: ClientQuotaEnforcer, quotas: ClientQuotas) -> None:
        if quotas.limited_keys:
            take(self, quotas)

    patch.setattr(ClientQuotaEnforcer, "take", unless_gone)


def found_quotas_are_kept_when_they_change(patch: Patch) -> None:
    def take(self: RateQuotas, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    patch.setattr(RateQuotas, "take", take)


def strict_quota_refuses_what_does_not_fit(patch: Patch) -> None:
    record = MutationQuota.record

    def whole(self: MutationQuota, partitions: int, now_ms: int) -> bool:
        budget = self._quotas.budgets.get(self._quota, now_ms)
        return budget.measure.tokens(self._quota.limit, now_ms) >= partitions and record(self, partitions, now_ms)

    patch.setattr(MutationQuota, "record", whole)


def refused_topics_are_recorded(patch: Patch) -> None:
    record = MutationQuota.record

    def anyhow(self: MutationQuota, partitions: int, now_ms: int) -> bool:
        is_allowed = record(self, partitions, now_ms)
        if not is_allowed:
            self._quotas.budgets.get(self._quota, now_ms).measure.take(partitions, self._quota.limit, now_ms)
        return is_allowed

    patch.setattr(MutationQuota, "record", anyhow)


def places_of_connections_leak(patch: Patch) -> None:
    patch.setattr(ConnectionLimits, "uncount", lambda *_: None)


def brokers_and_clients_are_counted_alike(patch: Patch) -> None:
    patch.setattr(ConnectionLimits, "is_protected", lambda *_: False)


SEEDED: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "ST-21 window": (whole_window_from_the_beginning, test_rates.test_a_rate_is_measured_as_in_kafka),
    "ST-21 reached": (
        quota_is_exceeded_when_it_is_reached,
        test_rates.test_a_rate_that_is_just_kept_is_not_throttled,
    ),
    "ST-22 not said": (
        answer_does_not_say_so,
        test_byte_quotas.test_an_answer_is_not_delayed_and_the_next_request_waits,
    ),
    "ST-22 not muted": (
        connection_is_not_muted,
        test_byte_quotas.test_an_answer_is_not_delayed_and_the_next_request_waits,
    ),
    "ST-22 idle": (
        idle_check_does_not_see_the_mute,
        test_byte_quotas.test_a_muted_connection_is_not_closed_as_idle,
    ),
    "ST-23 kept": (
        throttled_fetch_keeps_its_bytes,
        test_byte_quotas.test_a_throttled_fetch_is_empty_and_loses_nothing,
    ),
    "ST-23 sent": (
        throttled_fetch_is_sent_its_records,
        test_byte_quotas.test_a_throttled_fetch_is_empty_and_loses_nothing,
    ),
    "ST-24": (one_budget_for_a_default, test_quota_budgets.test_a_default_gives_each_a_budget_of_its_own),
    "ST-25 gone": (
        quota_that_is_gone_stays_in_force,
        test_byte_quotas.test_quotas_change_and_go_without_a_reconnect,
    ),
    "ST-25 changed": (
        found_quotas_are_kept_when_they_change,
        test_quota_budgets.test_a_changed_quota_holds_at_the_next_record,
    ),
    "ST-26 refuses": (
        strict_quota_refuses_what_does_not_fit,
        test_quota_budgets.test_a_strict_quota_refuses_while_in_debt_only,
    ),
    "ST-26 records": (
        refused_topics_are_recorded,
        test_quota_budgets.test_a_strict_quota_refuses_while_in_debt_only,
    ),
    "ST-27": (places_of_connections_leak, test_connection_quotas.test_counters_are_back_at_zero_after_a_flood),
    "16.3": (
        brokers_and_clients_are_counted_alike,
        test_connection_quotas.test_brokers_have_a_place_where_clients_have_taken_all,
    ),
}


@pytest.mark.parametrize(("seed_bug", "test"), SEEDED.values(), ids=SEEDED.keys())
def test_a_seeded_bug_is_found(monkeypatch: Patch, seed_bug: Callable[[Patch], None], test: Callable[[], None]) -> None:
    test()
    seed_bug(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
