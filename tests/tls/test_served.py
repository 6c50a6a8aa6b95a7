"""A listener with TLS serves those that belong there, and says of the others why they do not."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from ottla.broker.server.close_reasons import CloseReason
from ottla.security.authentication import ANONYMOUS, Principal
from tests.broker.wire import until
from tests.tls.brokers import ASK, address, ask, ask_over, asked, reasons, tls_broker, trusting
from tests.tls.certificates import PASSWORD, Authority

CA = Authority()
OTHER = Authority("Another CA")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("by_rsa", [False, True])
async def test_a_request_is_served(tmp_path: Path, version: str, by_rsa: bool) -> None:
    server = CA.issue("broker", by_rsa=by_rsa)
    async with tls_broker(tmp_path, CA, server, ssl__enabled__protocols=version) as broker:
        assert await asked(broker, trusting(CA)) == version
        assert broker.server.tls is not None
        assert broker.server.tls["TLS"].ended == {"success": 1}


async def test_inline_with_an_encrypted_key(tmp_path: Path) -> None:
    server = CA.issue("broker")
    settings = {
        "listener__name__tls__ssl__keystore__location": "",
        "listener__name__tls__ssl__keystore__key": server.encrypted_key_pem,
        "listener__name__tls__ssl__keystore__certificate__chain": server.chain_pem.replace("\n", " "),
        "listener__name__tls__ssl__key__password": PASSWORD,
    }
    async with tls_broker(tmp_path, CA, **settings) as broker:
        assert await asked(broker, trusting(CA)) == "TLSv1.3"


async def test_authority_between_server_and_root(tmp_path: Path) -> None:
    server = Authority("Between", CA).issue("broker")
    async with tls_broker(tmp_path, CA, server) as broker:
        assert await asked(broker, trusting(CA)) == "TLSv1.3"


@pytest.mark.parametrize(
    ("enabled", "reason"),
    [
        ("TLSv1.3", "no TLS handshake: the client has none of the versions of TLS that are enabled"),
        ("TLSv1.2", "no TLS handshake: the client has none of the versions of TLS that are enabled"),
    ],
)
async def test_other_version(tmp_path: Path, enabled: str, reason: str) -> None:
    context = trusting(CA)
    if enabled == "TLSv1.3":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    async with tls_broker(tmp_path, CA, ssl__enabled__protocols=enabled) as broker:
        with pytest.raises(ssl.SSLError):
            await asked(broker, context)
        assert reasons(broker) == [reason]
        assert broker.server.closed["TLS", CloseReason.TLS_FAILED] == 1


async def test_cipher_suites_are_chosen(tmp_path: Path) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    async with tls_broker(tmp_path, CA, ssl__cipher__suites=suite) as broker:
        assert await asked(broker, trusting(CA)) == "TLSv1.2"


PRESENTED = "the certificate is not accepted: "


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (None, "no TLS handshake: the client has shown no certificate"),
        (CA.issue("late", days=-2), f"no TLS handshake: {PRESENTED}certificate has expired"),
        (OTHER.issue("stranger"), f"no TLS handshake: {PRESENTED}unable to get local issuer certificate"),
    ],
)
async def test_client_that_does_not_belong_here(tmp_path: Path, shown: object, reason: str) -> None:
    context = trusting(CA, shown, tmp_path)  # type: ignore[arg-type]
    async with tls_broker(tmp_path, CA, ssl__client__auth="required") as broker:
        with pytest.raises(OSError):
            await asked(broker, context)
        assert reasons(broker) == [reason]
        assert broker.server.tls is not None
        assert broker.server.tls["TLS"].ended == {"failure": 1}


@pytest.mark.parametrize("auth", ["requested", "required"])
async def test_certificate_says_who_the_client_is(tmp_path: Path, auth: str) -> None:
    rules = r"RULE:^CN=([^,]+),O=Ottla$/$1/U,DEFAULT"
    settings = {"ssl__client__auth": auth, "ssl__principal__mapping__rules": rules}
    context = trusting(CA, CA.issue("alice"), tmp_path)
    async with tls_broker(tmp_path, CA, **settings) as broker:
        assert await principal_of(broker, context) == Principal("User", "ALICE")


async def test_without_a_certificate_a_client_is_anonymous(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, CA, ssl__client__auth="requested") as broker:
        assert await principal_of(broker, trusting(CA)) == ANONYMOUS


async def test_certificate_that_no_rule_matches(tmp_path: Path) -> None:
    settings = {"ssl__client__auth": "required", "ssl__principal__mapping__rules": "RULE:^CN=bob,.*$/bob/"}
    async with tls_broker(tmp_path, CA, **settings) as broker:
        with pytest.raises(OSError):
            await asked(broker, trusting(CA, CA.issue("alice"), tmp_path))
        assert reasons(broker) == ["TLS: no rule of ssl.principal.mapping.rules matches CN=alice,O=Ottla"]
        assert broker.server.tls is not None
        assert broker.server.tls["TLS"].ended == {"failure": 1}


async def principal_of(broker: object, context: ssl.SSLContext) -> Principal:
    """Of a connection while it is open."""
    server = broker.server  # type: ignore[attr-defined]

    def look() -> Principal:
        with (
            socket.create_connection(address(broker)) as plain,  # type: ignore[arg-type]
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            ask_over(connection)
            found = [each.principal for each in server.connections if each.listener_name == "TLS"]
            assert len(found) == 1
            return found[0]

    return await asyncio.to_thread(look)


@pytest.mark.parametrize(
    ("sent", "reason", "close_reason"),
    [
        (b"\0\0\0\x20\0\x12\0\x03", "the client speaks Kafka's protocol without TLS", CloseReason.TLS_FAILED),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP", CloseReason.NOT_KAFKA),
        (b"SSH-2.0-OpenSSH_9.7\r\n", "the client speaks something else", CloseReason.TLS_FAILED),
    ],
)
async def test_no_tls_on_the_port(tmp_path: Path, sent: bytes, reason: str, close_reason: CloseReason) -> None:
    def answer() -> bytes:
        with socket.create_connection(address(broker), 20) as connection:
            connection.sendall(sent)
            received = b""
            while piece := connection.recv(1024):
                received += piece
            return received

    async with tls_broker(tmp_path, CA) as broker:
        # What else comes back is an alert, which Kafka's clients take for the sign of TLS.
        assert (await asyncio.to_thread(answer))[:2] in (b"", b"\x15\x03")
        assert reasons(broker) == [f"{reason}, and this listener Kafka's protocol with TLS"]
        assert broker.server.closed["TLS", close_reason] == 1


async def test_tls_hello_in_any_pieces(tmp_path: Path) -> None:
    """Records are cut at each byte, in the handshake and after it."""

    def slowly() -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting(CA).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(address(broker), 20) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send() -> None:
                for byte in outgoing.read():
                    connection.send(bytes((byte,)))

            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    send()
                    incoming.write(connection.recv(65536))
            tls.write(ASK)
            send()
            received = b""
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                try:
                    received += tls.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(65536))

    async with tls_broker(tmp_path, CA) as broker:
        await asyncio.to_thread(slowly)
        assert reasons(broker) == []


async def test_end_of_a_client_is_no_news(tmp_path: Path) -> None:
    """As of a check that only connects, and of one that ends in its handshake."""
    async with tls_broker(tmp_path, CA) as broker:
        for sent in (b"", b"\x16\x03\x01\x02\0"):
            with socket.create_connection(address(broker)) as connection:
                connection.sendall(sent)
        await until(broker, lambda: broker.server.closed["TLS", CloseReason.CLIENT] == 2)
        assert reasons(broker) == []


async def test_client_that_trusts_another_authority(tmp_path: Path) -> None:
    async with tls_broker(tmp_path, CA) as broker:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(broker, trusting(OTHER))
        await until(broker, lambda: bool(reasons(broker)))
        assert reasons(broker) == [
            "no TLS handshake: the other side does not trust the authority of the certificate"
        ] or reasons(broker) == ["TLS: the other side does not trust the authority of the certificate"]


async def test_plain_listener_beside_it_is_plain(tmp_path: Path) -> None:
    def plain() -> int:
        with socket.create_connection(address(broker, "PLAINTEXT"), 20) as connection:
            return ask_over(connection).error_code

    async with tls_broker(tmp_path, CA) as broker:
        assert await asyncio.to_thread(plain) == 0
        with pytest.raises(OSError):
            await asyncio.to_thread(ask, address(broker, "PLAINTEXT"), trusting(CA))
        assert reasons(broker) == ["the client speaks TLS, and this listener Kafka's protocol without TLS"]
