"""The pages of the admin listener, for all brokers of the process (docs/operators.md §3).

With several brokers in a process, `?broker=N` asks for one; without it the one that is worst off answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from random import Random

from ottla.broker.admin.health import BrokerLife, Check, CheckHistory, Finding, LifePhase, liveness, readiness, startup
from ottla.broker.admin.http import HttpRequest, HttpResponse, Page
from ottla.broker.admin.listener import AdminListener
from ottla.broker.admin.metrics.exposition import labels
from ottla.broker.admin.metrics.families import FAMILIES
from ottla.broker.admin.metrics.kafka_families import KAFKA_FAMILIES
from ottla.broker.admin.metrics.page import MetricsPage, ScrapeTurns
from ottla.broker.admin.metrics.process_source import ProcessSource
from ottla.broker.admin.metrics.source import MetricSource, SourceOfBroker
from ottla.broker.admin.node_view import NodeView, Rows, listed, progress
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.admin.restart_safety import RestartCheck, RestartSafety
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import LoopRuntime, Runtime, next_step
from ottla.broker.server.network import Network
from ottla.timer.clock import Clock

JSON = "application/json"
# A step of the loop looks at so many.
PARTITIONS_PER_STEP = 1000
_RANKS = {"ready": 0, "alive": 0, "started": 0, "degraded": 1}


class BrokerAdmin:
    """One broker, as the pages know it. `probe` is there as soon as the broker has its parts."""

    def __init__(self, runtime: Runtime, life: BrokerLife) -> None:
        self.node_id = runtime.node_id
        self.life = life
        self.probe: HealthProbe | None = None
        self.metrics: SourceOfBroker | None = None
        self.node: NodeView | None = None
        self._runtime = runtime
        self._history = CheckHistory()

    def assembled(self, probe: HealthProbe, sources: Iterable[MetricSource], node: NodeView) -> None:
        """The broker has its parts."""
        self.probe, self.node = probe, node
        self.metrics = SourceOfBroker(labels(broker=self.node_id), sources)

    def live(self) -> tuple[str, list[Check]]:
        return self._judged([liveness(self.life)], "alive", "dead")

    def started(self) -> tuple[str, list[Check]]:
        return self._judged([startup(self.life)], "started", "starting")

    def ready(self) -> tuple[str, list[Check]]:
        facts = None if self.probe is None else self.probe.facts()
        stall_ms = self._runtime.config.ottla_health_disk_stall_ms
        return self._judged(list(readiness(self.life, facts, disk_stall_ms=stall_ms)), "ready", "not ready")

    def _judged(self, findings: Sequence[Finding], good: str, bad: str) -> tuple[str, list[Check]]:
        checks = self._history.checks(findings, self._runtime.clock.now_ms())
        if any(not each.ok and each.fatal for each in findings):
            return bad, checks
        return (good if all(each.ok for each in findings) else "degraded"), checks


class AdminSite:
    def __init__(self, runtime: Runtime) -> None:
        self._brokers: dict[int, BrokerAdmin] = {}
        turns = ScrapeTurns()
        self._process_source = ProcessSource(turns)
        self._process = SourceOfBroker("", [self._process_source])
        self._metrics = MetricsPage(runtime, FAMILIES, self._sources, turns)
        self._kafka_metrics = MetricsPage(runtime, KAFKA_FAMILIES, self._sources, turns)
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
        self._metrics.stop()
        self._kafka_metrics.stop()
        self._process_source.close()

    def _sources(self) -> list[SourceOfBroker]:
        """Those of brokers that serve, or try to; a broker that has ended counts nothing more."""
        running = (each for each in self._brokers.values() if each.life.phase is not LifePhase.ENDED)
        return [self._process, *(each.metrics for each in running if each.metrics is not None)]

    def _pages(self) -> dict[str, Page]:
        return {
            "/health/live": lambda request: self._health(request, BrokerAdmin.live),
            "/health/ready": lambda request: self._health(request, BrokerAdmin.ready),
            "/health/startup": lambda request: self._health(request, BrokerAdmin.started),
            "/health/restart-safe": self._restart_safe,
            "/metrics": self._metrics,
            "/metrics/kafka": self._kafka_metrics,
            "/api/v1/node/connections": lambda request: self._node(request, "connections", NodeView.connections),
            "/api/v1/node/members": lambda request: self._node(request, "members", NodeView.members),
            "/api/v1/node/progress": self._progress,
            "/api/v1/node/requests": lambda request: self._node(request, "requests", NodeView.requests),
        }

    def _health(self, request: HttpRequest, judge: Callable[[BrokerAdmin], tuple[str, list[Check]]]) -> HttpResponse:
        asked = self._asked(request)
        if not asked:
            return _unknown_broker(request, self._brokers)
        judged = [(broker, *judge(broker)) for broker in asked]
        broker, status, checks = max(judged, key=lambda each: _RANKS.get(each[1], 2))
        body = {"status": status, "broker": broker.node_id, "checks": [each._asdict() for each in checks]}
        return _json(503 if _RANKS.get(status, 2) == 2 else 200, body)

    def _asked(self, request: HttpRequest) -> list[BrokerAdmin]:
        name = request.query.get("broker")
        return [each for each in self._brokers.values() if name is None or str(each.node_id) == name]

    # What only the broker itself knows.

    async def _node(self, request: HttpRequest, name: str, rows_of: Callable[[NodeView], Rows]) -> HttpResponse:
        """In the order of the brokers."""
        asked = self._asked(request)
        if not asked:
            return _unknown_broker(request, self._brokers)
        body = await listed(name, (rows_of(each.node) for each in asked if each.node is not None))
        return HttpResponse(200, body, JSON)

    def _progress(self, request: HttpRequest) -> HttpResponse:
        asked = self._asked(request)
        if not asked:
            return _unknown_broker(request, self._brokers)
        return _json(200, {"brokers": [progress(each.node_id, each.life, each.node) for each in asked]})

    # May a broker be stopped?

    async def _restart_safe(self, request: HttpRequest) -> HttpResponse:
        """Any broker here that serves answers, for any of the cluster."""
        probe = next((each.probe for each in self._brokers.values() if each.life.phase is LifePhase.SERVING), None)
        name = request.query.get("broker")
        if name is not None and not (name.isascii() and name.isdecimal()):
            return _unknown_broker(request, self._brokers)
        worst, worst_id = RestartSafety(), -1
        async for node_id, safety in _each(probe, [*self._brokers] if name is None else [int(name)]):
            if worst.is_safe:
                worst, worst_id = safety, node_id
        return _json(200 if worst.is_safe else 503, _restart_body(worst, worst_id))


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


def _json(status: int, body: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status, (json.dumps(body).encode() + b"\n",), JSON)


def _unknown_broker(request: HttpRequest, known: Iterable[int]) -> HttpResponse:
    name = request.query.get("broker", "")
    return _json(404, {"status": "unknown", "text": f"there is no broker {name} here", "brokers": sorted(known)})
