"""One HTTP connection of the admin listener (docs/operators.md §2.3), or of another one with limits of its own.

h11 does the protocol, this class the bytes and the limits: by default GET and HEAD without a body, requests in order,
each within `REQUEST_TIMEOUT_MS`, no more read while one is answered. A page is a plain function, or a coroutine
function where the answer takes its time; the coroutine is a task that ends with the connection.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

from ottla.broker.logging import ADMIN_LOGGER
from ottla.broker.runtime import Runtime
from ottla.timer.wheel import TimerEntry

HEADERS_BYTES_MAX = 16 * 1024
RECEIVE_BYTES = 8 * 1024
# From the first byte of a request, or from the beginning of the connection, to the end of the request.
REQUEST_TIMEOUT_MS = 5_000
# A scraper that comes every half minute keeps its connection.
IDLE_TIMEOUT_MS = 75_000
RESPONSE_TIMEOUT_MS = 30_000

# Of a body that is too large so much is read and left out, so that its client gets to the answer.
DISCARDED_BYTES_MAX = 16 << 20

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class HttpRequest(NamedTuple):
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By name in lower case; of several with one name, the last."""
    method: str = "GET"
    body: bytes = b""


class HttpRest(Protocol):
    """The rest of a body that is too large to be in memory whole."""

    size: int
    """Of all of it, in bytes."""

    def read(self) -> bytes:
        """The next piece, and nothing at the end. Raises OSError."""
        ...

    def close(self) -> None:
        """It is read no further."""
        ...


class HttpResponse(NamedTuple):
    status: int
    body: Sequence[bytes]
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    rest: HttpRest | None = None
    """What follows `body`: it is read as its client takes it."""


Page = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


def sentence(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, (f"{text}\n".encode(),))


class HttpLimits(NamedTuple):
    """What a listener takes; the defaults are the admin listener's."""

    methods: tuple[str, ...] = ("GET", "HEAD")
    body_bytes_max: int = 0
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    """From the first byte of a request to its end."""
    response_timeout_ms: int = RESPONSE_TIMEOUT_MS
    notices_end: bool = False
    """Whether a client that closes its connection ends the answer that it waits for."""


class HttpOwner(Protocol):
    """The listener, as its connections know it."""

    runtime: Runtime
    limits: HttpLimits
    h11: ModuleType | None
    """None until it has been imported; the listener then calls `h11_imported` of every connection."""

    def connected(self, connection: "HttpConnection") -> None: ...

    def disconnected(self, connection: "HttpConnection") -> None: ...

    def page(self, request: HttpRequest, connection: "HttpConnection") -> HttpResponse | Awaitable[HttpResponse]: ...

    def refusal(self, status: int, why: str) -> HttpResponse:
        """Of what is no request for a page, and where a page failed."""
        ...


