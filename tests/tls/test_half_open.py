"""Clients that begin a TLS handshake and go no further: how many there may be, and what they cost."""

import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_memory import HANDSHAKES_BYTES_MAX
from ottla.broker.server.tls_listener import HANDSHAKE_BYTES, AcceptedTls
from tests.broker.sasl_world import PLAINTEXT
from tests.broker.wire import until
from tests.tls.brokers import address, asked, reasons, tls_broker, trusting
from tests.tls.certificates import Authority
from tests.tls.test_client_hello import HELLO, record
from tests.tls.test_connection import TlsClient, TlsWorld

CA = Authority()
LIMIT = "ottla.max.unauthenticated.connections"


def greet(client: TlsClient) -> None:
    """Says hello; the answer is on its way."""
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.send(client.outgoing.read())
    client.world.end_event()


def test_a_hello_that_is_not_whole_costs_its_bytes() -> None:
    """OpenSSL has no part in it yet."""
    world = TlsWorld()
    for end in range(len(HELLO)):
        client = world.come()
        client.send(HELLO[:end])
        assert client.layer._tls is None
    assert world.handshakes.held_bytes == 0


def test_a_hello_that_is_too_long() -> None:
    client = TlsWorld().come()
    client.send(record(b"\x01\x01\0\0"))
    assert client.socket.is_closed
    assert client.reasons() == ["no TLS handshake: its ClientHello has more than 16384 bytes"]


def test_handshakes_that_wait_hold_so_much_at_most() -> None:
    """Beyond it the one that has waited longest is ended. Those that are done do not count."""
    world, most = TlsWorld(), HANDSHAKES_BYTES_MAX // HANDSHAKE_BYTES
    done = world.come()
    done.shake_hands()
    waiting = [world.come() for _ in range(most + 2)]
    for client in waiting:
        greet(client)
    assert [each.socket.is_closed for each in waiting] == [True] * 2 + [False] * most
    assert not done.socket.is_closed
    assert world.server.closed[PLAINTEXT, CloseReason.SLOW_CLIENT] == 2
    last = waiting[-1]
    last.shake_hands()
    assert world.handshakes.held_bytes == (most - 1) * HANDSHAKE_BYTES


@pytest.mark.parametrize("ends", ["success", "bad", "gone", "late"])
def test_nothing_is_held_for_handshakes_that_are_over(ends: str) -> None:
    world = TlsWorld()
    for _ in range(50):
        client = world.come()
        greet(client)
        if ends == "success":
            client.shake_hands()
        elif ends == "bad":
            client.send(b"\x15\x03\x03\0\x02\x02\x28")
        elif ends == "gone":
            client.socket.close()
        else:
            world.pass_ms(11_000)
        assert world.handshakes.held_bytes == 0
        assert client.socket.is_closed == (ends != "success")


def begun(at: tuple[str, int], count: int, stack: ExitStack) -> Iterator[socket.socket]:
    for _ in range(count):
        connection = stack.enter_context(socket.create_connection(at, 20))
        connection.sendall(HELLO[: len(HELLO) // 2])
        yield connection


async def test_the_oldest_goes_where_there_are_too_many(tmp_path: Path) -> None:
    """Clients after their handshake, and those of listeners without TLS, do not count."""
    settings = {LIMIT.replace(".", "__"): "3"}
    async with tls_broker(tmp_path, CA, **settings) as broker:
        with ExitStack() as stack:
            list(begun(address(broker), 5, stack))
            await until(broker, lambda: broker.server.closed["TLS", CloseReason.OVER_LIMIT] == 2)
            assert len(broker.server.logins) == 3
            assert await asked(broker, trusting(CA)) == "TLSv1.3"
            await until(broker, lambda: broker.server.closed["TLS", CloseReason.OVER_LIMIT] == 3)
            assert reasons(broker) == [f"3 newer connections have not logged in yet either ({LIMIT})"] * 3
        await until(broker, lambda: len(broker.server.logins) == 0)


@pytest.mark.parametrize("ends", ["success", "half a hello", "hello"])
async def test_lost_connections_are_freed_without_the_collector(ends: str, tmp_path: Path) -> None:
    """OpenSSL has tens of KiB for each: half-open connections of a siege left 100 MiB behind."""
    async with tls_broker(tmp_path, CA) as broker:
        gc.collect()
        gc.disable()
        try:
            with ExitStack() as stack:
                if ends == "success":
                    assert await asked(broker, trusting(CA)) == "TLSv1.3"
                else:
                    connection = stack.enter_context(socket.create_connection(address(broker), 20))
                    connection.sendall(HELLO if ends == "hello" else HELLO[:20])
                    await until(broker, lambda: _tls_connections() == 1)
            await until(broker, lambda: _tls_connections() == 0)
        finally:
            gc.enable()


def _tls_connections() -> int:
    return sum(isinstance(each, AcceptedTls) for each in gc.get_objects())
