"""The budgets of clients at this broker, one manager for each key of quotas."""

from collections.abc import Callable
from typing import Any

from ottla.broker.runtime import Runtime
from ottla.security.quota_budgets import AddressQuotas, MutationQuotas, RateQuotas
from ottla.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from ottla.security.rates import Window

# In one step of the loop, of each key.
_EXPIRED_AT_ONCE = 500


class ClientQuotaManagers:
    def __init__(self, runtime: Runtime, mute: Callable[[Any, int], None]) -> None:
        """`mute` lets a connection rest for so many ms."""
        config = runtime.config
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        slower = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self.producer = RateQuotas(PRODUCER_BYTE_RATE, window)
        self.consumer = RateQuotas(CONSUMER_BYTE_RATE, window)
        self.request = RateQuotas(REQUEST_PERCENTAGE, window, throttle_ms_max=window.sample_ms)
        self.mutation = MutationQuotas(CONTROLLER_MUTATION_RATE, slower)
        self.addresses = AddressQuotas(window)
        self.mute = mute
        self.now_ms = runtime.broker_clock.now_ms
        self.now_ns = runtime.clock.now_ns
        self.building: Any = None
        """Quotas of the request whose frame is built next: they get the time that takes."""

    @property
    def of_clients(self) -> tuple[RateQuotas | MutationQuotas, ...]:
        return self.producer, self.consumer, self.request, self.mutation

    @property
    def rates(self) -> tuple[RateQuotas, ...]:
        return self.producer, self.consumer, self.request

    def take(self, quotas: ClientQuotas) -> None:
        """They hold from the next record on."""
        for each in (*self.of_clients, self.addresses):
            each.take(quotas)

    def has_quota(self, user: str, client_id: str) -> bool:
        """Whether there is one of any key for this client."""
        return any(each.find(user, client_id) is not None for each in self.of_clients)

    def expire(self, now_ms: int) -> bool:
        """Forgets some of what was not used for an hour; says whether anything is left."""
        all_of_them = (*self.of_clients, self.addresses)
        for each in all_of_them:
            each.budgets.expire(now_ms, _EXPIRED_AT_ONCE)
        return any(len(each.budgets) for each in all_of_them)
