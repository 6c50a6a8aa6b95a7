"""One connection to one broker, whichever Kafka-protocol broker that is.

A connection begins with ApiVersions; from then on every request travels in the highest version that both sides speak. A
login comes next, where there is one. A session that has a lifetime is renewed before it ends, between two requests.
"""

import asyncio
import contextlib
import secrets
import socket
import ssl
import struct
from random import random
from typing import TypeVar

from ottla.cli.failures import ClientError, LoginFailed, NoAnswer
from ottla.protocol.address import Address
from ottla.protocol.client import UnexpectedResponseError, WireClient, parse_response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message
from ottla.security.authentication import AuthenticationError
from ottla.security.client import NONCE_BYTES, LoginCredentials
from ottla.security.client_login import LOGIN_VERSIONS, NO_SASL, ClientLogin, renewal_ms

CLIENT_ID = "ottla"
RESPONSE_SIZE_MIN = 6
# Describing a cluster of many thousand partitions takes a few megabytes; a size above this is another protocol's bytes.
RESPONSE_SIZE_MAX = 256 * 1024 * 1024
# A TLS record begins with its type and a version whose first byte is 3.
TLS_RECORD_TYPES = {0x14, 0x15, 0x16}
# Where ApiVersions was answered, and the next request was not.
WANTS_LOGIN = (
    " at the first request, as a listener does that wants a login (SASL): give --user and --password-file, or "
    "--command-config"
)

_IN_HANDSHAKE = " in the TLS handshake, as what speaks no TLS does"

Response = TypeVar("Response", bound=Message)


