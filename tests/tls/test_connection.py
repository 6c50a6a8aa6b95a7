"""One connection with TLS, in virtual time: cuts, floods, halves, and what waits."""

import ssl
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.config.listener_tls import tls_of_listener
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_memory import HANDSHAKES_BYTES_MAX, ConnectionMemory
from ottla.broker.server.tls_connection import (
    CIPHERTEXT_BYTES,
    ENCRYPTED_AT_ONCE,
    RECORD_BYTES,
    TlsConnection,
    ciphertext_buffer,
)
from ottla.broker.server.tls_listener import HANDSHAKE_TIMEOUT_MS, AcceptedTls, TlsListener, TlsShared
from ottla.protocol.messages.describe_cluster import DescribeClusterResponse
from tests.broker.sasl_world import ASK_FRAME, PLAINTEXT, SaslWorld
from tests.tls.brokers import BASE, of_listener
from tests.tls.certificates import Authority

CA = Authority()
SERVER = CA.issue("broker")
CONFIG = ServerConfig(
    BASE | of_listener("tls", keystore_key=SERVER.key_pem, keystore_certificate_chain=SERVER.chain_pem)
)
TLS = tls_of_listener(CONFIG, "TLS")
OF_CLIENTS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OF_CLIENTS.load_verify_locations(cadata=CA.pem)


class Socket:
    """What the layer writes to, and how it says that it is read no more."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.writes: list[int] = []
        self.protocol: Any = None
        self.is_reading = True
        self.is_closed = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.written += data
            self.writes.append(len(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """All is sent at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    abort = close


