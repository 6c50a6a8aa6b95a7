"""One connection to one broker, whichever Kafka-protocol broker that is.

A connection begins with ApiVersions; from then on every request travels in the highest version that both sides speak.
"""

import asyncio
import contextlib
import socket
from typing import TypeVar

from ottla.cli.failures import ClientError, NoAnswer
from ottla.protocol.address import Address
from ottla.protocol.client import UnexpectedResponseError, WireClient, parse_response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message

CLIENT_ID = "ottla"
RESPONSE_SIZE_MIN = 6
# Describing a cluster of many thousand partitions takes a few megabytes; a size above this is another protocol's bytes.
RESPONSE_SIZE_MAX = 256 * 1024 * 1024
# A TLS record begins with its type and a version whose first byte is 3.
TLS_RECORD_TYPES = {0x14, 0x15, 0x16}

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

    @classmethod
    async def open(cls, address: Address, timeout_s: float) -> "BrokerConnection":
        """Connect and agree on versions. Raises ClientError when there is no broker that answers."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            raise NoAnswer(f"cannot reach {address}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise NoAnswer(f"cannot reach {address}: {_reason(error)}") from error
        connection = cls(address, reader, writer)
        try:
            await connection._agree_on_versions(timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

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
        return self._parse(answer, version, await self._exchange(request, version, timeout_s))

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

    async def _exchange(self, request: Message, version: int, timeout_s: float) -> bytes:
        """Send a request and return the answer to it, without its size."""
        async with self._turn:
            frame = self._wire.send(request, version)
            try:
                async with asyncio.timeout(timeout_s):
                    self._writer.write(frame)
                    await self._writer.drain()
                    return await self._read_frame()
            except TimeoutError:
                raise NoAnswer(f"{self.address} did not answer within {timeout_s:g} s") from None
            except (OSError, asyncio.IncompleteReadError):
                raise NoAnswer(
                    f"{self.address} closed the connection; is it a Kafka-protocol listener without TLS and SASL?"
                ) from None

    async def _read_frame(self) -> bytes:
        head = await self._reader.readexactly(4)
        size = int.from_bytes(head, "big")
        if head[0] in TLS_RECORD_TYPES and head[1] == 3:
            raise ClientError(f"{self.address} speaks TLS, which this command does not")
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


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "nothing listens there"
    return (error.strerror or str(error)).lower()
