"""What a connection costs a broker whose client has not logged in: `python -m benchmarks pending_logins`."""

import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.processes import Server
from tests.tls.certificates import Authority

CONNECTIONS = 500
ROUNDS = 3
READ_WITHIN_S = 1.0
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'

Begin = Callable[[socket.socket, ssl.SSLContext], object]


def figures() -> list[Figure]:
    return [_figure(what, begin, at_most) for what, (begin, at_most) in STATES.items()]


def _figure(what: str, begin: Begin, at_most: float) -> Figure:
    pairs = [(_kib_per_connection(begin), 1.0) for _ in range(ROUNDS)]
    return Figure(f"memory per connection before its login: {what}", NO_BASELINE, "KiB", pairs, at_most=at_most)


def _kib_per_connection(begin: Begin) -> float:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, _broker(Path(name)) as server:
        context = ssl.create_default_context(cafile=str(Path(name) / "ca.pem"))
        # What OpenSSL and the broker need once.
        held = [_connect(server, begin, context) for _ in range(20)]
        time.sleep(READ_WITHIN_S)
        before = server.resident_bytes()
        held += [_connect(server, begin, context) for _ in range(CONNECTIONS)]
        time.sleep(READ_WITHIN_S)
        grown = server.resident_bytes() - before
        del held
    return grown / CONNECTIONS / 1024


@contextmanager
def _broker(directory: Path) -> Iterator[Server]:
    authority = Authority()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "ssl.keystore.location": authority.issue("broker").write(directory / "broker.pem"),
        "ssl.truststore.location": authority.write(directory / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with processes.running(processes.broker_command(str(directory / "data"), *words), pinned=False) as server:
        yield server


def _connect(server: Server, begin: Begin, context: ssl.SSLContext) -> object:
    return begin(socket.create_connection(("127.0.0.1", server.port)), context)


def _nothing(connection: socket.socket, _: ssl.SSLContext) -> object:
    return connection


def _half_a_hello(connection: socket.socket, context: ssl.SSLContext) -> object:
    hello = _hello(context)
    connection.sendall(hello[: len(hello) // 2])
    return connection


def _whole_hello(connection: socket.socket, context: ssl.SSLContext) -> object:
    connection.sendall(_hello(context))
    return connection


def _hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake takes an answer")


def _handshake(connection: socket.socket, context: ssl.SSLContext) -> object:
    return context.wrap_socket(connection, server_hostname="127.0.0.1")


STATES: dict[str, tuple[Begin, float]] = {
    "nothing is sent": (_nothing, 8),
    "half a ClientHello": (_half_a_hello, 8),
    "a ClientHello and nothing more": (_whole_hello, 64),
    "a TLS handshake and nothing more": (_handshake, 64),
}
