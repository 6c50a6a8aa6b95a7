"""Listeners with SASL in front of the brokers of this process.

Each connection meets the server's side of `ottla.security` first, and what it sends reaches its broker once it has
logged in; ApiVersions comes before. A login that is repeated, and the end of a session, are as on a listener of Kafka.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from ottla.broker.server.apis import APIS
from ottla.broker.server.network import TcpListener, TcpNetwork
from ottla.protocol.codec import decode_whole
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.authentication import PLAIN, AuthenticationError, Mechanism, PlainMechanism
from ottla.security.exchange import SaslExchange, SaslState, sentence_for_client
from ottla.security.scram import ScramMechanism
from ottla.security.scram_credential import SCRAM_MECHANISMS, ScramHash, credential_of, salted_password
from tests.fakes.frames import FrameBuffer, parse_request_header, response_frame

SALT = b"a salt of a user"
ITERATIONS = 4096
SASL_REQUESTS: dict[int, Any] = {cls.API_KEY: cls for cls in (SaslHandshakeRequest, SaslAuthenticateRequest)}
REQUEST_BYTES_MAX = 100 * 1024 * 1024


class SaslUser(NamedTuple):
    name: str
    password: str


def exchange_of(*users: SaslUser, lifetime_ms: int = 0, mechanisms: tuple[str, ...] | None = None) -> SaslExchange:
    """Of one connection, with all mechanisms unless some are named."""
    enabled = {
        name: make
        for name, make in (_mechanisms(users) | {PLAIN: lambda: _plain(users)}).items()
        if mechanisms is None or name in mechanisms
    }
    return SaslExchange(enabled, lambda _: lifetime_ms)


def _plain(users: tuple[SaslUser, ...]) -> Mechanism:
    return PlainMechanism({user.name: user.password.encode() for user in users})


def _mechanisms(users: tuple[SaslUser, ...]) -> dict[str, Callable[[], Mechanism]]:
    return {name: lambda scram=scram: _scram(scram, users) for name, scram in SCRAM_MECHANISMS.items()}


def _scram(scram: ScramHash, users: tuple[SaslUser, ...]) -> Mechanism:
    passwords = {user.name: user.password.encode() for user in users}

    def find(name: str) -> Any:
        if name not in passwords:
            return None
        return credential_of(scram, SALT, salted_password(scram, passwords[name], SALT, ITERATIONS), ITERATIONS)

    return ScramMechanism(scram, find, secrets.token_hex(16), b"a secret")


class SaslDoors:
    """What is asked of all who connect, and who came."""

    def __init__(
        self,
        *users: SaslUser,
        lifetime_ms: int = 0,
        mechanisms: tuple[str, ...] | None = None,
        must_log_in: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`must_log_in`: whether a client of that id has to."""
        self.must_log_in = must_log_in
        self.exchange = lambda: exchange_of(*users, lifetime_ms=lifetime_ms, mechanisms=mechanisms)
        self.logins: list[tuple[str, str]] = []
        """The client id and the user of each connection's first login."""
        self.renewals: list[str] = []
        """Client ids, of logins that came after another one."""
        self.failures: list[str] = []
        """Client ids, of logins and of connections without one."""
        self.requests_behind: list[str] = []
        """The client id of each request that came after a login."""

    def network(self) -> TcpNetwork:
        return _Network(self)


class _Network(TcpNetwork):
    def __init__(self, doors: SaslDoors) -> None:
        self._doors = doors

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, backlog: int
    ) -> TcpListener:
        def door() -> asyncio.BufferedProtocol:
            return cast("asyncio.BufferedProtocol", _Door(self._doors, protocol_factory()))

        return await super().listen(door, host, port, backlog=backlog)


class _Door(asyncio.Protocol):
    def __init__(self, doors: SaslDoors, behind: asyncio.BufferedProtocol) -> None:
        self._doors = doors
        self._behind = behind
        self._exchange = doors.exchange()
        self._frames = FrameBuffer(REQUEST_BYTES_MAX)
        self._expires_ms: int | None = None
        self._mechanism = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._behind.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            if self._transport.is_closing():
                return
            api_key = int.from_bytes(payload[:2], "big")
            if api_key in SASL_REQUESTS:
                self._transport.write(self._answer(payload))
            elif api_key == ApiVersionsRequest.API_KEY:
                self._transport.write(_versions(payload))
            elif self._may_pass(_client_id(payload)):
                self._pass(payload)
            else:
                self._doors.failures.append(_client_id(payload))
                self._transport.close()

    def _may_pass(self, client_id: str) -> bool:
        if self._exchange.state is not SaslState.COMPLETE:
            return not self._doors.must_log_in(client_id)
        self._doors.requests_behind.append(client_id)
        return self._expires_ms is None or _now_ms() <= self._expires_ms

    def _pass(self, payload: bytes) -> None:
        frame = len(payload).to_bytes(4, "big") + payload
        while frame:
            buffer = self._behind.get_buffer(len(frame))
            count = min(len(buffer), len(frame))
            buffer[:count] = frame[:count]
            self._behind.buffer_updated(count)
            frame = frame[count:]

    def _answer(self, payload: bytes) -> bytes:
        header = parse_request_header(payload, SASL_REQUESTS)
        request = decode_whole(SASL_REQUESTS[header.api_key], header.api_version, payload, header.body_offset)
        if isinstance(request, SaslHandshakeRequest):
            self._mechanism = request.mechanism
            error, mechanisms = self._exchange.handshake(request.mechanism, header.api_version, _now_ms())
            answer: Any = SaslHandshakeResponse(error_code=error, mechanisms=list(mechanisms))
        else:
            answer = self._authenticate(bytes(request.auth_bytes), _client_id(payload))
        return response_frame(answer, header.api_version, header.correlation_id)

    def _authenticate(self, token: bytes, client_id: str) -> SaslAuthenticateResponse:
        try:
            reply = self._exchange.respond(token, _now_ms(), 0)
        except AuthenticationError as error:
            self._doors.failures.append(client_id)
            asyncio.get_running_loop().call_soon(self._transport.close)
            sentence = sentence_for_client(error, self._mechanism)
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=sentence)
        if reply.session is not None:
            if self._expires_ms is None:
                self._doors.logins.append((client_id, reply.session.principal.name))
            else:
                self._doors.renewals.append(client_id)
            self._expires_ms = reply.session.expires_ms
        return SaslAuthenticateResponse(auth_bytes=reply.token, session_lifetime_ms=reply.lifetime_ms)


def _versions(payload: bytes) -> bytes:
    header = parse_request_header(payload, {ApiVersionsRequest.API_KEY: ApiVersionsRequest})
    ranges = {key: (api.lowest_advertised, api.max_version) for key, api in APIS.items()}
    ranges |= {key: cls.VERSIONS for key, cls in SASL_REQUESTS.items()}
    rows = [ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in ranges.items()]
    return response_frame(ApiVersionsResponse(api_keys=rows), header.api_version, header.correlation_id)


def _client_id(payload: bytes) -> str:
    return payload[10 : 10 + int.from_bytes(payload[8:10], "big")].decode()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
