"""One broker, as the pages of the admin listener know it, and answers about several (docs/operators.md §3.1)."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.admin.health import BrokerLife, Check, CheckHistory, Finding, liveness, readiness, startup
from ottla.broker.admin.http import HttpRequest, HttpResponse
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.runtime import Runtime

if TYPE_CHECKING:
    from ottla.broker.admin.metrics.source import MetricSource, SourceOfBroker
    from ottla.broker.admin.node_view import NodeView

JSON = "application/json"


class BrokerAdmin:
    """One broker, as the pages know it. `probe` is there as soon as the broker has its parts."""

    def __init__(self, runtime: Runtime, life: BrokerLife) -> None:
        self.node_id = runtime.node_id
        self.life = life
        self.probe: HealthProbe | None = None
        self._new_sources: Callable[[], Iterable[MetricSource]] | None = None
        """Makes the sources of metrics. They and the view are made when they are first asked for: a broker that is only
        probed does without them."""
        self._new_view: Callable[[], NodeView] | None = None
        self._runtime = runtime
        self._history = CheckHistory()

    def assembled(
        self,
        probe: HealthProbe,
        new_sources: "Callable[[], Iterable[MetricSource]]",
        new_view: "Callable[[], NodeView]",
    ) -> None:
        """The broker has its parts."""
        self.probe, self._new_sources, self._new_view = probe, new_sources, new_view

    @cached_property
    def metrics(self) -> "SourceOfBroker":
        """To be asked for when the broker has its parts."""
        from ottla.broker.admin.metrics.exposition import labels
        from ottla.broker.admin.metrics.source import SourceOfBroker

        assert self.probe is not None, "the broker has its parts"
        assert self._new_sources is not None, "with the probe"
        self.probe.watch_loop()
        return SourceOfBroker(labels(broker=self.node_id), self._new_sources())

    @cached_property
    def view(self) -> "NodeView":
        """To be asked for when the broker has its parts."""
        assert self._new_view is not None, "the broker has its parts"
        return self._new_view()

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


def asked_brokers(request: HttpRequest, known: Mapping[int, BrokerAdmin]) -> list[BrokerAdmin]:
    name = request.query.get("broker")
    return [each for each in known.values() if name is None or str(each.node_id) == name]


def json_response(status: int, body: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status, (json.dumps(body).encode() + b"\n",), JSON)


def unknown_broker(request: HttpRequest, known: Iterable[int]) -> HttpResponse:
    name = request.query.get("broker", "")
    text = f"there is no broker {name} here"
    return json_response(404, {"status": "unknown", "text": text, "brokers": sorted(known)})
