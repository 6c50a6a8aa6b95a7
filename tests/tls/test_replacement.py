"""Certificates are replaced while the listener serves; what would not do is refused, and the old ones stay."""

import asyncio
import socket
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from cryptography import x509

from ottla.broker.broker import Broker
from ottla.broker.config.options import ConfigError
from ottla.broker.loop_wheel import SystemClock
from ottla.broker.server import tls_listener
from ottla.broker.server.close_reasons import CloseReason
from tests.broker.asking import Client
from tests.broker.requests import produce
from tests.broker.wire import RecordingLog, until
from tests.tls.brokers import address, ask_over, tls_broker, trusting
from tests.tls.certificates import Authority, Certificate

CA, OTHER = Authority(), Authority("Another CA")
LOCATION = "listener.name.tls.ssl.keystore.location"
WAIT_S = 20
CLIENTS = 200
BEYOND = 3
DAY_MS = 86_400_000


def serial(broker: Broker) -> int:
    """Of the certificate that new connections get."""
    with (
        socket.create_connection(address(broker), WAIT_S) as plain,
        trusting(CA).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        ask_over(connection)
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


async def served(broker: Broker) -> int:
    return await asyncio.to_thread(serial, broker)


def replace(certificate: Certificate, path: Path) -> None:
    """As a tool does it that cares for readers."""
    certificate.write(path.with_suffix(".new")).replace(path)


def said(broker: Broker, event: str) -> list[dict[str, str]]:
    log = broker.runtime.log
    assert isinstance(log, RecordingLog)
    return [fields for name, fields in log.events if name == event]


async def test_changed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection keeps what it began with, new ones get the new certificate."""
    monkeypatch.setattr(tls_listener, "LOOK_EVERY_MS", 50)
    old, new = CA.issue("broker"), CA.issue("broker")
    async with tls_broker(tmp_path, CA, old) as broker:
        assert await served(broker) == old.certificate.serial_number
        with (
            await asyncio.to_thread(socket.create_connection, address(broker)) as plain,
            await asyncio.to_thread(lambda: trusting(CA).wrap_socket(plain, server_hostname="localhost")) as connection,
        ):
            await asyncio.to_thread(ask_over, connection)
            replace(new, tmp_path / "broker.pem")
            await until(broker, lambda: bool(said(broker, "certificates replaced")))
            await asyncio.to_thread(ask_over, connection)
        assert await served(broker) == new.certificate.serial_number


async def test_two_hundred_clients_produce_while_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC05: none of them loses its connection or a request, and each who comes afterwards gets the new certificate."""
    monkeypatch.setattr(tls_listener, "LOOK_EVERY_MS", 50)
    new = CA.issue("broker")
    async with tls_broker(tmp_path, CA) as broker:
        await asyncio.to_thread(create_topic, broker)
        clients = [await connected(broker) for _ in range(CLIENTS)]
        changed = asyncio.Event()
        producing = [asyncio.create_task(produce_until(each, changed)) for each in clients]
        replace(new, tmp_path / "broker.pem")
        await until(broker, lambda: bool(said(broker, "certificates replaced")))
        assert await served(broker) == new.certificate.serial_number
        changed.set()
        counts = await asyncio.gather(*producing)
        stranger = CA.issue("stranger")
        replace(stranger, tmp_path / "broker.pem")
        await until(broker, lambda: bool(said(broker, "certificates are not replaced")))
        assert await served(broker) == new.certificate.serial_number
        # Those that have looked at the certificate, and no others.
        assert broker.server.closed["TLS", CloseReason.CLIENT] == 2
        assert set(broker.server.closed) <= {("TLS", CloseReason.CLIENT), ("PLAINTEXT", CloseReason.CLIENT)}
        for each in clients:
            await each.close()
    assert min(counts) > BEYOND
    assert "the subject of the new certificate" in said(broker, "certificates are not replaced")[0]["reason"]


async def connected(broker: Broker) -> Client:
    host, port = address(broker)
    return Client(*await asyncio.open_connection(host, port, ssl=trusting(CA), server_hostname="localhost"))


def create_topic(broker: Broker) -> None:
    host, port = address(broker, "PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)


async def produce_until(client: Client, changed: asyncio.Event) -> int:
    """And for some requests more; how many were acknowledged, which is each."""
    count = beyond = 0
    while beyond < BEYOND:
        answer = await client.ask(produce("t"), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        count += 1
        beyond += changed.is_set()
    return count


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-----BEGIN CERTIFICATE-----\nMIIB", "there are 0 private keys in it, and one is needed"),
        (CA.issue("another").key_pem + CA.issue("broker").chain_pem, "it does not belong to the first certificate"),
        (None, "cannot read"),
    ],
)
async def test_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str) -> None:
    """It is looked at once, and again when it has changed."""
    monkeypatch.setattr(tls_listener, "LOOK_EVERY_MS", 50)
    old, new = CA.issue("broker"), CA.issue("broker")
    path = tmp_path / "broker.pem"
    async with tls_broker(tmp_path, CA, old) as broker:
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        await until(broker, lambda: bool(said(broker, "certificates are not replaced")))
        assert reason in said(broker, "certificates are not replaced")[0]["reason"]
        assert await served(broker) == old.certificate.serial_number
        await asyncio.sleep(0.2)
        assert len(said(broker, "certificates are not replaced")) == 1
        replace(new, path)
        await until(broker, lambda: bool(said(broker, "certificates replaced")))
        assert await served(broker) == new.certificate.serial_number