class BrokerConnection:
    """Requests of one connection are sent one after another; `open` it, `ask`, `close`."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._wire = WireClient(CLIENT_ID)
        # The lowest and the highest version of each request that the broker knows, by API key.
        self.ranges: dict[int, tuple[int, int]] = {}
        # By the name of a feature, the highest level that the broker knows, and the one the cluster has agreed on.
        self.supported_features: dict[str, int] = {}
        self.finalized_features: dict[str, int] = {}
        self._turn = asyncio.Lock()
        self._login: LoginCredentials | None = None
        # When the session is to be renewed, by the clock of the loop; None: it does not end.
        self._renewal_s: float | None = None
        # What it means if the broker closes the connection now.
        with_tls = writer.get_extra_info("ssl_object") is not None
        self._when_closed = "" if with_tls else "; is it a Kafka-protocol listener without TLS?"

    @classmethod
    async def open(
        cls,
        address: Address,
        timeout_s: float,
        login: LoginCredentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "BrokerConnection":
        """Connect, agree on versions, and log in if that is wanted; with TLS, if there is something for it. Raises
        ClientError when there is no broker that answers, and LoginFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        except ssl.SSLError as error:
            raise ClientError(_no_tls(address, error)) from None
        except ConnectionResetError:
            raise NoAnswer(f"cannot reach {address}: it closes the connection{_IN_HANDSHAKE}") from None
        except TimeoutError:
            raise NoAnswer(f"cannot reach {address}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise NoAnswer(f"cannot reach {address}: {_reason(error)}") from error
        connection = cls(address, reader, writer)
        try:
            await connection._agree_on_versions(timeout_s)
            if login is not None:
                await connection.log_in(login, timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def log_in(self, credentials: LoginCredentials, timeout_s: float) -> None:
        """Before the first request. Raises LoginFailed, and NoAnswer; the connection is of no use then."""
        async with self._turn:
            self._login = credentials
            await self._authenticate(credentials, timeout_s)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def version_for(self, message: type[Message], *, highest: int | None = None) -> int | None:
        """The highest version of a request that both sides speak, or None."""
        lowest_ours, highest_ours = message.VERSIONS
        if highest is not None:
            highest_ours = min(highest_ours, highest)
        theirs = self.ranges.get(message.API_KEY)
        if theirs is None:
            return None
        version = min(highest_ours, theirs[1])
        return version if version >= max(lowest_ours, theirs[0]) else None

    async def ask(
        self, request: Message, answer: type[Response], timeout_s: float, *, highest: int | None = None
    ) -> Response:
        """Send a request and return its response. Raises NoAnswer when the connection fails or time runs out."""
        version = self.version_for(type(request), highest=highest)
        if version is None:
            name = type(request).__name__.removesuffix("Request")
            raise ClientError(f"{self.address} does not offer {name} in a version that this command speaks")
        async with self._turn:
            if self._login is not None and self._is_renewal_due():
                await self._authenticate(self._login, timeout_s)
            payload = await self._exchange(request, version, timeout_s)
        self._when_closed = ""
        return self._parse(answer, version, payload)

    def _is_renewal_due(self) -> bool:
        return self._renewal_s is not None and asyncio.get_running_loop().time() >= self._renewal_s

    async def _authenticate(self, credentials: LoginCredentials, timeout_s: float) -> None:
        user = credentials.user
        self._when_closed = f" during the login of {user}"
        try:
            login = ClientLogin(credentials, secrets.token_hex(NONCE_BYTES))
            request: SaslHandshakeRequest | SaslAuthenticateRequest | None = login.begin()
            while request is not None:
                answer = await self._login_answer(request, timeout_s)
                request = await asyncio.to_thread(login.respond, answer)
        except AuthenticationError as error:
            raise LoginFailed(f"cannot log in to {self.address} as {user}: {error}") from None
        wait_ms = renewal_ms(login.lifetime_ms, random())
        self._renewal_s = None if wait_ms is None else asyncio.get_running_loop().time() + wait_ms / 1000
        self._when_closed = ""

    async def _login_answer(
        self, request: SaslHandshakeRequest | SaslAuthenticateRequest, timeout_s: float
    ) -> SaslHandshakeResponse | SaslAuthenticateResponse:
        is_handshake = isinstance(request, SaslHandshakeRequest)
        version = self.version_for(type(request))
        if version is None or (is_handshake and version < LOGIN_VERSIONS[SaslHandshakeRequest]):
            raise AuthenticationError(NO_SASL)
        payload = await self._exchange(request, version, timeout_s)
        if is_handshake:
            return self._parse(SaslHandshakeResponse, version, payload)
        return self._parse(SaslAuthenticateResponse, version, payload)

    async def _agree_on_versions(self, timeout_s: float) -> None:
        """Ask in our newest version; a broker that does not know it says so in version 0 and keeps the connection."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        version = ApiVersionsRequest.VERSIONS[1]
        payload = await self._exchange(request, version, timeout_s)
        if _error_code(payload) == ErrorCode.UNSUPPORTED_VERSION:
            version = max(0, min(version - 1, _version_offered(payload)))
            payload = await self._exchange(request, version, timeout_s)
        response = self._parse(ApiVersionsResponse, version, payload)
        if response.error_code != ErrorCode.NONE:
            raise ClientError(f"{self.address} refuses ApiVersions requests (error {response.error_code})")
        self.ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.supported_features = {row.name: row.max_version for row in response.supported_features}
        self.finalized_features = {row.name: row.max_version_level for row in response.finalized_features}
        self._when_closed = WANTS_LOGIN

    async def _exchange(self, request: Message, version: int, timeout_s: float) -> bytes:
        """Send a request and return the answer to it, without its size."""
        frame = self._frame(request, version)
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(frame)
                await self._writer.drain()
                return await self._read_frame()
        except TimeoutError:
            raise NoAnswer(f"{self.address} did not answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise ClientError(_no_tls(self.address, error)) from None
        except (OSError, asyncio.IncompleteReadError):
            raise NoAnswer(f"{self.address} closed the connection{self._when_closed}") from None

    def _frame(self, request: Message, version: int) -> bytes:
        """Its numbers and texts are those of the command line."""
        try:
            return self._wire.send(request, version)
        except struct.error:
            why = "a number in it is larger than Kafka's protocol can say, or a text longer"
        except UnicodeEncodeError:
            why = "a text in it is not UTF-8"
        raise ClientError(f"{type(request).__name__.removesuffix('Request')} cannot be asked: {why}")

    async def _read_frame(self) -> bytes:
        head = await self._reader.readexactly(4)
        size = int.from_bytes(head, "big")
        if head[0] in TLS_RECORD_TYPES and head[1] == 3:
            raise ClientError(f"{self.address} speaks TLS: give --ca, --tls or --command-config")
        if head == b"HTTP":
            raise ClientError(f"{self.address} speaks HTTP, not Kafka's protocol")
        if not RESPONSE_SIZE_MIN <= size <= RESPONSE_SIZE_MAX:
            raise ClientError(f"{self.address} does not speak Kafka's protocol")
        payload = await self._reader.readexactly(size)
        try:
            self._wire.match(payload)
        except UnexpectedResponseError as error:
            raise ClientError(f"{self.address} does not speak Kafka's protocol: {error}") from None
        return payload

    def _parse(self, answer: type[Response], version: int, payload: bytes) -> Response:
        try:
            # librdkafka's mock cluster sends a few bytes more than the message.
            return parse_response(answer, version, payload, allows_trailing_bytes=True)
        except DecodeError as error:
            name = answer.__name__
            raise ClientError(f"{self.address} sent a {name} that is not Kafka's version {version}: {error}") from error


def _version_offered(refusal: bytes) -> int:
    """The version of ApiVersions that a broker knows, as its refusal of another says; 0, which all know, if it does not
    say so in the way of Kafka (librdkafka's mock cluster answers in a layout of its own)."""
    try:
        rows = parse_response(ApiVersionsResponse, 0, refusal, allows_trailing_bytes=True).api_keys
    except DecodeError:
        return 0
    return next((row.max_version for row in rows if row.api_key == ApiVersionsRequest.API_KEY), 0)


def _error_code(payload: bytes) -> int:
    """The error code of an ApiVersions response, which stands at the same place in every version."""
    return int.from_bytes(payload[4:6], "big", signed=True)


def _no_tls(address: Address, error: ssl.SSLError) -> str:
    from ottla.security.tls_failure import tls_failure

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"cannot trust {address}: {error.verify_message}; --ca names the file with the authority to trust"
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"{address} does not speak TLS"
    return f"no TLS with {address}: {tls_failure(error)}"


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "nothing listens there"
    return (error.strerror or str(error)).lower()
