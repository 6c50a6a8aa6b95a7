"""The listeners and their connections: how many, from where, how fast they come, and when an idle one is closed."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.broker.config.security import SaslSettings
from ottla.broker.config.server_network import NetworkOptions
from ottla.broker.runtime import Runtime
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_interfaces import HELD_BY_START, HELD_BY_THROTTLE, NS_PER_MS
from ottla.broker.server.connection_limits import ConnectionLimits, MutedConnections, PendingLogins
from ottla.broker.server.connection_memory import HANDSHAKES_BYTES_MAX, WRITE_BUFFER_BYTES, ConnectionMemory
from ottla.broker.server.dispatch import Dispatcher, Guarded, NewDispatcher, PartOf
from ottla.broker.server.network import ListeningSocket, Network, SocketOptions, takes_last_descriptors
from ottla.broker.server.receive_buffers import ReceiveBuffers
from ottla.broker.server.request_times import RequestTimes
from ottla.broker.server.turns import ReadTurns, Turns
from ottla.cluster.image import MetadataImage
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.config.listener_tls import ListenerTls
    from ottla.broker.server.sasl_listener import SaslListener
    from ottla.broker.server.tls_listener import TlsListeners

# A port scan or a client with the wrong protocol in a loop should not fill the log.
CLOSINGS_LOGGED_PER_SECOND = 10
# A transport that is closed first sends what it has. A client that does not read that would keep its connection for
# ever: the memory, the descriptor and the place in `max.connections`.
CLOSE_TIMEOUT_MS = 5_000
# The garbage collector counts objects that come less those that go. Where connections take the places of others, the
# youngest generation would grow to tens of thousands, and the loop would stand still until all are looked at.
CONNECTIONS_PER_COLLECTION = 64


NewConnection = Callable[["Server", str], Connection]
"""Called for each connection that is accepted, with the name of the listener."""
SOFTWARE_PAIRS_MAX = 50
SOFTWARE_LENGTH_MAX = 64
OTHER_SOFTWARE = ("_other", "_other")


class ClientSoftware:
    """Which client software has connected, by what clients say of themselves (KIP-511), for a metric."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], None] = {}
        """Names and versions in the order in which they came; beyond so many, `OTHER_SOFTWARE` stands for the rest."""

    def note(self, name: str, version: str) -> None:
        pair = name, version
        if pair in self.seen:
            return
        is_short = len(name) <= SOFTWARE_LENGTH_MAX and len(version) <= SOFTWARE_LENGTH_MAX
        has_room = len(self.seen) < SOFTWARE_PAIRS_MAX
        self.seen[pair if is_short and has_room else OTHER_SOFTWARE] = None


def _with_sasl(
    settings: Mapping[str, SaslSettings], server: "Server", image: Callable[[], MetadataImage]
) -> "dict[str, SaslListener]":
    """Imported here: a broker without SASL starts without it."""
    from ottla.broker.server.sasl_listener import SaslListener

    runtime, dispatcher, logins = server.runtime, server.dispatcher, server.logins
    return {name: SaslListener(name, each, runtime, dispatcher, image, logins) for name, each in settings.items()}


def _with_tls(settings: "Mapping[str, ListenerTls]", server: "Server") -> "TlsListeners":
    """Imported here: a broker without TLS starts without it."""
    from ottla.broker.server.tls_listener import TlsListeners, TlsShared

    handshakes = ConnectionMemory(HANDSHAKES_BYTES_MAX)
    return TlsListeners(
        settings, TlsShared(server.runtime, server.turns, handshakes, server.logins, server.inter_broker_listener)
    )


