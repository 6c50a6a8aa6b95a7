"""The pages of the admin listener that look into brokers: metrics, and what Kafka's protocol has no request for.

Their modules take longer to import than a broker to start. They are imported when one of the pages is first asked for.
"""

from collections.abc import Awaitable, Callable, Mapping

from ottla.broker.admin.broker_admin import JSON, BrokerAdmin, asked_brokers, json_response, unknown_broker
from ottla.broker.admin.health import LifePhase
from ottla.broker.admin.http import HttpRequest, HttpResponse
from ottla.broker.admin.metrics.families import FAMILIES
from ottla.broker.admin.metrics.kafka_families import KAFKA_FAMILIES
from ottla.broker.admin.metrics.page import MetricsPage, ScrapeTurns
from ottla.broker.admin.metrics.process_source import ProcessSource
from ottla.broker.admin.metrics.source import SourceOfBroker
from ottla.broker.admin.node_view import NodeView, Rows, listed, progress
from ottla.broker.runtime import Runtime

RowsOf = Callable[[NodeView], Rows]


class PagesFromInside:
    def __init__(self, runtime: Runtime, brokers: Mapping[int, BrokerAdmin]) -> None:
        self._brokers = brokers
        turns = ScrapeTurns()
        self._process_source = ProcessSource(turns)
        self.process = SourceOfBroker("", [self._process_source])
        self._metrics = MetricsPage(runtime, FAMILIES, self._sources, turns)
        self._kafka_metrics = MetricsPage(runtime, KAFKA_FAMILIES, self._sources, turns)
        self._pages: dict[str, Callable[[HttpRequest], Awaitable[HttpResponse]]] = {
            "/metrics": self._metrics,
            "/metrics/kafka": self._kafka_metrics,
            "/api/v1/node/connections": lambda request: self._rows(request, "connections", NodeView.connections),
            "/api/v1/node/members": lambda request: self._rows(request, "members", NodeView.members),
            "/api/v1/node/progress": self._progress,
            "/api/v1/node/requests": lambda request: self._rows(request, "requests", NodeView.requests),
        }

    async def answer(self, request: HttpRequest) -> HttpResponse:
        return await self._pages[request.path](request)

    def close(self) -> None:
        self._metrics.stop()
        self._kafka_metrics.stop()
        self._process_source.close()

    def _sources(self) -> list[SourceOfBroker]:
        """Those of brokers that serve, or try to; a broker that has ended counts nothing more."""
        running = (each for each in self._brokers.values() if each.life.phase is not LifePhase.ENDED)
        return [self.process, *(each.metrics for each in running if each.probe is not None)]

    async def _rows(self, request: HttpRequest, name: str, rows_of: RowsOf) -> HttpResponse:
        """In the order of the brokers."""
        asked = asked_brokers(request, self._brokers)
        if not asked:
            return unknown_broker(request, self._brokers)
        body = await listed(name, (rows_of(each.view) for each in asked if each.probe is not None))
        return HttpResponse(200, body, JSON)

    async def _progress(self, request: HttpRequest) -> HttpResponse:
        asked = asked_brokers(request, self._brokers)
        if not asked:
            return unknown_broker(request, self._brokers)
        views = [(each, None if each.probe is None else each.view) for each in asked]
        return json_response(200, {"brokers": [progress(each.node_id, each.life, view) for each, view in views]})
