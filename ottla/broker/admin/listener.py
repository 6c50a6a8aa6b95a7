"""The admin listener of a process: its socket and pages, and how many connections it takes (docs/operators.md §2.3)."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.broker.admin.http import HttpConnection, HttpLimits, HttpRequest, HttpResponse, Page, sentence
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server_admin import ADMIN
from ottla.broker.runtime import Runtime, StartError
from ottla.broker.server.network import ListeningSocket, Network
from ottla.protocol.address import Address, host_of_header, is_host_of_no_site, is_loopback
from ottla.storage.files import reason_of

if TYPE_CHECKING:
    from ottla.broker.admin.tls import AdminTls
    from ottla.broker.admin.tokens import AdminTokens

CONNECTIONS_MAX = 64
# Beyond those: whatever scrapers do, a probe is answered.
PROBE_CONNECTIONS_MAX = 8
PROBES = "/health/"
# For clients of this machine, and those with a certificate or a token.
ABOUT_CLIENTS = "/api/"
BACKLOG = 64


class AdminListener:
    def __init__(self, runtime: Runtime, pages: Mapping[str, Page]) -> None:
        """`pages` by path."""
        self.runtime = runtime
        self.limits = HttpLimits()
        self.h11: ModuleType | None = None
        self.url = ""
        self._pages = pages
        self._tls: AdminTls | None = None
        self._tokens: AdminTokens | None = None
        self._socket: ListeningSocket | None = None
        self._connections: dict[HttpConnection, None] = {}
        # For probes alone: there were too many connections when they came.
        self._for_probes: set[HttpConnection] = set()
        self._is_importing = False

    async def open(self, network: Network, address: tuple[str, int]) -> None:
        """Raises StartError where the address, the certificates of TLS or the tokens cannot be had."""
        try:
            self._tls, self._tokens = self._certificates(), self._known_tokens()
        except ConfigError as error:
            raise StartError(str(error)) from None
        try:
            self._socket = await network.listen(self._accepted, *address, backlog=BACKLOG)
        except OSError as error:
            where = Address(*address)
            raise StartError(f"cannot listen on {where} (ottla.admin.listener): {reason_of(error)}") from None
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{Address(self._socket.host, self._socket.port)}"

    def _certificates(self) -> "AdminTls | None":
        if not any(self.runtime.config.names_set(f"{ADMIN}ssl.")):
            return None
        # Imported here: most brokers start without it.
        from ottla.broker.admin.tls import admin_tls

        return admin_tls(self.runtime)

    def _known_tokens(self) -> "AdminTokens | None":
        path = self.runtime.config.ottla_admin_tokens_file
        if path is None:
            return None
        from ottla.broker.admin.tokens import AdminTokens

        return AdminTokens(self.runtime, Path(path))

    def _accepted(self) -> asyncio.BufferedProtocol:
        connection = HttpConnection(self)
        return connection if self._tls is None else self._tls.accept(connection)

    def close(self) -> None:
        """With all connections: what a client has not read by now it does not get."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for connection in list(self._connections):
            connection.abort()

    # What its connections call.

    def connected(self, connection: HttpConnection) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._for_probes.add(connection)
        self._connections[connection] = None
        if len(self._connections) > CONNECTIONS_MAX + PROBE_CONNECTIONS_MAX:
            self._make_room(connection)
        if self.h11 is None and not self._is_importing:
            # It takes longer than a step of the loop may, so not before it is needed, and in a thread.
            self._is_importing = True
            self.runtime.offload(_import_h11, self._imported)

    def _make_room(self, newest: HttpConnection) -> None:
        """The oldest goes whose client waits for no answer: who holds connections keeps no probe out."""
        others = (each for each in self._connections if not each.is_answering)
        oldest = next(others, newest)
        self.disconnected(oldest)
        oldest.abort()

    def disconnected(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        self._for_probes.discard(connection)

    def page(self, request: HttpRequest, connection: HttpConnection) -> HttpResponse | Awaitable[HttpResponse]:
        if connection in self._for_probes and not request.path.startswith(PROBES):
            return sentence(503, f"there are {CONNECTIONS_MAX} connections already")._replace(
                headers=(("Connection", "close"),)
            )
        refused = self._refused(request, connection)
        if refused is not None:
            return refused
        page = self._pages.get(request.path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return sentence(404, f"there is no {request.path} here; there are {known}")
        return page(request)

    def refusal(self, status: int, why: str) -> HttpResponse:
        return sentence(status, why)

    def _refused(self, request: HttpRequest, connection: HttpConnection) -> HttpResponse | None:
        """Who shows a certificate sees all pages, and everybody sees those of health."""
        if request.path.startswith(PROBES) or connection.has_certificate:
            return None
        names_clients = request.path.startswith(ABOUT_CLIENTS)
        if self._tokens is not None:
            return _refused_by_token(self._tokens, request, names_clients=names_clients)
        if not names_clients:
            return None
        if self._socket is not None and is_loopback(self._socket.host):
            if is_host_of_no_site(host_of_header(request.headers.get("host", ""))):
                return None
            return sentence(403, "this page names clients: it is served to who asks for localhost or an address (Host)")
        return sentence(
            403,
            "this page names clients: it is served where ottla.admin.listener is a loopback address, and to who "
            "shows a certificate (ottla.admin.ssl.client.auth) or a token (ottla.admin.tokens.file)",
        )

    def _imported(self) -> None:
        h11 = self.h11 = import_module("h11")
        for connection in list(self._connections):
            connection.h11_imported(h11)


def _refused_by_token(tokens: "AdminTokens", request: HttpRequest, *, names_clients: bool) -> HttpResponse | None:
    from ottla.broker.admin.tokens import AdminRole

    token, wanted = tokens.of(request.headers), AdminRole.VIEWER if names_clients else AdminRole.METRICS
    if token is None:
        why = "this page wants a token that ottla.admin.tokens.file knows: Authorization: Bearer TOKEN"
        return sentence(401, why)._replace(headers=(("WWW-Authenticate", 'Bearer realm="ottla"'),))
    if token.role < wanted:
        return sentence(403, f"{token.name} has the role {token.role.name.lower()}, {wanted.name.lower()} is wanted")
    return None


def _import_h11() -> None:
    import_module("h11")
