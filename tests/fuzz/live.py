"""Hostile bytes against a live broker, while a well-behaved client watches."""

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from tests.served import ServedBroker

# A broker that keeps what hostile connections sent would grow by far more than this.
GROWTH_ALLOWED_BYTES = 96 << 20
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 77, -1)

Payload = Callable[[random.Random], bytes]


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 400))


def tls_hello(rng: random.Random) -> bytes:
    return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200)


def http(rng: random.Random) -> bytes:
    return b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + b"x" * rng.randrange(100) + b"\r\n\r\n"


def huge_claim(rng: random.Random) -> bytes:
    return struct.pack(">i", rng.choice([2**31 - 1, 100 << 20, (100 << 20) + 1])) + rng.randbytes(50)


def negative_size(rng: random.Random) -> bytes:
    return struct.pack(">i", -rng.randrange(1, 2**31)) + rng.randbytes(20)


def framed_noise(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.randrange(0, 300))
    return struct.pack(">i", len(body)) + body


def plausible_header(rng: random.Random) -> bytes:
    """A right header of a real API, then garbage: reaches the decoders."""
    body = rng.randbytes(rng.randrange(0, 200))
    header = struct.pack(">hhih", rng.randrange(0, 80), rng.randrange(0, 18), rng.randrange(2**31), 4) + b"fuzz"
    return struct.pack(">i", len(header) + len(body)) + header + body


def hostile_count(rng: random.Random) -> bytes:
    """A Metadata request that claims two thousand million topics."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, rng.choice([2**31 - 1, 10**6, -2]))
    return struct.pack(">i", len(body)) + body


def truncated(rng: random.Random) -> bytes:
    whole = plausible_header(rng)
    return whole[: rng.randrange(1, len(whole))]


PAYLOADS: list[Payload] = [
    noise,
    tls_hello,
    http,
    huge_claim,
    negative_size,
    framed_noise,
    plausible_header,
    plausible_header,
    plausible_header,
    hostile_count,
    truncated,
]


def run(broker: ServedBroker, seed: int, inputs: int) -> None:
    """Sends `inputs` hostile payloads, a connection each; raises AssertionError when the broker is the worse for it."""
    rng = random.Random(seed)
    address = (broker.bootstrap.rsplit(":", 1)[0], int(broker.bootstrap.rsplit(":", 1)[1]))
    with socket.create_connection(address, timeout=10) as witness:
        _assert_answers(witness)
        before = _resident_bytes(broker.pid)
        held: list[socket.socket] = []
        for number in range(inputs):
            held.append(_attack(address, rng))
            if len(held) > 50:
                _close(held.pop(0), rng)
            if number % 500 == 0:
                _assert_answers(witness)
        for connection in held:
            _close(connection, rng)
        _assert_answers(witness)
    grown = _resident_bytes(broker.pid) - before
    assert grown < GROWTH_ALLOWED_BYTES, f"{inputs} hostile inputs of seed {seed} left {grown >> 20} MiB behind"
    assert "Traceback" not in broker.stderr, broker.stderr[-3000:]


def _attack(address: tuple[str, int], rng: random.Random) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    try:
        for _ in range(rng.randrange(1, 3)):
            connection.send(rng.choice(PAYLOADS)(rng))
    except (BrokenPipeError, ConnectionResetError):
        pass  # The broker has closed it already, as it should.
    return connection


def _close(connection: socket.socket, rng: random.Random) -> None:
    if rng.random() < 0.3:  # A reset rather than an orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _assert_answers(witness: socket.socket) -> None:
    witness.sendall(API_VERSIONS_REQUEST)
    size = struct.unpack(">i", witness.recv(4, socket.MSG_WAITALL))[0]
    answer = witness.recv(size, socket.MSG_WAITALL)
    assert answer[:6] == struct.pack(">ih", 77, 0), "a well-behaved client got a wrong answer"


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
