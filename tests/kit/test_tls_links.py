"""Links with faults under connections with TLS, and captures of these."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pytest

from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.testing.handle import Kafka
from ottla.testing.hosting import Hosting, LogLines
from ottla.testing.testbed import Testbed
from tests.tls.brokers import ASK, BASE, ask_over, of_listener, trusting
from tests.tls.certificates import Authority

CA = Authority()
HELD_S = 0.3


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    files = of_listener("tls", keystore_location=CA.issue("broker").write(tmp_path / "broker.pem"))
    lines = LogLines()
    log = LazyLog("console", "warning", cast("TextIO", lines))
    bed = Testbed(hosting=Hosting(ServerConfig(BASE | files), log, lines, host=None, port=None), data=tmp_path)
    bed.start()
    yield Kafka(bed)
    bed.stop()


@pytest.fixture
def client(kafka: Kafka) -> Iterator[socket.socket]:
    """One that has been served."""
    (parts,) = kafka._bed.hosted.parts().values()
    found = next(each for each in parts.listeners.endpoints if each.name == "TLS")
    plain = socket.create_connection((found.host, found.port), 20)
    with trusting(CA).wrap_socket(plain, server_hostname="localhost") as connection:
        assert ask_over(connection).error_code == 0
        yield connection


def is_held(client: socket.socket) -> bool:
    """What was asked is not answered."""
    client.settimeout(HELD_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(20)
    return False


@pytest.mark.parametrize("is_captured", [False, True])
def test_what_is_sent_waits_and_is_answered(
    kafka: Kafka, client: socket.socket, tmp_path: Path, is_captured: bool
) -> None:
    capture = kafka.wire.record(tmp_path / "a.owire") if is_captured else None
    kafka.links.lossless_pause("clients", to=0)
    client.sendall(ASK)
    assert is_held(client)

    kafka.links.heal()

    assert int.from_bytes(client.recv(4), "big") > 0
    if capture is not None:
        capture.stop()


def test_connection_breaks_when_its_link_is_cut_with_resets(kafka: Kafka, client: socket.socket) -> None:
    kafka.links.cut("clients", to=0, reset=True)

    with pytest.raises(OSError, match=r".+"):
        ask_over(client)
