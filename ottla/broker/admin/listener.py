"""The admin listener of a process: its socket and pages, and how many connections it takes (docs/operators.md §2.3)."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.broker.admin.http import HttpConnection, HttpLimits, HttpRequest, HttpResponse, Page, sentence
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server_admin import ADMIN
from ottla.broker.runtime import Runtime, StartError
from ottla.broker.server.network import ListeningSocket, Network
from ottla.protocol.address import Address, is_loopback
from ottla.storage.files import reason_of

if TYPE_CHECKING:
    from ottla.broker.admin.tls import AdminTls

CONNECTIONS_MAX = 64
# Beyond those: whatever scrapers do, a probe is answered.
PROBE_CONNECTIONS_MAX = 8
PROBES = "/health/"
# For clients of this machine, and those with a certificate.
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
        self._socket: ListeningSocket | None = None
        self._connections: dict[HttpConnection, None] = {}
        # For probes alone: there were too many connections when they came.
        self._for_probes: set[HttpConnection] = set()
        self._is_importing = False

    async def open(self, network: Network, address: tuple[str, int]) -> None:
        """Raises StartError where the address, or the certificates of TLS, cannot be had."""
        self._tls = self._certificates()
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

        try:
            return admin_tls(self.runtime)
        except ConfigError as error:
            raise StartError(str(error)) from None

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
            connection.abort()
        elif self.h11 is None and not self._is_importing:
            # It takes longer than a step of the loop may, so not before it is needed, and in a thread.
            self._is_importing = True
            self.runtime.offload(_import_h11, self._imported)

    def disconnected(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        self._for_probes.discard(connection)

    def page(self, request: HttpRequest, connection: HttpConnection) -> HttpResponse | Awaitable[HttpResponse]:
        if connection in self._for_probes and not request.path.startswith(PROBES):
            return sentence(503, f"there are {CONNECTIONS_MAX} connections already")._replace(
                headers=(("Connection", "close"),)
            )
        if request.path.startswith(ABOUT_CLIENTS) and not self._may_name_clients(connection):
            return sentence(
                403,
                "this page names clients: it is served where ottla.admin.listener is a loopback address, and to who "
                "shows a certificate (ottla.admin.ssl.client.auth)",
            )
        page = self._pages.get(request.path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return sentence(404, f"there is no {request.path} here; there are {known}")
        return page(request)

    def refusal(self, status: int, why: str) -> HttpResponse:
        return sentence(status, why)

    def _may_name_clients(self, connection: HttpConnection) -> bool:
        if self._socket is None:
            return False
        return is_loopback(self._socket.host) or connection.has_certificate

    def _imported(self) -> None:
        h11 = self.h11 = import_module("h11")
        for connection in list(self._connections):
            connection.h11_imported(h11)


def _import_h11() -> None:
    import_module("h11")
