"""A connection to another broker, as its client: one request at a time, and its answer in a buffer that is used again.

Records in an answer are parts of the receive buffer. They are the caller's until it asks for something else, so what a
follower appends goes from there to the log as it came.

Where the listener of the other broker has SASL, the connection begins with a login. A session that has a lifetime is
renewed before it ends, between two requests.

Brokers of one cluster speak the same versions; which ones is fixed here.
"""

import asyncio
import secrets
from functools import partial
from typing import Any

from ottla.broker.runtime import Runtime
from ottla.broker.server.network import Network, ReceiveThreshold, SocketOptions
from ottla.cluster.image import MetadataImage
from ottla.protocol.address import Address
from ottla.protocol.client import SIZE_BYTES, UnexpectedResponseError, WireClient
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message
from ottla.security.authentication import AuthenticationError
from ottla.security.client import NONCE_BYTES, LoginCredentials
from ottla.security.client_login import LOGIN_VERSIONS, ClientLogin, renewal_ms
from ottla.timer.wheel import TimerEntry

VERSIONS: dict[type[Message], int] = {
    AddPartitionsToTxnRequest: 5,
    FetchRequest: 17,
    ListOffsetsRequest: 7,
    OffsetForLeaderEpochRequest: 4,
    ProduceRequest: 11,
    WriteTxnMarkersRequest: 2,
    **LOGIN_VERSIONS,
}

# What the client ids of brokers begin with.
BROKER_CLIENT_ID = "broker-"
SMALLEST_BUFFER = 64 * 1024
# A larger buffer is let go after its answer: a broker that has caught up does not need it for a long time.
KEPT_BUFFER_MAX = 5 * 1024 * 1024
# After so many answers in a row that fit into the smallest one, so is any: an idle follower asks twice a second.
SMALL_ANSWERS_MAX = 20
# Of a long answer that much is waited for at once; of a shorter one, all.
RECEIVED_AT_ONCE = 1024 * 1024
# What an answer may have beside its records.
ANSWER_OVERHEAD_MAX = 16 * 1024 * 1024


class PeerError(Exception):
    """No answer came, or none that can be read: one sentence."""


def address_of_peer(image: MetadataImage, node_id: int, listener: str) -> Address:
    """Where a broker listens for others, by the name of that listener. Raises PeerError if it is not alive."""
    broker = image.brokers.get(node_id)
    if broker is None or not broker.is_live:
        raise PeerError(f"broker {node_id} is not alive")
    return Address(*broker.endpoint(listener))