class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, owner: HttpOwner) -> None:
        self._owner = owner
        self._runtime = owner.runtime
        self._limits = owner.limits
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        # Over TLS, nothing can be sent before.
        self._has_received = False
        # Received before h11 was there.
        self._early = b""
        self._h11: Any = None
        self._transport: asyncio.Transport | None = None
        self._timer: TimerEntry | None = None
        self._task: asyncio.Task[None] | None = None
        # The request that arrives, and its body so far.
        self._request: Any = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        # Received while a request is answered.
        self._ahead_bytes = 0
        # No request has begun to arrive since the last one was answered.
        self._is_idle = False
        self._is_answering = False
        self._is_closing = False
        self._is_head = False
        # The client has not read all of the last response.
        self._has_unread = False
        self._rest: HttpRest | None = None
        self._rest_bytes = 0

    @property
    def has_certificate(self) -> bool:
        """Whether the client has shown one that an authority vouches for."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return tls is not None and tls.getpeercert(binary_form=True) is not None

    @property
    def is_answering(self) -> bool:
        """Whether its client waits for an answer."""
        return self._is_answering

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._arm(self._limits.request_timeout_ms)
        self._owner.connected(self)
        if self._owner.h11 is not None:
            self.h11_imported(self._owner.h11)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - nothing depends on why
        self._is_closing = True
        self._stop()
        self._owner.disconnected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - a request is short
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._has_received = True
        received = bytes(self._buffer[:nbytes])
        if self._h11 is None:
            self._early += received
            if len(self._early) > HEADERS_BYTES_MAX and self._transport is not None:
                self._transport.pause_reading()
            return
        self._receive(received)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._has_unread = True

    def resume_writing(self) -> None:
        self._has_unread = False
        if self._is_answering and self._task is None:
            self._go_on()

    def h11_imported(self, h11: ModuleType) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_BYTES_MAX)
        early, self._early = self._early, b""
        if early and self._transport is not None:
            self._transport.resume_reading()
            self._receive(early)

    def close(self) -> None:
        """Sends what is ready, within `RESPONSE_TIMEOUT_MS`."""
        if self._is_closing or self._transport is None:
            return
        self._is_closing = True
        self._transport.close()
        self._arm(RESPONSE_TIMEOUT_MS)

    def abort(self) -> None:
        self._is_closing = True
        self._stop()
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _receive(self, data: bytes) -> None:
        if self._is_idle:
            self._is_idle = False
            self._arm(self._limits.request_timeout_ms)
        if self._is_answering:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > HEADERS_BYTES_MAX and self._transport is not None:
                self._transport.pause_reading()
        h11 = self._owner.h11
        assert h11 is not None, "h11 is there before its connections"
        try:
            if data:
                self._h11.receive_data(data)
            self._advance(h11)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _advance(self, h11: Any) -> None:
        """Answers the next request, if it is complete. Raises h11.RemoteProtocolError."""
        while not self._is_answering and not self._is_closing:
            event = self._h11.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.ConnectionClosed):
                self.close()
            elif isinstance(event, h11.Request):
                self._begin(h11, event)
            elif isinstance(event, h11.Data):
                self._take(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._answer()

    def _receive_more(self) -> None:
        """A request that came together with the one before is an event of its own."""
        if not self._is_closing:
            self._receive(b"")

    def _begin(self, h11: ModuleType, event: Any) -> None:
        """A request, to be answered when its body is there."""
        limits = self._limits
        # h11 bounds what is incomplete: headers whose end has come with them are as long as what was received.
        if sum(len(name) + len(value) for name, value in event.headers) + len(event.target) > HEADERS_BYTES_MAX:
            self._refuse(431, f"the headers of a request have at most {HEADERS_BYTES_MAX} bytes")
            return
        if str(event.method, "latin-1") not in limits.methods:
            allowed = ", ".join(limits.methods)
            what = "only GET and HEAD are" if limits.methods == ("GET", "HEAD") else f"one of {allowed} is"
            self._refuse(405, f"{what} served here", ("Allow", allowed))
            return
        headers = _headers_of(event)
        length = int(headers.get("content-length", "0"))
        has_body = "transfer-encoding" in headers or length > 0
        if has_body and not limits.body_bytes_max:
            self._refuse(413, "a request has no body here")
            return
        waits = self._h11.they_are_waiting_for_100_continue
        if length > (limits.body_bytes_max if waits else DISCARDED_BYTES_MAX):
            self._refuse(413, self._too_large())
            return
        if waits and self._transport is not None:
            self._transport.write(self._h11.send(h11.InformationalResponse(status_code=100, headers=[])))
        self._request = event
        self._body, self._body_bytes = [], 0

    def _take(self, data: bytes) -> None:
        """More of the body."""
        self._body_bytes += len(data)
        if self._body_bytes <= self._limits.body_bytes_max:
            self._body.append(bytes(data))
            return
        self._body = []
        if self._body_bytes > DISCARDED_BYTES_MAX:
            self._refuse(413, self._too_large())

    def _too_large(self) -> str:
        return f"the body of a request has at most {self._limits.body_bytes_max} bytes"

    def _answer(self) -> None:
        event, self._request = self._request, None
        headers = _headers_of(event)
        self._is_answering = True
        self._is_head = event.method == b"HEAD"
        self._ahead_bytes = 0
        if self._transport is not None and not self._limits.notices_end:
            self._transport.pause_reading()
        self._arm(self._limits.response_timeout_ms)
        if self._body_bytes > self._limits.body_bytes_max:
            self._respond(self._owner.refusal(413, self._too_large()))
            return
        body, self._body = b"".join(self._body), []
        path, _, text = str(event.target, "latin-1").partition("?")
        fields = (item.partition("=") for item in text.split("&") if item)
        query = {name: value for name, _, value in fields}
        try:
            request = HttpRequest(path, query, headers, str(event.method, "latin-1"), body)
            response = self._owner.page(request, self)
        except Exception:
            self._runtime.log.logger(ADMIN_LOGGER).exception("a page of the admin listener failed", path=path)
            response = self._owner.refusal(500, "this page failed, the log says why")
        if isinstance(response, HttpResponse):
            self._respond(response)
        else:
            self._task = self._runtime.start_task(self._respond_later(path, response), f"admin {path}")

    async def _respond_later(self, path: str, response: Awaitable[HttpResponse]) -> None:
        try:
            made = await response
        except Exception:
            self._runtime.log.logger(ADMIN_LOGGER).exception("a page of the admin listener failed", path=path)
            made = self._owner.refusal(500, "this page failed, the log says why")
        self._task = None
        if not self._is_closing:
            self._respond(made)
        elif made.rest is not None:
            made.rest.close()

    def _refuse(self, status: int, why: str, *headers: tuple[str, str]) -> None:
        """The last response: what follows the request cannot be distinguished from its body."""
        if self._is_closing:
            return
        h11 = self._owner.h11
        assert h11 is not None, "h11 is there before its connections"
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(self._owner.refusal(status, why)._replace(headers=(*headers, ("Connection", "close"))))
        self.close()

    # Responses.

    def _respond(self, response: HttpResponse) -> None:
        self._send(response)
        if not self._has_unread:
            self._go_on()

    def _go_on(self) -> None:
        """The client has what was sent: more of the response, or the next request."""
        if self._rest is None:
            self._end_response()
        else:
            # Others have their turn between two pieces.
            self._runtime.soon(self._send_piece)

    def _send(self, response: HttpResponse) -> None:
        h11 = self._owner.h11
        assert h11 is not None, "h11 is there before its connections"
        assert self._transport is not None, "a connection that has a request has its transport"
        headers = [
            ("Date", _http_date(self._runtime.clock.wall_ms())),
            ("Content-Type", response.content_type),
            (
                "Content-Length",
                str(sum(map(len, response.body)) + (0 if response.rest is None else response.rest.size)),
            ),
            ("Cache-Control", "no-store"),
            *response.headers,
        ]
        pieces = [self._h11.send(h11.Response(status_code=response.status, headers=headers))]
        if not self._is_head:
            pieces += [self._h11.send(h11.Data(data=piece)) for piece in response.body if piece]
        self._rest = response.rest
        if self._rest is None or self._is_head:
            self._close_rest()
            pieces.append(self._h11.send(h11.EndOfMessage()))
        else:
            self._rest_bytes = self._rest.size
        self._transport.write(b"".join(piece for piece in pieces if piece))

    def _send_piece(self) -> None:
        """Of what is left of the response. A client that does not get all of it finds its connection broken."""
        if self._rest is None or self._is_closing or self._transport is None:
            return
        h11 = self._owner.h11
        assert h11 is not None, "h11 is there before its connections"
        try:
            piece = self._rest.read()[: self._rest_bytes]
        except OSError:
            piece = b""
        self._rest_bytes -= len(piece)
        if not piece and self._rest_bytes:
            self.abort()
            return
        pieces = [self._h11.send(h11.Data(data=piece))] if piece else []
        if not self._rest_bytes:
            self._close_rest()
            pieces.append(self._h11.send(h11.EndOfMessage()))
        self._transport.write(b"".join(piece for piece in pieces if piece))
        if not self._has_unread:
            self._go_on()

    def _close_rest(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()

    def _end_response(self) -> None:
        """The client has read it: on to the next request."""
        self._is_answering = False
        h11 = self._owner.h11
        if self._is_closing or h11 is None or self._transport is None:
            return
        if self._h11.our_state is h11.MUST_CLOSE:
            self.close()
            return
        self._h11.start_next_cycle()
        self._is_idle = True
        self._arm(IDLE_TIMEOUT_MS)
        self._transport.resume_reading()
        if self._h11.trailing_data[0]:
            self._runtime.soon(self._receive_more)

    # Time.

    def _arm(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._runtime.schedule(wait_ms, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        if self._is_closing or self._is_answering or self._is_idle or not self._has_received or self._h11 is None:
            self.abort()
        else:
            self._refuse(408, f"the request was not complete after {self._limits.request_timeout_ms // 1000} s")

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._close_rest()


def _headers_of(event: Any) -> dict[str, str]:
    return {str(name, "latin-1"): str(value, "latin-1") for name, value in event.headers}


def _http_date(wall_ms: int) -> str:
    """Of RFC 9110; `time.strftime` would follow the locale."""
    at = time.gmtime(wall_ms // 1000)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