class Server:
    def __init__(
        self,
        runtime: Runtime,
        fetch_sessions: FetchSessionCache,
        *,
        inter_broker_listener: str,
        part: PartOf,
        sasl: Mapping[str, SaslSettings] = MappingProxyType({}),
        tls: "Mapping[str, ListenerTls]" = MappingProxyType({}),
        guarded: Guarded | None = None,
        new_dispatcher: NewDispatcher = Dispatcher,
        new_connection: NewConnection = Connection,
    ) -> None:
        """`part` gives handlers the parts of the broker by their names. `sasl`: of the listeners where clients log in
        first; `tls`: of those with TLS. `guarded` gives what is called in place of a handler, where an authorizer is
        configured. `new_dispatcher`, `new_connection`: tests hand in some of theirs."""
        self.runtime = runtime
        self.inter_broker_listener = inter_broker_listener
        self.dispatcher = new_dispatcher(part, guarded)
        self.limits = ConnectionLimits(runtime, inter_broker_listener)
        self.logins = PendingLogins(runtime, self.limits)
        self.sasl = _with_sasl(sasl, self, lambda: part("metadata").image) if sasl else {}
        self.receive_buffers, self.memory = ReceiveBuffers(), ConnectionMemory()
        self.turns = Turns(runtime.soon, runtime.clock.now_ns)
        self.tls = _with_tls(tls, self) if tls else None
        self.times = RequestTimes(runtime)
        self._new_connection = new_connection
        # By listener, since the start.
        self.opened: Counter[str] = Counter()
        self.closed: Counter[tuple[str, CloseReason]] = Counter()
        self.client_software = ClientSoftware()
        self.read_turns = ReadTurns(runtime.soon, runtime.clock.now_ns)
        self._sessions = fetch_sessions
        self.request_bytes_max = runtime.config.socket_request_max_bytes
        self.connections: dict[Connection, None] = {}
        self.muted, self._idle_ms_max = MutedConnections(runtime), runtime.config.connections_max_idle_ms
        # Kafka's default of 100 KiB holds fast networks back; only a size that was configured is applied.
        self._socket_options = SocketOptions(
            send_buffer_bytes=runtime.config.size_if_set(NetworkOptions.socket_send_buffer_bytes),
            receive_buffer_bytes=runtime.config.size_if_set(NetworkOptions.socket_receive_buffer_bytes),
        )
        self._listeners: list[ListeningSocket] = []
        self._all_closed: asyncio.Future[None] | None = None
        self._sessions_timer: TimerEntry | None = None  # Pending while a session without a connection is kept.
        self._logged_second = self._logged_count = self._uncollected = 0

    async def listen(self, network: Network, name: str, host: str, port: int) -> ListeningSocket:
        """Opens the listener of this name. Raises OSError where the address cannot be had."""
        backlog = self.runtime.config.socket_listen_backlog_size
        listener = await network.listen(self._protocol_factory(name), host, port, backlog=backlog)
        self._listeners.append(listener)
        self.limits.add_listener(name)
        return listener

    def _protocol_factory(self, name: str) -> Callable[[], asyncio.BufferedProtocol]:
        if self.tls is None or name not in self.tls:
            return lambda: self._new_connection(self, name)
        tls = self.tls[name]
        return lambda: tls.accept(self._new_connection(self, name))

    def begin_to_serve(self) -> None:
        """Connections made before this wait until now."""
        for connection in list(self.connections):
            connection.release(HELD_BY_START)
        if self.tls is not None:
            self.tls.watch_files()
        for sasl in self.sasl.values():
            sasl.watch_files()

    def close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self.tls is not None:
            self.tls.stop()
        for sasl in self.sasl.values():
            sasl.stop()
        if self._sessions_timer is not None:
            self._sessions_timer.cancel()

    def close_connections(self) -> None:
        for connection in list(self.connections):
            connection.close(CloseReason.BROKER_STOPS, "the broker stops")

    async def wait_closed(self, at_most_ms: int) -> None:
        """Gives clients the time to take their last answers; what is left then is cut off."""
        if self.connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            timer = self.runtime.wheel.schedule(self.runtime.clock.now_ms() + at_most_ms, self.abort_connections)
            await self._all_closed
            timer.cancel()

    def abort_connections(self) -> None:
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    # Called by connections.

    def connected(self, connection: Connection) -> None:
        transport = connection.transport
        assert transport is not None, "a new connection has its transport"
        peer = transport.get_extra_info("peername")
        host = connection.peer_host = str(peer[0]) if peer else ""
        sasl = self.sasl.get(connection.listener_name)
        if sasl is not None:
            from ottla.broker.server.sasl_gate import SaslGate

            connection.gate = SaslGate(connection, sasl)
        refusal = self.limits.refusal(connection.listener_name, host)
        if refusal is None and takes_last_descriptors(transport):
            refusal = "the process has few file descriptors left (RLIMIT_NOFILE)"
        if refusal is None:
            self._make_room(connection.listener_name)
        self.connections[connection] = None
        self.opened[connection.listener_name] += 1
        self._uncollected += 1
        if self._uncollected >= CONNECTIONS_PER_COLLECTION:
            self._uncollected = 0
            gc.collect(1)
        self.limits.count(connection)
        if refusal is not None:
            connection.close(CloseReason.OVER_LIMIT, refusal)
            return
        self._socket_options.apply(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        now_ms = self.runtime.clock.now_ms()
        connection.last_event_ns = now_ms * NS_PER_MS
        if not self.runtime.is_serving:
            connection.holds |= HELD_BY_START
        self._throttle(connection, now_ms)
        if connection.gate is not None or (self.tls is not None and connection.listener_name in self.tls):
            self.logins.begin(connection)

    def _make_room(self, listener: str) -> None:
        other = self.limits.to_make_room(listener, self.connections)
        if other is not None:
            other.close(CloseReason.OVER_LIMIT, f"a broker needs its place ({listener}, max.connections)")

    def lost(self, connection: Connection) -> None:
        self.closed[connection.listener_name, CloseReason.LOST] += 1

    def closing(self, connection: Connection, reason: CloseReason, why: str | None) -> None:
        """It is aborted if it has not sent its last responses in time."""
        self.closed[connection.listener_name, reason] += 1
        if why is not None:
            self._log_closing(connection, why)
        self.logins.end(connection)
        if connection.gate is not None:
            connection.gate.end()
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
            connection.idle_timer = None
        transport = connection.transport
        if transport is not None and transport.get_write_buffer_size():
            deadline_ms = self.runtime.clock.now_ms() + CLOSE_TIMEOUT_MS
            connection.idle_timer = self.runtime.wheel.schedule(deadline_ms, transport.abort)

    def disconnected(self, connection: Connection) -> None:
        del self.connections[connection]
        if connection.gate is not None:
            connection.gate.end()
            connection.gate = None  # It refers to the connection.
        self.muted.forget(connection)
        self.logins.end(connection)
        self.limits.uncount(connection)
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
            connection.idle_timer = None
        has_session = self._sessions.connection_lost(connection, self.runtime.clock.now_ms())
        if has_session and self._sessions_timer is None and self._listeners:
            self._drop_sessions()
        if self._all_closed is not None and not self.connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _drop_sessions(self) -> None:
        """Fetch sessions outlive their connections, but not for ever."""
        next_ms = self._sessions.drop_detached(self.runtime.clock.now_ms())
        self._sessions_timer = None if next_ms is None else self.runtime.wheel.schedule(next_ms, self._drop_sessions)

    def _log_closing(self, connection: Connection, why: str) -> None:
        second = self.runtime.clock.now_ms() // 1000
        if second != self._logged_second:
            self._logged_second = second
            self._logged_count = 0
        self._logged_count += 1
        if self._logged_count <= CLOSINGS_LOGGED_PER_SECOND:
            self.runtime.log.info("connection closed", peer=connection.peer_host, reason=why)

    # Limits.

    def _throttle(self, connection: Connection, now_ms: int) -> None:
        """One that comes too early is not read from before its turn; one whose address has used up its quota never is,
        and closes a little later (§66.4, §66.5)."""
        listener, addresses = connection.listener_name, self.limits.addresses
        wait_ms = self.limits.wait_ms(listener, now_ms)
        ends_ms = 0 if addresses is None else addresses.record(connection.peer_host, now_ms)
        if ends_ms:
            self.limits.take_back(listener, now_ms)
            connection.holds |= HELD_BY_THROTTLE
            why = "its address makes too many connections (connection_creation_rate)"
            end = partial(connection.close, CloseReason.OVER_LIMIT, why)
            connection.idle_timer = self.runtime.wheel.schedule(now_ms + ends_ms, end)
            return
        if wait_ms:
            self.muted.mute(connection, wait_ms)
        self._watch_idle(connection)

    def _watch_idle(self, connection: Connection) -> None:
        """One timer per connection, moved on only when it fires: a request costs it nothing."""
        deadline_ms = connection.active_ns // NS_PER_MS + self._idle_ms_max

        def check() -> None:
            now_ms = self.runtime.clock.now_ms()
            if connection.parked or connection in self.muted or connection.count_unread():
                connection.last_event_ns = now_ms * NS_PER_MS
            if now_ms - connection.active_ns // NS_PER_MS >= self._idle_ms_max:
                connection.close(CloseReason.IDLE, f"idle for {self._idle_ms_max} ms")
            else:
                self._watch_idle(connection)

        connection.idle_timer = self.runtime.wheel.schedule(deadline_ms, check)