class TlsWorld(SaslWorld):
    """A listener with TLS, and clients that speak bytes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.server.runtime.config = CONFIG
        server = self.server
        self.handshakes = ConnectionMemory(HANDSHAKES_BYTES_MAX)
        self.listener = TlsListener(
            "TLS", TLS, TlsShared(server.runtime, server.turns, self.handshakes, server.logins, "INTERNAL")
        )

    def come(self) -> "TlsClient":
        return TlsClient(self)


class TlsClient:
    def __init__(self, world: TlsWorld, listener: str = PLAINTEXT) -> None:
        self.world = world
        self.connection = Connection(world.server, listener)
        self.layer = AcceptedTls(world.listener, self.connection)
        self.socket = Socket()
        self.socket.protocol = self.layer
        self.layer.connection_made(self.socket)  # type: ignore[arg-type]
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = OF_CLIENTS.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def send(self, data: bytes, piece: int = CIPHERTEXT_BYTES) -> None:
        """Bytes as they come from the network, as long as they are read."""
        for start in range(0, len(data), piece):
            part = data[start : start + piece]
            if self.socket.is_closed or not self.socket.is_reading:
                return
            self.layer.get_buffer(-1)[: len(part)] = part
            self.layer.buffer_updated(len(part))

    def shake_hands(self, piece: int = CIPHERTEXT_BYTES) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.send(self.outgoing.read(), piece)
                self.world.end_event()
                self.take()
        self.send(self.outgoing.read(), piece)

    def take(self) -> None:
        self.incoming.write(bytes(self.socket.written))
        self.socket.written.clear()

    def sealed(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def received(self) -> bytes:
        self.take()
        out = b""
        while True:
            try:
                piece = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return out
            if not piece:
                return out
            out += piece

    def reasons(self) -> list[str]:
        return self.world.log.reasons()


def frames(data: bytes) -> int:
    count = 0
    while data:
        data = data[4 + int.from_bytes(data[:4], "big") :]
        count += 1
    return count


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 100, 1000])
def test_records_cut_anywhere(piece: int) -> None:
    client = TlsWorld().come()
    client.shake_hands(piece)
    client.send(client.sealed(ASK_FRAME) + client.sealed(ASK_FRAME * 3), piece)
    assert frames(client.received()) == 4


def test_every_place_to_cut() -> None:
    """Two records in two pieces, whatever lies between them."""
    client = TlsWorld().come()
    client.shake_hands()
    length = len(client.sealed(ASK_FRAME) + client.sealed(ASK_FRAME))
    client = TlsWorld().come()
    client.shake_hands()
    for cut in range(1, length):
        data = client.sealed(ASK_FRAME) + client.sealed(ASK_FRAME)
        client.send(data[:cut])
        client.send(data[cut:])
        assert frames(client.received()) == 2, cut


def test_requests_behind_the_handshake_in_one_piece() -> None:
    client = TlsWorld().come()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.send(client.outgoing.read())
    client.take()
    client.tls.do_handshake()
    finished = client.outgoing.read()
    client.send(finished + client.sealed(ASK_FRAME))
    assert frames(client.received()) == 1


def test_handshake_that_takes_too_long() -> None:
    world = TlsWorld()
    silent, halfway, done = world.come(), world.come(), world.come()
    done.shake_hands()
    halfway.send(b"\x16\x03\x01\x02")
    world.pass_ms(HANDSHAKE_TIMEOUT_MS + 1)

    assert (silent.socket.is_closed, halfway.socket.is_closed, done.socket.is_closed) == (True, True, False)
    assert world.log.reasons() == ["no TLS handshake: it was not done within 10000 ms"] * 2
    assert world.listener.ended == {"success": 1, "failure": 2}
    assert list(world.server.connections) == [done.connection]


def test_counters_after_thousands_of_failures() -> None:
    """Nothing is left of connections that never came to a handshake, however they ended."""
    world = TlsWorld()
    for number in range(2_000):
        client = world.come()
        client.send((b"\0\0\0\x01", b"GET / HTTP", b"\x16\x03\x01\0\x02\0\0", b"\x16\x03")[number % 4])
        if not client.socket.is_closed:
            client.layer.eof_received()
            client.socket.close()
    assert not world.server.connections
    assert not +world.server.limits._of_host
    assert sum(world.server.opened.values()) == sum(world.server.closed.values()) == 2_000
    assert world.listener.ended["failure"] == 500


def test_handshakes_have_turns() -> None:
    """When those of a step of the loop have taken long, the next ones wait, and nothing of theirs is lost."""
    world = TlsWorld()
    clients = [world.come() for _ in range(20)]
    world.server.turns.is_over(world.now_ms * 1_000_000, 0)
    world.now_ms += 10
    for client in clients:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        client.send(client.outgoing.read())
    assert [len(client.socket.written) for client in clients] == [0] * 20
    assert not any(client.socket.is_reading for client in clients)
    world.end_event()
    for client in clients:
        client.take()
        client.tls.do_handshake()
        client.send(client.outgoing.read() + client.sealed(ASK_FRAME))
        world.end_event()
        assert frames(client.received()) == 1


def test_bad_record_ends_the_connection() -> None:
    client = TlsWorld().come()
    client.shake_hands()
    data = bytearray(client.sealed(ASK_FRAME))
    data[-1] ^= 1
    client.send(bytes(data))
    assert client.socket.is_closed
    assert client.reasons() == ["TLS: what has come was altered on its way"]
    assert client.world.server.closed[PLAINTEXT, CloseReason.TLS_FAILED] == 1


def test_bad_record_behind_a_request() -> None:
    """In one piece, so that OpenSSL has failed when there is something to answer."""
    client = TlsWorld().come()
    client.shake_hands()
    client.send(client.sealed(ASK_FRAME) + b"\x17\x03\x03\x00\x20" + bytes(32))
    client.world.end_event()
    assert client.socket.is_closed
    assert client.reasons() == ["TLS: what has come was altered on its way"]


def test_orderly_end() -> None:
    """Of the client's side by a message of TLS; what came before is answered."""
    client = TlsWorld().come()
    client.shake_hands()
    data = client.sealed(ASK_FRAME)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.send(data + client.outgoing.read())
    assert client.socket.is_closed
    assert client.world.server.closed[PLAINTEXT, CloseReason.CLIENT] == 1
    assert len(client.socket.written) > len(data)


