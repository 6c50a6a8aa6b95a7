"""Requests to etcd's JSON gateway: which endpoint, whether again, and as whom.

One endpoint is asked after the other until one answers. Where there is a login, etcd gives a token for user and
password, which goes with each request until etcd refuses it: tokens expire, a member that was restarted knows none, and
with a change of users all are void. Then there is a new one, and the request, which was not done, is repeated.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from ottla.cluster.etcd_errors import (
    Doubtful,
    NoEntry,
    NotDone,
    NotServed,
    PermissionDenied,
    TokenEnded,
    Unanswered,
    failure_of,
    is_wrong_password,
    needs_no_login,
    reason_of,
    refused_connection,
    unreadable,
)
from ottla.cluster.etcd_wire import Json, revision_of
from ottla.security.client import Secret

TRY_TIMEOUT_S = 2.0
_CONNECT_TIMEOUT_S = 1.0
_BACKOFF_S = 0.2
_AUTHORIZATION = "Authorization"
# Of an etcd that has no authentication enabled: not yet, where brokers are set up for it first.
_NO_TOKEN = ""

Headers = Mapping[str, str]
_NO_HEADERS: Headers = {}


class EtcdLogin(NamedTuple):
    """As whom etcd is asked."""

    user: str
    password: Secret


class _Failed(NamedTuple):
    """An endpoint has given no answer."""

    reason: str
    may_be_done: bool = False
    is_refusal: bool = False
    """It will not either with the certificates that both sides have."""
    is_timeout: bool = False


class EtcdGateway:
    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        *,
        tls: ssl.SSLContext | None,
        login: EtcdLogin | None,
        timeout_s: float,
        reachable: Callable[[bool, str], None] | None,
    ) -> None:
        """`tls`: of a client; None: without TLS. `reachable` is called when etcd cannot be reached any more, and why,
        and when it can."""
        assert endpoints, "at least one endpoint is needed"
        self._addresses = ", ".join(f"{host}:{port}" for host, port in endpoints)
        scheme = "http" if tls is None else "https"
        self._urls = [f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v3/" for host, port in endpoints]
        self._at = 0
        self._tls = tls
        self._login = login
        self._token: str | None = None
        self._logging_in = asyncio.Lock()
        self._timeout_s = timeout_s
        self._reachable = reachable
        self._was_reachable = True
        self._http: aiohttp.ClientSession | None = None
        self._is_closed = False
        # The latest revision in any answer.
        self.revision_seen = 0

    @property
    def url(self) -> str:
        return self._urls[self._at]

    async def close(self) -> None:
        self._is_closed = True
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    # Asking.

    async def ask(
        self,
        path: str,
        request: Json,
        deadline: float,
        try_timeout_s: float = TRY_TIMEOUT_S,
        *,
        repeatable: bool = True,
    ) -> Json:
        """Ask the endpoints in turn until one answers. What is not `repeatable` is sent once at most, unless etcd says
        that it has not done it. `deadline` is by the loop's clock.

        Raises Unanswered, NoEntry, NotFound."""
        reason = ""
        refusing: set[str] = set()
        while True:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                why = reason or "it was not asked in time"
                raise Unanswered(f"etcd at {self._addresses} did not answer within {self._timeout_s:g} s: {why}")
            url = self.url
            found = await self._try(url, path, request, min(left, try_timeout_s))
            if not isinstance(found, _Failed):
                self.note_reachable()
                self.revision_seen = max(self.revision_seen, revision_of(found.get("result", found)))
                return found
            if not reason or not found.is_timeout or left >= try_timeout_s:
                # A last try that had little time shows less than those before.
                reason = found.reason
            await self.leave_endpoint(url, found.reason)
            if found.may_be_done and not repeatable:
                raise Unanswered(
                    f"etcd at {self._addresses} did not answer a transaction, which may have been done: {found.reason}"
                )
            if found.is_refusal:
                refusing.add(url)
            if len(refusing) == len(self._urls):
                raise NoEntry(f"etcd at {self._addresses} cannot be used: {reason}")

    async def _try(self, url: str, path: str, request: Json, timeout_s: float) -> "Json | _Failed":
        """One endpoint; twice where a token has come to its end. Raises Unanswered, NoEntry, NotFound."""
        why = ""
        for _ in range(2):
            headers, was_sent = _NO_HEADERS, False
            try:
                async with asyncio.timeout(timeout_s):
                    headers = await self.headers()
                was_sent = True
                return await self._ask_one(url + path, request, headers, timeout_s)
            except TokenEnded as error:
                why = f"etcd: {error}"
                self.token_refused(headers)
            except NotDone as error:
                if not error.again:
                    raise Unanswered(str(error)) from error
                return _Failed(str(error))
            except PermissionDenied:
                raise NoEntry(self._denied()) from None
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotServed) as error:
                return _Failed(self.reason_of(error), is_refusal=refused_connection(error) is not None)
            except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, Doubtful) as error:
                is_refusal, is_timeout = refused_connection(error) is not None, isinstance(error, TimeoutError)
                return _Failed(self.reason_of(error), was_sent, is_refusal, is_timeout)
        return _Failed(why)

    async def _ask_one(self, url: str, request: Json, headers: Headers, timeout_s: float) -> Json:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S)
        async with self._session().post(url, data=json.dumps(request), headers=headers, timeout=timeout) as response:
            text = await response.read()
        if not text.startswith(b"{"):
            raise unreadable(text)
        answer: Json = json.loads(text)
        if answer.get("error") is not None:
            raise failure_of(answer)
        return answer

    @asynccontextmanager
    async def stream(self, url: str, path: str, request: Json) -> AsyncGenerator[tuple[aiohttp.StreamReader, Headers]]:
        """An answer that does not end, and as whom it was asked for."""
        async with asyncio.timeout(TRY_TIMEOUT_S):
            headers = await self.headers()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
        data = json.dumps(request)
        async with self._session().post(url + path, data=data, headers=headers, timeout=timeout) as response:
            yield response.content, headers

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            if self._is_closed:
                raise Unanswered("the store is closed")
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket, ssl=self._tls or True)
            self._http = aiohttp.ClientSession(connector=connector)
        return self._http

    def reason_of(self, error: Exception) -> str:
        return reason_of(error, has_tls=self._tls is not None)

    # As whom.

    async def headers(self) -> Headers:
        """With the token, which is fetched where there is none. Raises what a request does, and NoEntry."""
        if self._login is None:
            return _NO_HEADERS
        # The first request logs in, for all.
        async with self._logging_in:
            if self._token is None:
                self._token = await self._logged_in(self._login)
        return {_AUTHORIZATION: self._token} if self._token != _NO_TOKEN else _NO_HEADERS

    def token_refused(self, headers: Headers) -> None:
        """That of `headers`: the next request has another one. Raises NoEntry where there is no login."""
        if self._login is None:
            raise NoEntry(
                f"etcd at {self._addresses} wants a login: set ottla.metadata.etcd.user and "
                "ottla.metadata.etcd.password"
            )
        if self._token == headers.get(_AUTHORIZATION, _NO_TOKEN):
            self._token = None

    async def _logged_in(self, login: EtcdLogin) -> str:
        request = {"name": login.user, "password": login.password.reveal()}
        try:
            answer = await self._ask_one(self.url + "auth/authenticate", request, _NO_HEADERS, TRY_TIMEOUT_S)
        except NotDone as error:
            if needs_no_login(error):
                return _NO_TOKEN
            if is_wrong_password(error):
                raise NoEntry(
                    f"etcd at {self._addresses} does not let user {login.user} in: unknown, or with another password"
                ) from None
            raise
        return str(answer["token"])

    def _denied(self) -> str:
        who = "everybody" if self._login is None else f"user {self._login.user}"
        return f"etcd at {self._addresses} denies {who} what a broker does: a role with readwrite is needed"

    # Which endpoint.

    def note_reachable(self) -> None:
        if not self._was_reachable:
            self._was_reachable = True
            self._report_reachable(True, "")

    async def leave_endpoint(self, url: str, reason: str) -> None:
        """Turn from an endpoint that has failed, if no other call has yet; after each round wait a little."""
        if url == self.url:
            self._at = (self._at + 1) % len(self._urls)
        if self._at == 0:
            if self._was_reachable:
                self._was_reachable = False
                self._report_reachable(False, reason)
            await asyncio.sleep(_BACKOFF_S)

    def _report_reachable(self, reachable: bool, reason: str) -> None:
        if self._reachable is not None:
            self._reachable(reachable, reason)


def _socket(address: Any) -> socket.socket:
    """An endpoint whose machine has vanished is noticed within seconds, on connections that only wait too."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
