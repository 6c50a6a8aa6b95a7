"""The pages of the admin listener, for all brokers of the process (docs/operators.md §3).

With several brokers in a process, `?broker=N` asks for one; without it the one that is worst off answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.admin.broker_admin import BrokerAdmin, asked_brokers, json_response, unknown_broker
from ottla.broker.admin.health import Check, LifePhase
from ottla.broker.admin.http import HttpRequest, HttpResponse, Page
from ottla.broker.admin.listener import AdminListener
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.admin.restart_safety import RestartCheck, RestartSafety
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import LoopRuntime, Runtime, next_step
from ottla.broker.server.network import Network
from ottla.timer.clock import Clock

if TYPE_CHECKING:
    from ottla.broker.admin.inside import PagesFromInside

# Pages whose modules take longer to import than the whole start of a broker: a thread does that for the first of them.
FROM_INSIDE = (
    "/metrics",
    "/metrics/kafka",
    "/api/v1/node/connections",
    "/api/v1/node/members",
    "/api/v1/node/progress",
    "/api/v1/node/requests",
)
_MODULES_FROM_INSIDE = ("inside", "metrics.kafka_source", "metrics.lag_source", "metrics.quota_source")
# A step of the loop looks at so many.
PARTITIONS_PER_STEP = 1000
_RANKS = {"ready": 0, "alive": 0, "started": 0, "degraded": 1}


class AdminSite:
    def __init__(self, runtime: Runtime) -> None:
        self._brokers: dict[int, BrokerAdmin] = {}
        self._runtime = runtime
        self._pages_from_inside: PagesFromInside | None = None
        self._listener = AdminListener(runtime, self._pages())

    @property
    def url(self) -> str:
        """Where it listens, empty while it does not."""
        return self._listener.url

    def add(self, broker: BrokerAdmin) -> None:
        """In place of an earlier life of this broker."""
        self._brokers[broker.node_id] = broker

    async def open(self, network: Network, address: tuple[str, int]) -> None:
        """Raises StartError."""
        await self._listener.open(network, address)

    def close(self) -> None:
        self._listener.close()
        if self._pages_from_inside is not None:
            self._pages_from_inside.close()

    def _pages(self) -> dict[str, Page]:
        return {
            "/health/live": lambda request: self._health(request, BrokerAdmin.live),
            "/health/ready": lambda request: self._health(request, BrokerAdmin.ready),
            "/health/startup": lambda request: self._health(request, BrokerAdmin.started),
            "/health/restart-safe": self._restart_safe,
            **dict.fromkeys(FROM_INSIDE, self._inside),
        }

    def _health(self, request: HttpRequest, judge: Callable[[BrokerAdmin], tuple[str, list[Check]]]) -> HttpResponse:
        asked = asked_brokers(request, self._brokers)
        if not asked:
            return unknown_broker(request, self._brokers)
        judged = [(broker, *judge(broker)) for broker in asked]
        broker, status, checks = max(judged, key=lambda each: _RANKS.get(each[1], 2))
        body = {"status": status, "broker": broker.node_id, "checks": [each._asdict() for each in checks]}
        return json_response(503 if _RANKS.get(status, 2) == 2 else 200, body)

    # What takes long to import.

    async def _inside(self, request: HttpRequest) -> HttpResponse:
        if self._pages_from_inside is None:
            await self._runtime.in_thread(_import_pages_from_inside)
        if self._pages_from_inside is None:
            from ottla.broker.admin.inside import PagesFromInside

            self._pages_from_inside = PagesFromInside(self._runtime, self._brokers)
        return await self._pages_from_inside.answer(request)

    # May a broker be stopped?

    async def _restart_safe(self, request: HttpRequest) -> HttpResponse:
        """Any broker here that serves answers, for any of the cluster."""
        probe = next((each.probe for each in self._brokers.values() if each.life.phase is LifePhase.SERVING), None)
        name = request.query.get("broker")
        if name is not None and not (name.isascii() and name.isdecimal()):
            return unknown_broker(request, self._brokers)
        worst, worst_id = RestartSafety(), -1
        async for node_id, safety in _each(probe, [*self._brokers] if name is None else [int(name)]):
            if worst.is_safe:
                worst, worst_id = safety, node_id
        return json_response(200 if worst.is_safe else 503, _restart_body(worst, worst_id))


class ProcessAdmin:
    """The site of several brokers in one process, with a runtime of its own: each of them may stop and start."""

    def __init__(self, config: ServerConfig, clock: Clock, log: LazyLog) -> None:
        self._runtime = LoopRuntime(
            asyncio.get_running_loop(), config, node_id=-1, clock=clock, rng=Random(), log=log, executor=None
        )
        self.site = AdminSite(self._runtime)

    def close(self) -> None:
        self.site.close()
        self._runtime.stop()


async def _each(probe: HealthProbe | None, node_ids: Iterable[int]) -> AsyncIterator[tuple[int, RestartSafety]]:
    for node_id in node_ids:
        if probe is None:
            yield node_id, RestartSafety(is_known=False, text="no broker serves here")
        elif not probe.store_answers:
            why = "the metadata store does not answer, so what is known may be old"
            yield node_id, RestartSafety(is_known=False, text=why)
        else:
            yield node_id, await _checked(probe, node_id)


async def _checked(probe: HealthProbe, node_id: int) -> RestartSafety:
    check = RestartCheck(probe.metadata.image, node_id, probe.metadata.rules_of)
    looked_at = 0
    for count in check.steps():
        looked_at += count
        if looked_at >= PARTITIONS_PER_STEP:
            looked_at = 0
            await next_step()
    return check.safety


def _restart_body(safety: RestartSafety, node_id: int) -> dict[str, object]:
    status = "safe" if safety.is_safe else "not safe" if safety.is_known else "unknown"
    return {
        "status": status,
        "broker": node_id,
        "text": safety.text,
        "partitions_at_risk": safety.hindered,
        "partitions": [each._asdict() for each in safety.hindrances],
        "partitions_without_another_replica": safety.going_away,
    }


def _import_pages_from_inside() -> None:
    for name in _MODULES_FROM_INSIDE:
        import_module(f"ottla.broker.admin.{name}")
