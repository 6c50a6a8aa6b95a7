"""How many connections there may be, from where, and how fast they may come (§66); and which of them rest.

The listener that brokers have for each other is out of clients' reach, where there are others: neither the limit of the
whole broker nor its rate holds for it, and where it has no room, a connection of another listener makes some.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.options import INT_MAX
from ottla.broker.config.server_network import parse_per_ip_overrides
from ottla.broker.runtime import Runtime
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_interfaces import HELD_BY_THROTTLE, ClientConnection
from ottla.security.rates import Rate, Window
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.security.quota_budgets import AddressQuotas

MAX_CONNECTIONS = "max.connections"
MAX_CREATION_RATE = "max.connection.creation.rate"
# Before a login, for each one that comes: where the limit was lowered, it is reached little by little.
PENDING_CLOSED_AT_ONCE = 2
# Looked at for one that makes room: the oldest ones.
CANDIDATES_MAX = 1000
_overrides = lru_cache(maxsize=4)(parse_per_ip_overrides)


class _Pace(NamedTuple):
    """A rate, and the limit that it was measured for last."""

    rate: Rate
    limit: int


class MutedConnections:
    """Those whose requests wait because their client has used up a quota, and has its answer already (KIP-219), or
    because they have come too fast. Others do not pay for it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timers: dict[Connection, TimerEntry] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def mute(self, connection: Connection, duration_ms: int) -> None:
        """Its next request is handled after `duration_ms`, or later where it was muted for longer."""
        if connection.is_closed:
            return
        until_ms = self._runtime.clock.now_ms() + duration_ms
        before = self._timers.get(connection)
        if before is not None:
            if before.deadline_ms >= until_ms:
                return
            before.cancel()
        connection.holds |= HELD_BY_THROTTLE
        self._timers[connection] = self._runtime.wheel.schedule(until_ms, partial(self._unmute, connection))

    def forget(self, connection: Connection) -> None:
        """Its socket is closed."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _unmute(self, connection: Connection) -> None:
        del self._timers[connection]
        connection.release(HELD_BY_THROTTLE)


class ConnectionLimits:
    def __init__(self, runtime: Runtime, inter_broker_listener: str) -> None:
        self.addresses: AddressQuotas | None = None
        """None: no address has a quota."""
        self._config = runtime.config
        self._inter_broker = inter_broker_listener
        self._window = Window(runtime.config.quota_window_num, runtime.config.quota_window_size_seconds * 1000)
        self._listeners: set[str] = set()
        self._of_host: Counter[str] = Counter()
        self._of_listener: Counter[str] = Counter()
        # By listener; under the empty name that of all together.
        self._paces: dict[str, _Pace] = {}
        # When each listener is done with the connections that have come.
        self._free_ms: dict[str, int] = {}

    def add_listener(self, name: str) -> None:
        self._listeners.add(name)

    def is_protected(self, listener: str) -> bool:
        return listener == self._inter_broker and len(self._listeners) > 1

    def count(self, connection: Connection) -> None:
        """From the accept on."""
        self._of_host[connection.peer_host] += 1
        self._of_listener[connection.listener_name] += 1

    def uncount(self, connection: Connection) -> None:
        """Its socket is closed."""
        for counts, name in ((self._of_host, connection.peer_host), (self._of_listener, connection.listener_name)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    def refusal(self, listener: str, host: str) -> str | None:
        """Why there can be no more connection of the listener from this address; None: there can."""
        config = self._config
        own = self._own(listener, MAX_CONNECTIONS)
        if self._of_listener[listener] >= own:
            return f"there are {own} connections of the listener {listener} already ({MAX_CONNECTIONS})"
        if self._of_listener.total() >= config.max_connections and not self.is_protected(listener):
            return f"there are {config.max_connections} connections already ({MAX_CONNECTIONS})"
        limit = _overrides(config.max_connections_per_ip_overrides).get(host, config.max_connections_per_ip)
        if self._of_host[host] >= limit:
            return f"there are {limit} connections from this address already (max.connections.per.ip)"
        return None

    def to_make_room(self, listener: str, connections: Iterable[Connection]) -> Connection | None:
        """Of the connections, oldest first, the one of another listener that has been idle longest, where brokers'
        own listener has taken a place too many; None: there is room."""
        if not self.is_protected(listener) or self._of_listener.total() < self._config.max_connections:
            return None
        others = (each for each in connections if each.listener_name != listener and not each.is_closed)
        return min(islice(others, CANDIDATES_MAX), key=lambda each: each.last_event_ns, default=None)

    # How fast they come.

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """How long a connection that has come waits before it is read from: as one that Kafka's acceptor of the
        listener takes, after the others and no faster than the rates allow."""
        limits = {listener: self._own(listener, MAX_CREATION_RATE)}
        if not self.is_protected(listener):
            limits[""] = self._config.max_connection_creation_rate
        paces = [self._pace(name, limit) for name, limit in limits.items() if limit < INT_MAX]
        if not paces:
            self._free_ms.pop(listener, None)
            return 0
        turn_ms = max(now_ms, self._free_ms.get(listener, 0))
        throttle_ms = 0
        for rate, limit in paces:
            rate.record(1, turn_ms)
            throttle_ms = max(throttle_ms, rate.throttle_ms(max(limit, 1), turn_ms))
        self._free_ms[listener] = turn_ms + min(throttle_ms, self._window.sample_ms)
        return self._free_ms[listener] - now_ms

    def take_back(self, listener: str, now_ms: int) -> None:
        """A connection that is not welcome does not count against the others."""
        for name in (listener, ""):
            if name in self._paces and not (name == "" and self.is_protected(listener)):
                self._paces[name].rate.record(-1, now_ms)

    def _pace(self, name: str, limit: int) -> _Pace:
        pace = self._paces.get(name)
        if pace is None or pace.limit != limit:
            # Who has waited for the old rate does not hold up those that come by the new one.
            self._free_ms.clear()
            pace = self._paces[name] = _Pace(Rate(self._window), limit)
        return pace

    def _own(self, listener: str, name: str) -> int:
        own = self._config.listener_limits.get((listener, name))
        return INT_MAX if own is None else own


class PendingLogins:
    """Connections whose clients have not shown yet that they belong here: only so many, and the oldest of them goes
    first (§66.7).

    A client of a listener with SASL counts until it has logged in, one of a listener with TLS alone until its handshake
    is done; those of a listener without either do not count. Each of them has a deadline, so what the limit bounds is
    how many a flood can hold until then. Those that brokers make for each other never count, where they have a listener
    of their own.
    """

    def __init__(self, runtime: Runtime, limits: ConnectionLimits) -> None:
        self._config = runtime.config
        self._limits = limits
        # In the order in which they have come.
        self._pending: dict[ClientConnection, None] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def most(self) -> int:
        """Half of all connections at most: the others are for clients that have logged in."""
        config = self._config
        return min(config.ottla_max_unauthenticated_connections, max(config.max_connections // 2, 1))

    def begin(self, connection: ClientConnection) -> None:
        """It was accepted. Where there are too many, the oldest is closed."""
        if self._limits.is_protected(connection.listener_name):
            return
        self._pending[connection] = None
        most = self.most
        excess = len(self._pending) - most
        if excess > 0:
            why = f"{most} newer connections have not logged in yet either (ottla.max.unauthenticated.connections)"
            for oldest in list(islice(self._pending, min(excess, PENDING_CLOSED_AT_ONCE))):
                oldest.close(CloseReason.OVER_LIMIT, why)

    def end(self, connection: ClientConnection) -> None:
        """Its client is known, or gone."""
        self._pending.pop(connection, None)
