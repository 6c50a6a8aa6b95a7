"""Hostile bytes against a live broker, while a well-behaved client watches."""

import random
import socket
import struct
from pathlib import Path

from tests.fuzz.payloads import PAYLOADS
from tests.served import ServedBroker

# A broker that keeps what hostile connections sent would grow by far more than this.
GROWTH_ALLOWED_BYTES = 96 << 20
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 77, -1)


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