class Peer(asyncio.BufferedProtocol):
    """`await connect()` first. After a PeerError the connection is closed and not used again."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        address: Address,
        client_id: str,
        options: SocketOptions,
        login: LoginCredentials | None,
    ) -> None:
        """`login`: None where the listener at the address has no SASL."""
        config = runtime.config
        self._runtime = runtime
        self._network = network
        self._address = address
        self._wire = WireClient(client_id)
        self._options = options
        self._login = login
        # When the session is to be renewed; None: it does not end.
        self._renewal_ms: int | None = None
        self._has_answered = False
        self._timeout_ms = config.replica_socket_timeout_ms
        self._answer_bytes_max = (
            config.replica_fetch_response_max_bytes + config.socket_request_max_bytes + ANSWER_OVERHEAD_MAX
        )
        self._transport: asyncio.Transport | None = None
        self._threshold: ReceiveThreshold | None = None
        self._buffer = memoryview(bytearray(SMALLEST_BUFFER))
        self._filled = 0
        self._small_answers = 0
        # Of the answer that is arriving, its size field included; 0 before that is known.
        self._size = 0
        self._answer: asyncio.Future[memoryview] | None = None
        self._deadline_ms = 0
        # Runs from one deadline to the one that holds by then: setting it again for each request would cost more.
        self._timer: TimerEntry | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def connect(self) -> None:
        """Raises PeerError."""
        host, port = self._address
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                self._transport = await self._network.connect(lambda: self, host, port)
        except TimeoutError:
            raise PeerError(f"no connection within {self._timeout_ms} ms") from None
        except OSError as error:
            raise PeerError(f"no connection: {error.strerror or error}") from None
        self._options.apply(self._transport)
        self._threshold = ReceiveThreshold(self._transport)
        if self._login is not None:
            await self._log_in()

    async def _log_in(self) -> None:
        """Raises PeerError. It closes the connection whatever it raises: the caller of `connect` has not got it yet."""
        credentials = self._login
        assert credentials is not None, "only where the other side has SASL"
        self._renewal_ms = None
        try:
            login = ClientLogin(credentials, secrets.token_hex(NONCE_BYTES))
            request: Message | None = login.begin()
            while request is not None:
                answer = await self.ask(request)
                # The proof of a password takes thousands of hashes.
                request = await self._runtime.in_thread(partial(login.respond, answer))
        except (AuthenticationError, PeerError) as error:
            self.close()
            raise PeerError(f"no login as {credentials.user}: {error}") from None
        except BaseException:
            self.close()
            raise
        wait_ms = renewal_ms(login.lifetime_ms, self._runtime.rng.random())
        if wait_ms is not None:
            self._renewal_ms = self._runtime.login_clock.now_ms() + wait_ms

    async def ask(self, request: Any) -> Any:
        """The answer to `request`, in the version that brokers speak. Raises PeerError."""
        if self._renewal_ms is not None and self._runtime.login_clock.now_ms() >= self._renewal_ms:
            await self._log_in()
        assert self._answer is None, "one request at a time"
        transport = self._transport
        if transport is None or transport.is_closing():
            raise PeerError("the connection is closed")
        self._small_answers = self._small_answers + 1 if self._size < SMALLEST_BUFFER else 0
        self._filled = self._size = 0
        if len(self._buffer) > (SMALLEST_BUFFER if self._small_answers > SMALL_ANSWERS_MAX else KEPT_BUFFER_MAX):
            self._buffer = memoryview(bytearray(SMALLEST_BUFFER))
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._deadline_ms = self._runtime.clock.now_ms() + self._timeout_ms
        if self._timer is None:
            self._timer = self._runtime.wheel.schedule(self._deadline_ms, self._check_deadline)
        try:
            transport.write(self._wire.send(request, VERSIONS[type(request)]))
            payload = await answer
        finally:
            self._answer = None
        try:
            return self._wire.receive(payload)
        except UnexpectedResponseError as error:
            self.close()
            raise PeerError(str(error)) from None
        except DecodeError as error:
            self.close()
            raise PeerError(f"malformed response to {type(request).__name__}: {error}") from None

    def _check_deadline(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        if self._runtime.clock.now_ms() < self._deadline_ms:
            self._timer = self._runtime.wheel.schedule(self._deadline_ms, self._check_deadline)
        else:
            self._fail(f"no answer within {self._timeout_ms} ms")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(PeerError(why))

    # What the transport calls.

    def connection_lost(self, exc: Exception | None) -> None:
        why = exc or "closed by the other side"
        if exc is None and not self._has_answered and self._login is None:
            why = f"{why} before its first answer, as by a listener that wants a login (SASL)"
        self._fail(f"the connection was lost: {why}")

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the answer's size matters more
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._answer is None or self._answer.done():
            self._fail("bytes came that were not asked for")
            return
        if not self._size and self._filled >= SIZE_BYTES:
            self._learn_size()
        if not self._size:
            return
        missing = self._size - self._filled
        if missing < 0:
            self._fail("bytes came that were not asked for")
            return
        if self._threshold is not None:
            self._threshold.set(min(missing, RECEIVED_AT_ONCE) or 1)
        if not missing:
            self._answer.set_result(self._buffer[SIZE_BYTES : self._size])

    def _learn_size(self) -> None:
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        if not SIZE_BYTES <= size <= self._answer_bytes_max:
            self._fail(f"an answer of {size} bytes, at most {self._answer_bytes_max} allowed")
            return
        self._size = SIZE_BYTES + size
        self._has_answered = True
        # There is always room for a byte too many, so that it is seen.
        if self._size >= len(self._buffer):
            larger = memoryview(bytearray(self._size + 1))
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger


class KeptPeer:
    """A connection that is kept from one request to the next, and made again where it is lost or the broker has
    another address."""

    def __init__(self, runtime: Runtime, network: Network, login: LoginCredentials | None, purpose: str) -> None:
        """`purpose` names the connection for the other side; `login` as that of `Peer`."""
        self._runtime = runtime
        self._network = network
        self._login = login
        self._client_id = f"{BROKER_CLIENT_ID}{runtime.node_id}-{purpose}"
        self._peer: Peer | None = None
        self._address: Address | None = None

    async def connected(self, address: Address) -> Peer:
        """Raises PeerError."""
        if self._peer is not None and self._peer.is_open and self._address == address:
            return self._peer
        self.close()
        peer = self._peer = Peer(self._runtime, self._network, address, self._client_id, SocketOptions(), self._login)
        self._address = address
        await peer.connect()
        return peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
