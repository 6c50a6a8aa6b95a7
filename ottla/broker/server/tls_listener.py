"""Listeners with TLS: what all connections of one share, and how a connection comes in by it.

Certificates are replaced while the listener serves: when a file of it has changed, and when its location is altered.
What was there stays until the new one is known to work. Connections keep what they began with.
"""

import asyncio
import datetime
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, cast

from ottla.broker.config.listener_tls import (
    ListenerTls,
    check_among_brokers,
    check_replacement,
    tls_of_listener,
    tls_properties,
)
from ottla.broker.config.options import ConfigError
from ottla.broker.config.security import protocol_of
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import SSL
from ottla.broker.config.tls import LOOK_EVERY_MS
from ottla.broker.runtime import Runtime
from ottla.broker.server.client_hello import ClientHello, HelloTooLong
from ottla.broker.server.close_reasons import CloseReason, why_no_tls
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_limits import PendingLogins
from ottla.broker.server.connection_memory import ConnectionMemory
from ottla.broker.server.tls_connection import TlsConnection, ciphertext_buffer
from ottla.broker.server.turns import Turns
from ottla.security.authentication import ANONYMOUS, USER, Principal
from ottla.security.distinguished_name import end_of, subject_of
from ottla.security.principal_mapping import NoMatchingRule, PrincipalMapper
from ottla.timer.wheel import TimerEntry

# From the accept.
HANDSHAKE_TIMEOUT_MS = 10_000
# What OpenSSL takes for one that is under way, measured: 48 to 67 KiB. A client that shows a certificate can announce
# one of OpenSSL's limit, and has room for it before it has sent it.
HANDSHAKE_BYTES = 64 * 1024
CERTIFICATE_BYTES_MAX = 100 * 1024
# A certificate that ends so soon is worth a line in the log, once a day.
ENDS_SOON_DAYS = 14
_DAY_MS = 86_400_000


class TlsShared(NamedTuple):
    """What listeners with TLS have of the server."""

    runtime: Runtime
    turns: Turns
    handshakes: ConnectionMemory
    logins: PendingLogins
    inter_broker_listener: str


