"""Three brokers with certificates for each other: they form a cluster, replicate, and let no other in."""

import asyncio
import socket
import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import Encoding

from ottla import ClusterThread
from ottla.broker.broker import Broker
from ottla.broker.config.tls import KeyStore, TlsSettings
from ottla.broker.config.tls_context import client_context
from ottla.broker.server.network import SocketOptions
from ottla.broker.server.peer_connection import Peer, PeerError
from ottla.broker.server.tls_network import TlsNetwork
from ottla.protocol.address import Address
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.security.client import Secret
from tests.tls.brokers import address, of_listener, reasons, tls_broker
from tests.tls.certificates import Authority, Certificate

CA, OTHER = Authority(), Authority("Another CA")
WAIT_S = 30
VALUES = [f"value {number}".encode() * 200 for number in range(500)]


def mutual(directory: Path) -> dict[str, object]:
    """Of brokers in one process, which have one listener."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "group.initial.rebalance.delay.ms": 0,
        "min.insync.replicas": 2,
        **of_listener(
            "plaintext",
            keystore_location=CA.issue("broker").write(directory / "broker.pem"),
            truststore_location=CA.write(directory / "ca.pem"),
            client_auth="required",
        ),
    }


def test_three_brokers_with_mutual_tls(tmp_path: Path) -> None:
    """Followers copy what is produced with acks=all, and take over when their leader dies."""
    shown = str(CA.issue("client").write(tmp_path / "client.pem"))
    with ClusterThread(3, settings=mutual(tmp_path)) as cluster:
        common = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": shown,
            "ssl.key.location": shown,
        }
        admin = AdminClient(common)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WAIT_S)
        producer = confluent_kafka.Producer(common | {"acks": "all"})
        for number, value in enumerate(VALUES):
            producer.produce("t", value, partition=number % 3)
        assert producer.flush(WAIT_S) == 0
        cluster.kill(1)
        for number, value in enumerate(VALUES):
            producer.produce("t", value, partition=number % 3)
        assert producer.flush(2 * WAIT_S) == 0
        consumer = confluent_kafka.Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        taken = [consumer.poll(WAIT_S) for _ in range(2 * len(VALUES))]
        consumer.close()
    assert sorted(each.value() for each in taken if each is not None) == sorted(VALUES * 2)


def peer_at(broker: Broker, shown: Certificate | None, trusted: Authority, *, checks_host: bool = True) -> Peer:
    store = None if shown is None else KeyStore(Secret(shown.key_pem), (shown.der,), None)
    context = client_context(TlsSettings(store, _ders(trusted), ("TLSv1.3",), (), checks_host))
    network = TlsNetwork(broker.network, broker.runtime, lambda: context)
    return Peer(broker.runtime, network, Address(*address(broker)), "broker-1-test", SocketOptions(), None)


def _ders(authority: Authority) -> tuple[bytes, ...]:
    return (authority.certificate.public_bytes(Encoding.DER),)


async def test_peer_asks_over_tls(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, CA, ssl__client__auth="required") as broker:
        peer = peer_at(broker, CA.issue("broker"), CA)
        await peer.connect()
        answer = await peer.ask(ListOffsetsRequest(replica_id=-1))
        assert answer.topics == []
        peer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the loop is woken for every piece")
async def test_the_kernel_waits_for_no_more_than_comes(tmp_path: Path) -> None:
    """ST-28: what TLS has taken already does not count for SO_RCVLOWAT."""
    async with tls_broker(tmp_path, CA) as broker:
        for name, waits_for in (("PLAINTEXT", 100_000), ("TLS", 1)):
            peer = peer_at(broker, None, CA)
            if name == "PLAINTEXT":
                at = Address(*address(broker, name))
                peer = Peer(broker.runtime, broker.network, at, "broker-1-test", SocketOptions(), None)
            await peer.connect()
            assert peer._transport is not None
            assert peer._threshold is not None
            peer._threshold.set(100_000)
            tcp = peer._transport.get_extra_info("socket")
            assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == waits_for
            peer.close()


async def ask(peer: Peer) -> None:
    await peer.connect()
    await peer.ask(ListOffsetsRequest(replica_id=-1))


@pytest.mark.parametrize(
    ("shown", "trusted", "hosts", "why"),
    [
        (CA.issue("a"), OTHER, ("127.0.0.1",), "no connection: no TLS handshake: the certificate is not accepted: "),
        (CA.issue("a"), CA, ("other.example",), "certificate is not valid for '127.0.0.1'"),
        (OTHER.issue("a"), CA, ("127.0.0.1",), "the connection was lost: TLS: "),
        (None, CA, ("127.0.0.1",), "the connection was lost: TLS: the other side wants a certificate"),
    ],
)
async def test_peer_that_is_not_to_be_trusted(
    tmp_path: Path, shown: Certificate | None, trusted: Authority, hosts: tuple[str, ...], why: str
) -> None:
    """With TLS 1.3 a server refuses the client's certificate when the client is done with its handshake already."""
    server = CA.issue("broker", hosts=hosts)
    async with tls_broker(tmp_path, CA, server, ssl__client__auth="required") as broker:
        peer = peer_at(broker, shown, trusted)
        with pytest.raises(PeerError) as raised:
            await ask(peer)
        assert why in str(raised.value)


async def test_name_is_not_checked_where_that_is_off(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, CA, CA.issue("broker", hosts=())) as broker:
        peer = peer_at(broker, None, CA, checks_host=False)
        await peer.connect()
        peer.close()


async def test_peer_at_what_speaks_no_tls(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, CA) as broker:
        context = client_context(TlsSettings(None, _ders(CA), ("TLSv1.3",), (), True))
        network = TlsNetwork(broker.network, broker.runtime, lambda: context)
        at = Address(*address(broker, "PLAINTEXT"))
        peer = Peer(broker.runtime, network, at, "broker-1-test", SocketOptions(), None)
        with pytest.raises(PeerError, match="no connection: no TLS handshake: the other side has closed"):
            await peer.connect()
        assert reasons(broker) == ["the client speaks TLS, and this listener Kafka's protocol without TLS"]


async def test_peer_waits_for_a_silent_server_so_long(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    async with tls_broker(tmp_path, CA, replica__socket__timeout__ms="600") as broker:
        context = client_context(TlsSettings(None, _ders(CA), ("TLSv1.3",), (), True))
        network = TlsNetwork(broker.network, broker.runtime, lambda: context)
        at = Address(*silent.getsockname())
        peer = Peer(broker.runtime, network, at, "broker-1-test", SocketOptions(), None)
        with pytest.raises(PeerError, match="no connection within 600 ms"):
            await peer.connect()
    await asyncio.to_thread(silent.close)
