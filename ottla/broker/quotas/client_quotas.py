"""The quotas of clients, as this broker enforces them: it alone counts what a client uses of it (§64.2).

While no client has a quota, nothing here is called, and handlers get requests directly. With the first quota every
route is given a handler that records, and with the last one it gets its own back.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.quotas.managers import ClientQuotaManagers
from ottla.broker.quotas.request_quotas import QuotaRecorder
from ottla.broker.runtime import Runtime
from ottla.broker.server.apis import FETCH
from ottla.broker.server.dispatch import Dispatcher, Route
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.security.quotas import CLIENT_KEYS, ClientQuotas
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

EXPIRE_EVERY_MS = 60_000
_CLIENTS_KEPT_MAX = 10_000
CLIENT_ID_MAX = 1024
"""Of a client id that is longer, so many characters count: many are kept, and clients choose them."""
_WRITE_TXN_MARKERS, _ADD_PARTITIONS_TO_TXN, _OF_BROKERS_SINCE = 27, 24, 4


class _Plain(NamedTuple):
    """What a route does by itself."""

    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    handle: Callable[[Any, Any], Any]
    build_frame: Callable[[Any, int], Any]


class ClientQuotaEnforcer:
    """Gives routes handlers that ask the managers of quotas."""

    def __init__(self, runtime: Runtime, dispatcher: Dispatcher, managers: ClientQuotaManagers) -> None:
        self.managers = managers
        self._runtime = runtime
        self._now_ns = runtime.clock.now_ns
        self._dispatcher = dispatcher
        self._plain: dict[Route, _Plain] = {}
        self._limited: dict[tuple[str, str], bool] = {}
        self._is_active = False
        self._began_ns = 0
        self._timer: TimerEntry | None = None

    def take(self, quotas: ClientQuotas) -> None:
        """They hold from the next record on."""
        self.managers.take(quotas)
        self._limited.clear()
        is_active = any(key in quotas.limited_keys for key in CLIENT_KEYS)
        if is_active != self._is_active:
            self._is_active = is_active
            change = self._limit if is_active else self._set_free
            for route in self._dispatcher.made.values():
                change(route)
            self._dispatcher.on_route = self._limit if is_active else None
        if self._timer is None:
            self._expire()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # Routes.

    def _limit(self, route: Route) -> None:
        plain = self._plain[route] = _Plain(route.decode, route.handle, route.build_frame)
        route.decode = partial(self._decode, plain.decode)
        route.handle = partial(self._handle, route, plain.handle)
        if not route.defers_answer:
            route.build_frame = partial(self._build, plain.build_frame)

    def _set_free(self, route: Route) -> None:
        route.decode, route.handle, route.build_frame = self._plain.pop(route)

    def _decode(
        self, decode: Callable[[memoryview, int, int], tuple[Any, int]], buffer: memoryview, start: int, end: int
    ) -> tuple[Any, int]:
        self._began_ns = self._now_ns()
        return decode(buffer, start, end)

    def _handle(
        self, route: Route, handle: Callable[[Any, Any], Any], context: RequestContext, request: Any
    ) -> Any | None:
        user, client_id = context.principal.name, (context.client_id or "")[:CLIENT_ID_MAX]
        gate = context.connection.gate
        # Who has not logged in is not known yet.
        is_known = gate is None or gate.is_open
        if not (is_known and self._is_limited(user, client_id)) or _is_of_follower(route, context, request):
            context.quotas = None
            return handle(context, request)
        quotas = QuotaRecorder(self.managers, user, client_id, self._began_ns, is_exempt=_is_of_brokers(route, context))
        context.quotas = quotas
        if route.api.key == FETCH:
            quotas.cap(request)
        try:
            response = handle(context, request)
        except KafkaError as error:
            if not route.has_error_code:
                raise
            response = route.error_response(error)
        if context.quotas is not quotas:
            return response
        if response is not None:
            return quotas.answered(context, response)
        if context.is_parked:
            quotas.end_step()
        elif not context.connection.is_closed:
            quotas.answered(context, None)
        return None

    def _build(self, build: Callable[[Any, int], Any], response: Any, correlation_id: int) -> Any:
        quotas, self.managers.building = self.managers.building, None
        if quotas is None or not self.managers.request.is_active:
            return build(response, correlation_id)
        began_ns = self._now_ns()
        frame = build(response, correlation_id)
        quotas.spent(self._now_ns() - began_ns)
        return frame

    def _is_limited(self, user: str, client_id: str) -> bool:
        client = user, client_id
        limited = self._limited.get(client)
        if limited is None:
            if len(self._limited) >= _CLIENTS_KEPT_MAX:
                self._limited.clear()
            limited = self._limited[client] = self.managers.has_quota(*client)
        return limited

    def _expire(self) -> None:
        now_ms = self._runtime.broker_clock.now_ms()
        is_used = self.managers.expire(now_ms)
        again = self._is_active or is_used
        self._timer = self._runtime.schedule(EXPIRE_EVERY_MS, self._expire, TimerKind.QUOTA_EXPIRY) if again else None


def _is_of_follower(route: Route, context: RequestContext, request: Any) -> bool:
    """A fetch of one that says so, by the listener where that is believed of brokers."""
    if route.api.key != FETCH or not context.connection.is_inter_broker:
        return False
    state = request.replica_state
    return bool((request.replica_id if state is None else state.replica_id) >= 0)


def _is_of_brokers(route: Route, context: RequestContext) -> bool:
    """A request that only brokers send, and by their listener."""
    key = route.api.key
    is_of_brokers = key == _WRITE_TXN_MARKERS or (key == _ADD_PARTITIONS_TO_TXN and route.version >= _OF_BROKERS_SINCE)
    return is_of_brokers and context.connection.is_inter_broker
