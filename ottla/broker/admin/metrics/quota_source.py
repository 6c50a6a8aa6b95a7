"""Metrics of client quotas: who was held back, by which quota and for how long, and how fast those with a quota are.

Client ids are chosen by clients, so only the budgets that were used last have series of their own.
"""

from collections.abc import Callable, Iterator, Mapping

from ottla.broker.admin.metrics.exposition import Sample, labels
from ottla.broker.admin.metrics.source import Samples
from ottla.broker.metadata.client_quotas import ClientQuotaPublisher
from ottla.broker.quotas.managers import ClientQuotaManagers
from ottla.broker.server.socket_server import Server
from ottla.security.quotas import CONNECTION_CREATION_RATE, QuotaEntity
from ottla.timer.clock import Clock

# Of each quota.
BUDGETS_SHOWN_MAX = 100


class QuotaSource:
    def __init__(self, clock: Clock, server: Server, publisher: ClientQuotaPublisher) -> None:
        self._clock = clock
        self._publisher = publisher
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_connections_muted": lambda: [("", len(server.muted))],
            "ottla_connections_unauthenticated": lambda: [("", len(server.logins))],
            "ottla_quota_throttled_total": self._throttles,
            "ottla_quota_throttle_seconds_total": self._throttle_seconds,
            "ottla_quota_budgets": self._budgets,
            "ottla_quota_rate": self._rates,
        }

    def prepare(self) -> Iterator[None]:
        yield from ()

    @property
    def _managers(self) -> ClientQuotaManagers | None:
        """None: there has been no quota yet."""
        enforcer = self._publisher.enforcer
        return None if enforcer is None else enforcer.managers

    def _throttles(self) -> Iterator[Sample]:
        if (managers := self._managers) is not None:
            for each in managers.of_clients:
                yield labels(quota=each.key), each.throttles.count
            yield labels(quota=CONNECTION_CREATION_RATE), managers.addresses.throttles.count

    def _throttle_seconds(self) -> Iterator[Sample]:
        if (managers := self._managers) is not None:
            for each in managers.of_clients:
                yield labels(quota=each.key), each.throttles.sum_ms / 1000
            yield labels(quota=CONNECTION_CREATION_RATE), managers.addresses.throttles.sum_ms / 1000

    def _budgets(self) -> Iterator[Sample]:
        if (managers := self._managers) is not None:
            for each in managers.of_clients:
                yield labels(quota=each.key), len(each.budgets)
            yield labels(quota=CONNECTION_CREATION_RATE), len(managers.addresses.budgets)

    def _rates(self) -> Iterator[Sample]:
        if (managers := self._managers) is None:
            return
        now_ms = self._clock.now_ms()
        for each in managers.rates:
            for entity, budget in each.budgets.used_last(BUDGETS_SHOWN_MAX):
                user, client_id = _shown(entity)
                yield labels(quota=each.key, user=user, client_id=client_id), budget.measure.per_second(now_ms)


def _shown(entity: QuotaEntity) -> tuple[str, str]:
    """Of who shares a budget, user and client id; empty for what does not matter."""
    user, client_id = (name if isinstance(name, str) else "" for name in entity[:2])
    return user, client_id