def test_nothing_is_left_behind_a_hold() -> None:
    """Decrypted or not, what arrived before reading was paused is served when it goes on, without a new event."""
    world = TlsWorld()
    client = world.come()
    client.shake_hands()
    world.parks = True
    client.send(b"".join(client.sealed(ASK_FRAME) for _ in range(70)))
    assert len(world.parked) == 64
    client.layer.pause_reading()
    more = b"".join(client.sealed(ASK_FRAME) for _ in range(20))
    client.layer.get_buffer(-1)[: len(more)] = more
    client.layer.buffer_updated(len(more))
    world.parks = False
    client.layer.resume_reading()
    for context in world.parked:
        context.complete(DescribeClusterResponse(cluster_id="c"))
    world.end_event()
    assert frames(client.received()) == 90


class Inner:
    """Takes what comes, into a buffer of a size."""

    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))
        self.taken = bytearray()
        self.transport: Any = None
        self.has_ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to do."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += self.view[:nbytes]

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def pause_writing(self) -> None:
        """Everything is sent."""

    def resume_writing(self) -> None:
        """Everything is sent."""


class _Server(TlsConnection):
    def _established(self) -> None:
        """Nothing has waited for it."""

    def _failed(self, why: str) -> None:
        raise AssertionError(why)


def layer(size: int) -> tuple[Inner, TlsClient]:
    """Shaken hands, and a client of it; its `layer` speaks to Inner."""
    client = TlsClient(TlsWorld())
    inner, client.socket = Inner(size), Socket()
    client.layer = _Server(inner, TLS.as_server, ciphertext_buffer(), lambda act: act())  # type: ignore[assignment]
    client.socket.protocol = client.layer
    client.layer.connection_made(client.socket)  # type: ignore[arg-type]
    client.shake_hands()
    client.received()
    return inner, client


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=300) | st.sampled_from([b"x" * RECORD_BYTES, b"y" * 70_000]), max_size=5),
    st.integers(1, 70_000),
    st.sampled_from([1, 100, 16_384, 1 << 20]),
)
def test_what_goes_in_comes_out(pieces: list[bytes], cut: int, size: int) -> None:
    """Both ways, for pieces, cuts and receive buffers of any size."""
    size = max(size, sum(map(len, pieces)) // 50)
    inner, client = layer(size)
    data = b"".join(pieces)
    sent = b"".join(client.sealed(piece) for piece in pieces if piece)
    client.send(sent, max(cut, len(sent) // 50))
    assert bytes(inner.taken) == data
    inner.transport.writelines([memoryview(piece) for piece in pieces])
    records = bytes(client.socket.written)
    assert client.received() == data
    # Records are full: a long answer with a short head has as many as it would have without.
    count, position = 0, 0
    while position < len(records):
        position += 5 + int.from_bytes(records[position + 3 : position + 5], "big")
        count += 1
    assert count == -(-len(data) // RECORD_BYTES), f"{[len(piece) for piece in pieces]}"


def test_long_answer_leaves_while_it_is_encrypted() -> None:
    """Never whole: a copy of it would come into new pages each time, and the other side would wait for its end."""
    inner, client = layer(100)
    client.send(client.sealed(b"x"))
    before = len(client.socket.writes)
    head, answer = b"h" * 100, bytes(1 << 20)

    inner.transport.writelines([head, memoryview(answer)])

    writes = client.socket.writes[before:]
    records_at_once = ENCRYPTED_AT_ONCE // RECORD_BYTES
    assert max(writes) <= ENCRYPTED_AT_ONCE + records_at_once * 40
    assert len(writes) <= len(answer) // ENCRYPTED_AT_ONCE + 2
    assert client.received() == head + answer
