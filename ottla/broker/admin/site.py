"""The pages of the admin listener, for all brokers of the process (docs/operators.md §3).

With several brokers in a process, `?broker=N` asks for one; without it the one that is worst off answers.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.admin.broker_admin import BrokerAdmin, asked_brokers, json_response, unknown_broker
from ottla.broker.admin.health import Check
from ottla.broker.admin.http import HttpRequest, HttpResponse, Page
from ottla.broker.admin.listener import AdminListener
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import LoopRuntime, Runtime
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

    async def _restart_safe(self, request: HttpRequest) -> HttpResponse:
        from ottla.broker.admin.restart_page import restart_page

        return await restart_page(request, self._brokers)


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


def _import_pages_from_inside() -> None:
    for name in _MODULES_FROM_INSIDE:
        import_module(f"ottla.broker.admin.{name}")
