"""How long requests take: counted for metrics, and those that are slow written into the log (docs/operators.md §4.3).

All answers of a read event leave together, so each of its requests has taken as long as the event, and the clock need
not be read for each. A request that was parked is counted when its answer leaves.
"""

from functools import partial
from typing import Any, Protocol

from ottla.broker.histogram import SUM_NS, UNIT_BITS
from ottla.broker.logging import REQUEST_LOGGER
from ottla.broker.runtime import Runtime
from ottla.broker.server.apis import Api
from ottla.broker.server.connection_interfaces import ClientConnection, ClientIdentity
from ottla.broker.server.dispatch import Handle, Route
from ottla.broker.server.request_context import RequestContext
from ottla.security.authentication import ANONYMOUS, Principal

# A read event that holds up the others on the loop.
SLOW_EVENT_NS = 50_000_000
_MS = 1_000_000
# These wait as long as their client asks for, or for other clients: Fetch, JoinGroup, SyncGroup.
LONG_POLLS = frozenset({1, 11, 14})


class TimedConnection(Protocol):
    peer_host: str
    listener_name: str
    client: ClientIdentity | None
    principal: Principal

    run_route: Route | None
    """Of the last requests of the read event."""

    run_count: int
    """How many these are."""


class RequestTimes:
    def __init__(self, runtime: Runtime) -> None:
        self.runs: list[tuple[Route, int]] = []
        """Of the read event that is handled: how many requests in a row had one route, but for the last run, which its
        connection counts itself. A negative number takes requests out that were parked."""
        self.slow_events = 0
        self.slowest_event_ns = 0
        """Since it was set to 0."""
        self._runtime = runtime
        self._log = runtime.log.logger(REQUEST_LOGGER)

    def count(self, duration_ns: int, connection: TimedConnection) -> None:
        """The read event is over, and its answers are with the transport: counts the runs that its connection has not,
        and notes whether it was slow."""
        bucket = (duration_ns >> UNIT_BITS).bit_length()
        for route, count in self.runs:
            route.direct[bucket] += count
            route.direct[SUM_NS] += count * duration_ns
        if duration_ns >= SLOW_EVENT_NS:
            self._count_slow(duration_ns, connection)
        self.runs.clear()

    def count_parked(self, request: RequestContext) -> int:
        """Its answer leaves, at the time that this gives, in ns."""
        now_ns = self._runtime.clock.now_ns()
        duration_ns = now_ns - request.began_ns
        # Followers' fetches and OffsetCommit are all parked.
        times = request.route.parked.counts
        times[(duration_ns >> UNIT_BITS).bit_length()] += 1
        times[SUM_NS] += duration_ns
        request.route.response_bytes += request.response_bytes
        if duration_ns >= SLOW_EVENT_NS and request.api_key not in LONG_POLLS and self.is_slow(duration_ns):
            connection: ClientConnection = request.connection
            self._log.warning(
                "slow request",
                api=request.route.api.name,
                version=request.api_version,
                peer=connection.peer_host,
                listener=connection.listener_name,
                client_id=request.client_id,
                principal=named_principal(request.principal),
                duration_ms=duration_ns // _MS,
                request_bytes=request.size_bytes,
                response_bytes=request.response_bytes,
                waited=True,
            )
        return now_ns

    def _count_slow(self, duration_ns: int, connection: TimedConnection) -> None:
        self.slow_events += 1
        self.slowest_event_ns = max(self.slowest_event_ns, duration_ns)
        if self.is_slow(duration_ns):
            last, client = connection.run_route, connection.client
            runs = [*self.runs] if last is None else [*self.runs, (last, connection.run_count)]
            self._log.warning(
                "slow requests",
                apis=sorted({f"{route.api.name} v{route.version}" for route, _ in runs}),
                requests=sum(count for _, count in runs if count > 0),
                peer=connection.peer_host,
                listener=connection.listener_name,
                client_id=None if client is None else client.client_id,
                principal=named_principal(connection.principal),
                duration_ms=duration_ns // _MS,
            )

    def is_slow(self, duration_ns: int) -> bool:
        slow_ms = self._runtime.config.ottla_request_log_slow_ms
        return 0 < slow_ms * _MS <= duration_ns


class RequestSample:
    """Each n-th request in the log, with who has sent it. It stands before the handlers where
    `ottla.request.log.sample` says so: other brokers pay nothing for it."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._log = runtime.log.logger(REQUEST_LOGGER)
        self._every = self._left = runtime.config.ottla_request_log_sample

    def guarded(self, api: Api, handle: Handle) -> Handle:
        return partial(self._handle, api, handle)

    def _handle(self, api: Api, handle: Handle, context: RequestContext, request: Any) -> Any | None:
        self._left -= 1
        if self._left:
            return handle(context, request)
        self._left = self._every
        connection = context.connection
        client_id, principal, began_ns = context.client_id, context.principal, self._clock.now_ns()
        try:
            return handle(context, request)
        finally:
            self._log.info(
                "request",
                api=api.name,
                version=context.api_version,
                peer=connection.peer_host,
                listener=connection.listener_name,
                client_id=client_id,
                principal=named_principal(principal),
                request_bytes=context.size_bytes,
                handled_us=(self._clock.now_ns() - began_ns) // 1000,
                waits=context.is_parked or None,
            )


def named_principal(principal: Principal) -> str | None:
    """For a line of the log, which has no field for who has not logged in."""
    return None if principal == ANONYMOUS else str(principal)