def alter(broker: Broker, name: str, value: str | None) -> None:
    """Raises KafkaException."""
    host, port = address(broker, "PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(name, value, incremental_operation=operation)
    wanted = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
    next(iter(admin.incremental_alter_configs([wanted]).values())).result(WAIT_S)


async def altered(broker: Broker, name: str, value: object) -> str:
    """Why it is refused; empty if it is not."""
    try:
        await asyncio.to_thread(alter, broker, name, None if value is None else str(value))
    except Exception as error:
        return str(error)
    return ""


async def test_altered_location(tmp_path: Path) -> None:
    """To another file, to the same file that has changed in between, and back to that of the start."""
    first, second, third = (CA.issue("broker") for _ in range(3))
    path = second.write(tmp_path / "second.pem")
    async with tls_broker(tmp_path, CA, first) as broker:
        assert await altered(broker, LOCATION, path) == ""
        assert await served(broker) == second.certificate.serial_number
        replace(third, path)
        assert await altered(broker, LOCATION, path) == ""
        assert await served(broker) == third.certificate.serial_number
        assert await altered(broker, LOCATION, None) == ""
        assert await served(broker) == first.certificate.serial_number


async def test_what_an_alteration_may_not_do(tmp_path: Path) -> None:
    old = CA.issue("broker")
    store = CA.issue("stranger").write(tmp_path / "stranger.pem")
    without = CA.issue("broker", hosts=("localhost",)).write(tmp_path / "without.pem")
    async with tls_broker(tmp_path, CA, old) as broker:
        refusals = {
            store: "the subject of the new certificate is CN=stranger,O=Ottla, that of the old one CN=broker,O=Ottla",
            without: "the new certificate lacks 1 of the alternative names of the old one",
            tmp_path / "none.pem": "cannot read",
            tmp_path / "ca.pem": "there are 0 private keys in it",
        }
        for path, why in refusals.items():
            assert why in await altered(broker, LOCATION, path)
        with pytest.raises(ConfigError, match="cannot be altered for all brokers, only for one"):
            broker.runtime.config.check_dynamic({LOCATION: str(store)}, of_all_brokers=True)
        for name in ("ssl.keystore.location", "listener.name.tls.ssl.client.auth", "ssl.key.password"):
            refused = await altered(broker, name, "secret")
            assert f"{name} cannot be changed while the broker runs" in refused
            assert "secret" not in refused
        assert await served(broker) == old.certificate.serial_number


@pytest.mark.parametrize("client_auth", ["required", "none"])
async def test_brokers_have_to_trust_each_other_with_it(tmp_path: Path, client_auth: str) -> None:
    """§52.5: on their listener. So the trust store comes first, with both authorities."""
    trust_store = "listener.name.tls.ssl.truststore.location"
    settings = {"inter__broker__listener__name": "TLS", "ssl__client__auth": client_auth}
    other, both = OTHER.issue("broker").write(tmp_path / "other.pem"), tmp_path / "both.pem"
    both.write_text(CA.pem + OTHER.pem)
    async with tls_broker(tmp_path, CA, **settings) as broker:
        refused = "brokers with it could not connect to each other: the certificate is not accepted"
        assert refused in await altered(broker, LOCATION, other)
        assert await altered(broker, trust_store, both) == ""
        assert await altered(broker, LOCATION, other) == ""
        assert refused in await altered(broker, trust_store, tmp_path / "ca.pem")
        assert await altered(broker, trust_store, OTHER.write(tmp_path / "one.pem")) == ""


async def test_listener_of_clients_may_have_another_authority(tmp_path: Path) -> None:
    other = OTHER.issue("broker").write(tmp_path / "other.pem")
    async with tls_broker(tmp_path, CA, inter__broker__listener__name="PLAINTEXT") as broker:
        assert await altered(broker, LOCATION, other) == ""


async def test_changes_that_are_allowed(tmp_path: Path) -> None:
    new = CA.issue("renamed", hosts=("localhost",))
    settings = {"ssl__allow__dn__changes": "true", "ssl__allow__san__changes": "true"}
    async with tls_broker(tmp_path, CA, **settings) as broker:
        assert await altered(broker, LOCATION, new.write(tmp_path / "new.pem")) == ""
        assert await served(broker) == new.certificate.serial_number


async def test_altered_trust_store(tmp_path: Path) -> None:
    """Clients of a new authority come in once it is in the store."""
    context = trusting(CA, OTHER.issue("bob"), tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(CA.pem + OTHER.pem)
    async with tls_broker(tmp_path, CA, ssl__client__auth="required") as broker:

        def come() -> int:
            with (
                socket.create_connection(address(broker), WAIT_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                return ask_over(connection).error_code

        with pytest.raises(OSError):
            await asyncio.to_thread(come)
        assert await altered(broker, "listener.name.tls.ssl.truststore.location", both) == ""
        assert await asyncio.to_thread(come) == 0


@pytest.mark.parametrize(("days", "event"), [(-1, "the certificate has ended"), (5, "the certificate ends soon")])
async def test_log_says_that_a_certificate_ends(
    days: int, event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start on, once a day; and no more when another has taken its place."""
    monkeypatch.setattr(tls_listener, "LOOK_EVERY_MS", 50)
    old = CA.issue("broker", days=days)
    async with tls_broker(tmp_path, CA, old) as broker:
        end = old.certificate.not_valid_after_utc.isoformat()
        assert said(broker, event) == [{"listener": "TLS", "end": end}]
        wall_ms = partial(SystemClock.wall_ms, broker.runtime.clock)
        monkeypatch.setattr(SystemClock, "wall_ms", lambda _: wall_ms() + DAY_MS)
        await until(broker, lambda: len(said(broker, event)) == 2)
        replace(CA.issue("broker", days=tls_listener.ENDS_SOON_DAYS + 2), tmp_path / "broker.pem")
        await until(broker, lambda: bool(said(broker, "certificates replaced")))
        assert len(said(broker, event)) == 2
