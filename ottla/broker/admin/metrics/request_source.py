"""Metrics of requests, connections and the event loop, of who comes in and what is denied, of events, and of the broker
itself."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ottla.broker.admin.metrics.exposition import Sample, labels
from ottla.broker.admin.metrics.source import Samples
from ottla.broker.histogram import merged
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import LoopRuntime
from ottla.broker.server.connection_interfaces import (
    HELD_BY_LOGIN,
    HELD_BY_PARKED,
    HELD_BY_START,
    HELD_BY_THROTTLE,
    HELD_BY_TURN,
    HELD_BY_WRITING,
)
from ottla.broker.server.dispatch import Route
from ottla.broker.server.socket_server import Server
from ottla.protocol.errors import ErrorCode
from ottla.security.acl import AclOperation, ResourceType
from ottla.timer.purgatory import Purgatory

LOGIN, RENEWAL = "login", "renewal"
# Of each broker: any of them may become the controller.
ROLES = "broker,controller"
HOLDS = {
    HELD_BY_PARKED: "parked",
    HELD_BY_WRITING: "writing",
    HELD_BY_THROTTLE: "throttle",
    HELD_BY_START: "start",
    HELD_BY_TURN: "turn",
    HELD_BY_LOGIN: "login",
}


class EventsPublisher(Protocol):
    published_total: int
    dropped_total: int

    @property
    def buffered(self) -> int: ...


class RequestSource:
    def __init__(
        self,
        runtime: LoopRuntime,
        server: Server,
        replicas: ReplicaManager,
        events: EventsPublisher | None,
        *,
        cluster_id: str,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._events = events
        self._cluster_id = cluster_id
        # As of the last pass: connections by listener, and by what holds them.
        self._open: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._purgatories: tuple[Purgatory, ...] = (
            replicas.delayed_produce,
            replicas.delayed_fetch,
            replicas.delayed_delete_records,
        )
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_request_duration_seconds": self._durations,
            "ottla_request_errors_total": self._errors,
            "ottla_request_bytes_total": lambda: self._bytes(lambda route: route.request_bytes),
            "ottla_response_bytes_total": lambda: self._bytes(lambda route: route.response_bytes),
            "ottla_requests_parked": lambda: [(labels(purgatory=p.name), len(p)) for p in self._purgatories],
            "ottla_parked_expired_total": lambda: [(labels(purgatory=p.name), p.expired) for p in self._purgatories],
            **self._connection_families(),
            "ottla_receive_buffers_lent": lambda: [("", server.receive_buffers.lent)],
            "ottla_loop_lateness_seconds": lambda: [("", runtime.wheel.lateness)],
            "ottla_loop_steps_slow_total": lambda: [("", server.times.slow_events)],
            "ottla_loop_step_seconds_max": self._slowest,
            "ottla_offloaded_calls": lambda: [("", runtime.works_under_way)],
            "ottla_offloaded_oldest_seconds": lambda: [("", runtime.oldest_work_ms / 1000)],
            "ottla_unhandled_errors_total": lambda: [("", runtime.unhandled_errors)],
            "ottla_events_published_total": lambda: [] if events is None else [("", events.published_total)],
            "ottla_events_dropped_total": lambda: [] if events is None else [("", events.dropped_total)],
            "ottla_events_buffered": lambda: [] if events is None else [("", events.buffered)],
            "ottla_broker_info": self._info,
        }

    def _connection_families(self) -> dict[str, Callable[[], Samples]]:
        server = self._server
        return {
            "ottla_connections": self.connections,
            "ottla_connections_opened_total": lambda: _by("listener", server.opened),
            "ottla_connections_closed_total": lambda: [
                (labels(listener=listener, reason=reason.value), n) for (listener, reason), n in server.closed.items()
            ],
            "ottla_connections_held": lambda: [(labels(reason=each), self._held[each]) for each in HOLDS.values()],
            "ottla_client_software_info": lambda: [
                (labels(name=name, version=version), 1) for name, version in server.client_software.seen
            ],
        }

    def prepare(self) -> Iterator[None]:
        open_now = Counter(dict.fromkeys(self._server.opened, 0))
        held: Counter[str] = Counter()
        for connection in list(self._server.connections):
            yield
            open_now[connection.listener_name] += 1
            for hold, reason in HOLDS.items():
                if connection.holds & hold:
                    held[reason] += 1
        self._open, self._held = open_now, held

    def routes(self) -> dict[str, list[Route]]:
        """Those of all versions of an API, by its name."""
        found: dict[str, list[Route]] = {}
        for route in list(self._server.dispatcher.made.values()):
            found.setdefault(route.api.name, []).append(route)
        return found

    def _durations(self) -> Iterator[Sample]:
        for api, routes in self.routes().items():
            for where, histogram in (
                ("direct", merged(route.direct for route in routes)),
                ("parked", merged(route.parked.counts for route in routes)),
            ):
                if histogram.count:
                    yield labels(api=api, where=where), histogram

    def _errors(self) -> Iterator[Sample]:
        for api, routes in self.routes().items():
            total = sum((route.errors for route in routes), Counter[int]())
            for code, count in total.items():
                yield labels(api=api, error=ErrorCode(code).name), count

    def _bytes(self, counted: Callable[[Route], int]) -> Iterator[Sample]:
        for api, routes in self.routes().items():
            yield labels(api=api), sum(map(counted, routes))

    def connections(self) -> Iterator[Sample]:
        return _by("listener", self._open)

    def answered(self, api: str) -> int:
        return sum(merged((route.direct, route.parked.counts)).count for route in self.routes().get(api, ()))

    def failed(self, api: str) -> int:
        return sum(route.errors.total() for route in self.routes().get(api, ()))

    def _slowest(self) -> list[Sample]:
        times = self._server.times
        slowest_ns, times.slowest_event_ns = times.slowest_event_ns, 0
        return [("", slowest_ns / 1e9)]

    def _info(self) -> list[Sample]:
        rack = self._runtime.config.broker_rack or ""
        return [(labels(cluster_id=self._cluster_id, rack=rack, roles=ROLES), 1)]


class SecuritySource:
    def __init__(self, server: Server, refusals: Counter[tuple[AclOperation, ResourceType]] | None) -> None:
        """`refusals` of the authorizer; None where none is configured."""
        self._server = server
        self._refusals = refusals
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_authentication_total": lambda: self._authentications(LOGIN),
            "ottla_reauthentication_total": lambda: self._authentications(RENEWAL),
            "ottla_authorization_denied_total": self._denied,
            "ottla_tls_handshakes_total": self._handshakes,
        }

    def prepare(self) -> Iterator[None]:
        yield from ()

    def _authentications(self, wanted: str) -> Iterator[Sample]:
        for listener, sasl in self._server.sasl.items():
            for (occasion, mechanism, result), count in list(sasl.ended.items()):
                if occasion == wanted:
                    yield labels(listener=listener, mechanism=mechanism, result=result), count

    def _handshakes(self) -> Iterator[Sample]:
        for each in () if self._server.tls is None else self._server.tls.all():
            for result, count in list(each.ended.items()):
                yield labels(listener=each.name, result=result), count

    def _denied(self) -> Iterator[Sample]:
        for (operation, kind), count in list((self._refusals or {}).items()):
            yield labels(operation=operation.name, resource_type=kind.name), count


def _by(name: str, counts: Mapping[str, int]) -> Iterator[Sample]:
    for value, count in list(counts.items()):
        yield labels(**{name: value}), count
