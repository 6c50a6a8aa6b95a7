"""The admin listener with TLS: who gets in, what commands make of it, and what is refused."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.tls import LOOK_EVERY_MS
from ottla.broker.runtime import StartError
from ottla.cli.client import ClientConfig
from ottla.cli.doctor.connecting import clock_at
from ottla.cli.operations.cluster_health import cluster_health
from ottla.protocol.address import Address, parse_address
from tests.broker.wire import RecordingLog
from tests.ports import free_ports
from tests.tls.certificates import PASSWORD, Authority

CA = Authority("CA of admin listeners")
ABOUT_CLIENTS = "/api/v1/node/connections"
BAD_REQUEST_WITHIN_S = 20


class Files:
    def __init__(self, directory: Path) -> None:
        self.ca = CA.write(directory / "ca.pem")
        self.server = CA.issue("admin").write(directory / "server.pem")
        self.client = CA.issue("prometheus", hosts=()).write(directory / "client.pem")
        self.encrypted = directory / "encrypted.pem"
        certificate = CA.issue("admin")
        self.encrypted.write_text(certificate.encrypted_key_pem + certificate.chain_pem)
        self.encrypted.chmod(0o600)

    def trusting(self, *, shows: bool = False, ca: Authority = CA) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=ca.pem)
        if shows:
            context.load_cert_chain(self.client)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def config(host: str = "127.0.0.1", port: int = 0, **properties: object) -> ServerConfig:
    """Properties are those of `ottla.admin.ssl.`, with underscores for dots."""
    own = {f"ottla.admin.ssl.{name.replace('_', '.')}": str(value) for name, value in properties.items()}
    return ServerConfig({"ottla.admin.listener": f"{host}:{port}", **own})


@asynccontextmanager
async def broker_with(directory: Path, settings: ServerConfig) -> AsyncIterator[Broker]:
    broker = Broker(settings, data_dir=directory / "data", port=0, log=RecordingLog())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def port_of(broker: Broker) -> int:
    return int(broker.admin_url.rpartition(":")[2])


def page(port: int, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def asked(broker: Broker, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    return await asyncio.to_thread(page, port_of(broker), path, context)


async def ottla_health(*arguments: object) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ottla", "health", *map(str, arguments)), stdout=-1, stderr=-1
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + err).decode()


async def test_pages_are_served_by_https_alone(tmp_path: Path, files: Files) -> None:
    async with broker_with(tmp_path, config(keystore_location=files.server)) as broker:
        assert broker.admin_url == f"https://127.0.0.1:{port_of(broker)}"
        assert (await asked(broker, "/health/ready", files.trusting()))[0] == 200
        status, metrics = await asked(broker, "/metrics", files.trusting())
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n")
        in_the_clear = await asyncio.wait_for(reader.read(), BAD_REQUEST_WITHIN_S)
        writer.close()

    assert status == 200
    assert b"ottla_loop_lateness_seconds" in metrics
    assert b"HTTP" not in in_the_clear


async def test_many_requests_come_on_one_connection(tmp_path: Path, files: Files) -> None:
    async with broker_with(tmp_path, config(keystore_location=files.server)) as broker:

        def several() -> list[int]:
            connection = HTTPSConnection("127.0.0.1", port_of(broker), timeout=10, context=files.trusting())
            statuses = []
            for path in ("/metrics", "/health/live", "/nowhere", "/metrics"):
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
            connection.close()
            return statuses

        assert await asyncio.to_thread(several) == [200, 200, 404, 200]


async def test_where_certificates_are_required_none_get_in_without(tmp_path: Path, files: Files) -> None:
    settings = config(keystore_location=files.server, truststore_location=files.ca, client_auth="required")
    async with broker_with(tmp_path, settings) as broker:
        with pytest.raises((OSError, HTTPException)):
            await asked(broker, "/health/live", files.trusting())
        assert (await asked(broker, "/health/live", files.trusting(shows=True)))[0] == 200


async def test_pages_about_clients_are_for_those_with_a_certificate(tmp_path: Path, files: Files) -> None:
    settings = config("0.0.0.0", keystore_location=files.server, truststore_location=files.ca, client_auth="requested")
    async with broker_with(tmp_path, settings) as broker:
        refused = await asked(broker, ABOUT_CLIENTS, files.trusting())
        status, _ = await asked(broker, ABOUT_CLIENTS, files.trusting(shows=True))
        assert (await asked(broker, "/health/live", files.trusting()))[0] == 200

    assert refused[0] == 403
    assert b"ottla.admin.ssl.client.auth" in refused[1]
    assert status == 200


async def test_ottla_health_asks_by_https(tmp_path: Path, files: Files) -> None:
    settings = config(keystore_location=files.server, truststore_location=files.ca, client_auth="required")
    async with broker_with(tmp_path, settings) as broker:
        url = broker.admin_url
        assert await ottla_health("--url", url, "--ca", files.ca, "--cert", files.client) == (0, "ready\n")
        # As click reads it.
        options = ("--timeout", "5", "--url", f"{url}/health/live", "--ca", files.ca, "--cert", files.client)
        assert await ottla_health(*options) == (0, "alive\n")
        status, said = await ottla_health("--url", url)
        assert (status, said.count("\n")) == (3, 1)
        assert "certificate verify failed" in said
        assert (await ottla_health("--url", url.replace("https", "http")))[0] == 3
        assert (await ottla_health("--url", url, "--ca", "/nowhere.pem"))[0] == 3
        status, said = await ottla_health("--url", "http://127.0.0.1:1", "--ca", files.ca)
        assert (status, said) == (3, "ottla: no answer from http://127.0.0.1:1: --ca and --cert are for https://\n")


async def test_commands_ask_with_the_tls_that_they_have(tmp_path: Path, files: Files) -> None:
    """`ottla cluster health` and `ottla doctor`, whose clients trust the same authority."""
    # A port that is in the properties, as commands see them.
    settings = config(port=free_ports(1)[0], keystore_location=files.server)
    async with broker_with(tmp_path, settings) as broker:
        at = [parse_address(broker.bootstrap)]
        trusting = files.trusting()
        health = await cluster_health(_PlainTo(at, 10, None, trusting))
        strange = await cluster_health(_PlainTo(at, 10, None, files.trusting(ca=Authority("another"))))
        admin = Address("127.0.0.1", port_of(broker))
        clock = await clock_at(admin, trusting)
        assert await clock_at(admin, None) is None

    assert health.is_healthy, health
    assert "no TLS with its admin listener" in strange.reasons[0]
    assert clock is not None
    assert abs(clock[0]) < 2000


class _PlainTo(ClientConfig):
    """Brokers are reached without TLS here."""

    def client(self):  # type: ignore[no-untyped-def]
        return ClientConfig(self.bootstrap, self.timeout_s).client()


async def test_a_connection_without_a_handshake_ends(tmp_path: Path, files: Files) -> None:
    async with broker_with(tmp_path, config(keystore_location=files.server)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        # One that breaks off in the middle of it leaves nothing.
        with socket.create_connection(("127.0.0.1", port_of(broker))) as half:
            half.sendall(b"\x16\x03\x01\x02\x00")
        assert (await asked(broker, "/health/live", files.trusting()))[0] == 200


async def test_new_certificates_count_without_a_restart(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.admin.tls.LOOK_EVERY_MS", 0)
    assert LOOK_EVERY_MS == 10_000
    other = Authority("the next one")
    async with broker_with(tmp_path, config(keystore_location=files.server)) as broker:
        files.server.write_text("no PEM")
        assert (await asked(broker, "/health/live", files.trusting()))[0] == 200
        new = other.issue("admin").write(tmp_path / "new.pem")
        new.replace(files.server)
        assert (await asked(broker, "/health/live", files.trusting(ca=other)))[0] == 200
        events = [event for event, _ in broker.log.events]  # type: ignore[attr-defined]

    assert [each for each in events if "certificates" in each] == [
        "certificates of the admin listener are not replaced",
        "certificates of the admin listener replaced",
    ]


async def test_an_encrypted_key_is_read_and_its_password_hidden(tmp_path: Path, files: Files) -> None:
    async with broker_with(tmp_path, config(keystore_location=files.encrypted, key_password=PASSWORD)) as broker:
        assert (await asked(broker, "/health/live", files.trusting()))[0] == 200
    with pytest.raises(StartError, match=r"the admin listener .*: its password is wrong") as refused:
        async with broker_with(tmp_path, config(keystore_location=files.encrypted, key_password="a wrong one")):
            pass
    assert "a wrong one" not in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"keystore_location": "/nowhere.pem"}, "ottla.admin.ssl.keystore.location: cannot read /nowhere.pem"),
        ({"truststore_location": "ca.pem"}, "ottla.admin.ssl.truststore.location: it needs ottla.admin.ssl.keystore.l"),
        ({"client_auth": "required"}, "ottla.admin.ssl.client.auth: it needs ottla.admin.ssl.keystore.location"),
        ({"client_auth": "required", "keystore_location": ""}, "ottla.admin.ssl.client.auth: required needs ottla.adm"),
    ],
)
async def test_what_cannot_be_ends_the_start(
    tmp_path: Path, files: Files, properties: dict[str, str], sentence: str
) -> None:
    given = {name: value or files.server for name, value in properties.items()}
    with pytest.raises(StartError) as refused:
        async with broker_with(tmp_path, config(**given)):
            pass
    assert str(refused.value).startswith(sentence)
