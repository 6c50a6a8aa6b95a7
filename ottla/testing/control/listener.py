"""The control address of brokers in testing mode: its socket, and how many connections it takes.

Of connections 64 are served, beside those whose requests wait; more are answered 503. What is behind the address is
imported when the first client comes, in a thread: most runs of a broker are never controlled.
"""

import asyncio
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ottla.broker.admin.http import HttpConnection, HttpLimits, HttpRequest, HttpResponse
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import SystemClock
from ottla.broker.runtime import LoopRuntime, Runtime, StartError
from ottla.broker.server.network import TcpNetwork
from ottla.protocol.address import Address
from ottla.storage.files import reason_of
from ottla.testing.control.access import UNIX, ControlAccess
from ottla.testing.control.event_log import EventLog
from ottla.testing.control.problems import Problem
from ottla.testing.coverage import Coverage
from ottla.testing.hosting import LOOPBACK
from ottla.testing.scope import ControlScope
from ottla.testing.testbed import Testbed

if TYPE_CHECKING:
    from ottla.testing.control.router import Router

    MadeRouter = Callable[[Testbed, EventLog, LazyLog, ControlScope | None], Router]

CONNECTIONS_MAX: Final = 64
CONNECTIONS_OPEN_MAX: Final = 512
"""Beyond those that are served and wait, they are answered 503; beyond these, closed."""
BACKLOG: Final = 128
LIMITS: Final = HttpLimits(
    methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
    body_bytes_max=1 << 20,
    request_timeout_ms=10_000,
    # A wait takes a minute at most, and a broker that starts again its time.
    response_timeout_ms=120_000,
    notices_end=True,
)
FIXTURE_BODY_BYTES_MAX: Final = 16 << 20
"""A record may have a megabyte, and takes more of JSON."""
ROUTER: Final = "ottla.testing.control.routes:router_of"


class ControlListener:
    """Everything here runs on the loop of the brokers."""

    def __init__(
        self,
        bed: Testbed,
        access: ControlAccess,
        scope: ControlScope | None = None,
        body_bytes_max: int = LIMITS.body_bytes_max,
    ) -> None:
        """`scope`: the part of the brokers that it is for; without it all."""
        self.limits = LIMITS._replace(body_bytes_max=body_bytes_max)
        self.h11: ModuleType | None = None
        self.url = ""
        """`http://HOST:PORT` or `unix:PATH`, once it is open."""
        self.events = EventLog()
        bed.histories.listeners.append(self.events.fact)
        self._bed = bed
        self._access = access
        self._scope = scope
        hosted = bed.hosted
        self._runtime = LoopRuntime(
            asyncio.get_running_loop(),
            hosted.config,
            node_id=-1,
            clock=SystemClock(),
            rng=Random(),
            log=hosted.log,
            executor=None,
        )
        self.runtime: Runtime = self._runtime
        self._router: Router | None = None
        self._close_socket = _nothing
        # Those that came when there were too many have to wait until others have gone.
        self._served: dict[HttpConnection, None] = {}
        self._surplus: dict[HttpConnection, None] = {}
        self._is_importing = False

    async def open(self, address: Address | Path) -> None:
        """Raises StartError."""
        if self._bed.wire.coverage is None:
            self._bed.wire.coverage = Coverage()
        try:
            if isinstance(address, Path):
                await self._open_unix(address)
            else:
                listening = await TcpNetwork().listen(self._accepted, *address, backlog=BACKLOG)
                self._close_socket = listening.close
                self.url = f"http://{Address(address.host, listening.port)}"
        except OSError as error:
            shown = f"{UNIX}{address}" if isinstance(address, Path) else str(address)
            raise StartError(f"cannot listen on {shown} (--control): {reason_of(error)}") from None
        faults = self._bed.hosted.fault_host.faults_if_used
        for fault in faults or ():
            self.events.watch(fault)

    async def _open_unix(self, path: Path) -> None:
        """Raises OSError."""
        bound = _bound_socket(path)
        server = await asyncio.get_running_loop().create_unix_server(self._accepted, sock=bound, backlog=BACKLOG)
        self.url = f"{UNIX}{path}"

        def close() -> None:
            server.close()
            path.unlink(missing_ok=True)

        self._close_socket = close

    async def close(self) -> None:
        """What was being changed comes to its end; other requests get no answer."""
        self._close_socket()
        self._close_socket = _nothing
        self._bed.histories.listeners.remove(self.events.fact)
        for connection in (*self._served, *self._surplus):
            connection.abort()
        if self._router is not None:
            await self._router.service.close()
        await self._runtime.work_done()
        self._runtime.stop()

    # What its connections call.

    def connected(self, connection: HttpConnection) -> None:
        among = self._served if self._has_room else self._surplus
        among[connection] = None
        if len(self._served) + len(self._surplus) > CONNECTIONS_OPEN_MAX:
            connection.abort()
        elif self.h11 is None and not self._is_importing:
            self._is_importing = True
            self.runtime.offload(_import_ahead, self._imported)

    def disconnected(self, connection: HttpConnection) -> None:
        self._served.pop(connection, None)
        self._surplus.pop(connection, None)

    def page(self, request: HttpRequest, connection: HttpConnection) -> HttpResponse | Awaitable[HttpResponse]:
        if connection in self._surplus:
            if not self._has_room:
                why = f"{CONNECTIONS_MAX} connections are open already"
                return Problem(503, "too-many-connections", why, headers=(("Connection", "close"),)).response()
            self._served[connection] = self._surplus.pop(connection)
        try:
            self._access.check(request)
        except Problem as problem:
            return problem.response()
        assert self._router is not None, "it was imported with h11"
        return self._router.answer(request)

    def refusal(self, status: int, why: str) -> HttpResponse:
        return Problem(status, "refused", why).response()

    @property
    def _has_room(self) -> bool:
        waiting = 0 if self._router is None else self._router.service.waiting
        return len(self._served) - waiting < CONNECTIONS_MAX

    def _accepted(self) -> HttpConnection:
        return HttpConnection(self)

    def _imported(self) -> None:
        h11 = self.h11 = import_module("h11")
        self._router = _import_what_serves()(self._bed, self.events, self._bed.hosted.log, self._scope)
        for connection in (*self._served, *self._surplus):
            connection.h11_imported(h11)


def _import_what_serves() -> "MadeRouter":
    import_module("h11")
    module, _, name = ROUTER.partition(":")
    router_of: MadeRouter = getattr(import_module(module), name)
    return router_of


async def opened_for_fixtures(bed: Testbed, token: str, scope: ControlScope | None = None) -> ControlListener:
    """On a free port of this machine, for handles in other processes. On the loop of the brokers; raises StartError."""
    control = ControlListener(bed, ControlAccess(token), scope, FIXTURE_BODY_BYTES_MAX)
    await control.open(Address(LOOPBACK, 0))
    return control


def _bound_socket(path: Path) -> socket.socket:
    """For the owner alone. A socket that was left by a process which has ended gives way. Raises OSError."""
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
        path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        bound.close()
        raise
    return bound


def _answers(path: Path) -> bool:
    """Whether a process listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, suppress(OSError):
        asking.connect(str(path))
        return True
    return False


def _nothing() -> None:
    pass


def _import_ahead() -> None:
    _import_what_serves()