class TlsListener:
    def __init__(self, name: str, tls: ListenerTls, shared: TlsShared) -> None:
        runtime = shared.runtime
        self.name = name
        self.runtime = runtime
        self.turns = shared.turns
        self.handshakes = shared.handshakes
        self.logins = shared.logins
        self.ended: Counter[str] = Counter()
        """Handshakes by result, `success` or `failure`."""
        self.ciphertext = ciphertext_buffer()
        # With SASL, the login says who a client is, whatever certificate it has shown.
        self._is_of_brokers = name == shared.inter_broker_listener
        self._gives_principals = protocol_of(runtime.config, name) == SSL
        self.tls = tls
        """What new connections begin with."""
        self._mapper = PrincipalMapper(tls.mapping_rules)
        self._seen = self._signatures()
        self._end, self._days_left = _end_of(tls), ENDS_SOON_DAYS

    @property
    def handshake_bytes(self) -> int:
        """What one connection takes at most while its handshake is under way."""
        asks_for_certificate = self.tls.as_server.verify_mode is not ssl.CERT_NONE
        return HANDSHAKE_BYTES + (CERTIFICATE_BYTES_MAX if asks_for_certificate else 0)

    def accept(self, connection: Connection) -> "AcceptedTls":
        return AcceptedTls(self, connection)

    def shaken_hands(self, connection: Connection, principal: Principal | None) -> None:
        """With SASL the login comes next."""
        self.ended["success"] += 1
        if principal is not None:
            connection.principal = principal
            self.logins.end(connection)

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Who shows this certificate, in DER; None where the login says it. Raises NoMatchingRule."""
        if not self._gives_principals:
            return None
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._mapper.name_of(subject_of(certificate)))

    # Other certificates.

    def _signatures(self) -> list[tuple[object, ...]]:
        return tls_properties(self.runtime.config, self.name).signatures()

    def checked(self, config: ServerConfig) -> ListenerTls:
        """What it would be with this configuration and the files as they are. Raises ConfigError."""
        tls = tls_of_listener(config, self.name)
        if tls != self.tls:
            check_replacement(config, self.name, self.tls, tls)
            if self._is_of_brokers:
                check_among_brokers(self.name, self.tls, tls)
        return tls

    def reload(self) -> None:
        """Takes what the configuration and the files say now; a broken one is logged, and the old one stays."""
        self._seen = self._signatures()
        try:
            tls = self.checked(self.runtime.config)
        except ConfigError as error:
            self.runtime.log.security.error("certificates are not replaced", listener=self.name, reason=str(error))
            return
        if tls != self.tls:
            self.tls = tls
            self.runtime.log.security.info("certificates replaced", listener=self.name)
            self._end, self._days_left = _end_of(tls), ENDS_SOON_DAYS

    def look_at_files(self) -> None:
        if self._signatures() != self._seen:
            self.reload()

    def look_at_the_end(self) -> None:
        """Says that the certificate ends soon, or has ended: clients refuse it then, which the broker does not see."""
        if self._end is None:
            return
        days_left = int((self._end.timestamp() * 1000 - self.runtime.clock.wall_ms()) // _DAY_MS)
        if days_left >= self._days_left:
            return
        self._days_left = days_left
        log, facts = self.runtime.log.security, {"listener": self.name, "end": self._end.isoformat()}
        if days_left < 0:
            log.error("the certificate has ended", **facts)
        else:
            log.warning("the certificate ends soon", **facts)


def _end_of(tls: ListenerTls) -> datetime.datetime | None:
    """The first that comes in the chain; None: it does not say as it should."""
    key_store = tls.settings.key_store
    assert key_store is not None, "it is served with a key"
    try:
        return min(map(end_of, key_store.chain))
    except ValueError:
        return None


class TlsListeners:
    """All of a broker's, at least one."""

    def __init__(self, tls: Mapping[str, ListenerTls], shared: TlsShared) -> None:
        self._runtime = shared.runtime
        self._by_name = {name: TlsListener(name, each, shared) for name, each in tls.items()}
        self._timer: TimerEntry | None = None

    def __getitem__(self, name: str) -> TlsListener:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def all(self) -> Iterable[TlsListener]:
        return self._by_name.values()

    def check(self, config: ServerConfig) -> None:
        """Whether all could serve with this configuration. Raises ConfigError."""
        for each in self._by_name.values():
            each.checked(config)

    def reload(self) -> None:
        for each in self._by_name.values():
            each.reload()

    def watch_files(self) -> None:
        """From now on, until `stop`."""
        for each in self._by_name.values():
            if self._timer is not None:
                each.look_at_files()
            each.look_at_the_end()
        now_ms = self._runtime.clock.now_ms()
        self._timer = self._runtime.wheel.schedule(now_ms + LOOK_EVERY_MS, self.watch_files)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class AcceptedTls(TlsConnection):
    """A client's connection. It is counted from the accept; its requests begin after the handshake."""

    __slots__ = ("_hello", "_listener", "_start", "_timer")

    def __init__(self, listener: TlsListener, connection: Connection) -> None:
        super().__init__(connection, listener.tls.as_server, listener.ciphertext, listener.runtime.soon)
        self._listener = listener
        # The first bytes that have come, and, until OpenSSL has them, all.
        self._start = b""
        self._hello: ClientHello | None = ClientHello()
        self._timer: TimerEntry | None = None

    @property
    def _connection(self) -> Connection:
        """Until it is lost."""
        return cast("Connection", self._inner)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        runtime = self._listener.runtime
        deadline_ms = runtime.clock.now_ms() + HANDSHAKE_TIMEOUT_MS
        self._timer = runtime.wheel.schedule(deadline_ms, partial(self._failed, _TOO_LONG))
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        if self._hello is None:
            super().buffer_updated(nbytes)
        else:
            self._receive_hello(self._hello, nbytes)

    def _receive_hello(self, hello: ClientHello, nbytes: int) -> None:
        try:
            is_for_tls = hello.add(self._ciphertext[:nbytes])
        except HelloTooLong as error:
            self._failed(str(error))
            return
        self._start = bytes(hello.received[:2])
        if is_for_tls:
            self._hello = None
            self._receive(memoryview(hello.received), len(hello.received))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _shake_hands(self) -> bool:
        """A signature takes up to a millisecond, so handshakes are made in turns too."""
        now_ns = self._listener.runtime.clock.now_ns()
        if self._listener.turns.is_over(now_ns, now_ns):
            self.pause_reading()
            self._listener.turns.wait(self._take_turn)
            return False
        return self._shake_hands_now()

    def _shake_hands_now(self) -> bool:
        if self._tls is None:
            self._listener.handshakes.set(self._connection, self._listener.handshake_bytes)
        return super()._shake_hands()

    def _take_turn(self) -> None:
        if self._is_closing:
            return
        self.resume_reading()
        if self._shake_hands_now():
            self._deliver()
        self._flush()

    def _established(self) -> None:
        tls = self._object()
        try:
            principal = self._listener.principal_of(tls.getpeercert(binary_form=True))
        except (NoMatchingRule, ValueError) as error:
            self._end_handshake()
            self._failed(str(error))
            return
        self._stop_timer()
        self._listener.shaken_hands(self._connection, principal)

    def _failed(self, why: str) -> None:
        if self._is_established:
            self._connection.close(CloseReason.TLS_FAILED, f"TLS: {why}")
        else:
            self._end_handshake()
            reason = why_no_tls(self._start) or (CloseReason.TLS_FAILED, f"no TLS handshake: {why}")
            self._connection.close(*reason)

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._stop_timer()
            self._listener.ended["failure"] += 1

    def _stop_timer(self) -> None:
        """The handshake is over, done or not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._listener.handshakes.set(self._connection, 0)


_TOO_LONG = f"it was not done within {HANDSHAKE_TIMEOUT_MS} ms"
