"""Clients of four kinds over TLS: with and without certificates, and with a login on top."""

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from tests.java_tools import run_tool
from tests.tls.brokers import address, reasons, tls_broker
from tests.tls.certificates import PASSWORD, Authority

WAIT_S = 30
CA = Authority()
VALUES = [f"value {number}".encode() for number in range(5_000)]
MANY = [f"value {number}".encode() for number in range(100_000)]
USER, SECRET = "alice", "sesame"


Values = Sequence[bytes]


class Door:
    """Where clients go, and what they show."""

    def __init__(self, bootstrap: str, directory: Path, *, logs_in: bool) -> None:
        self.bootstrap = bootstrap
        self.ca = str(directory / "ca.pem")
        self.shown = str(CA.issue("client").write(directory / "client.pem"))
        self.logs_in = logs_in

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.logs_in else "SSL"

    def of_librdkafka(self) -> dict[str, object]:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": SECRET} if self.logs_in else {}
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.shown,
            "ssl.key.location": self.shown,
            **login,
        }

    def of_python(self) -> dict[str, object]:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.shown)
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": SECRET}
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "ssl_context": context,
            **(login if self.logs_in else {}),
        }

    def of_java(self, path: Path) -> Path:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        lines = [
            f"security.protocol={self.protocol}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.ca}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.shown}",
            "sasl.mechanism=PLAIN" if self.logs_in else "",
            f'sasl.jaas.config={module} required username="{USER}" password="{SECRET}";' if self.logs_in else "",
        ]
        path.write_text("\n".join(lines))
        return path


def by_confluent(door: Door, values: Values = VALUES) -> list[bytes]:
    producer = confluent_kafka.Producer(door.of_librdkafka() | {"queue.buffering.max.messages": 2 * len(MANY)})
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    reader = confluent_kafka.Consumer(door.of_librdkafka() | {"group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["t"])
    taken: list[bytes] = []
    while len(taken) < len(values):
        taken += [message.value() for message in reader.consume(min(len(values) - len(taken), 10_000), WAIT_S)]
    reader.close()
    return taken


def by_kafka_python(door: Door, values: Values = VALUES) -> list[bytes]:
    producer = kafka.KafkaProducer(**door.of_python(), linger_ms=5)
    for value in values:
        producer.send("t", value, partition=0)
    producer.flush(WAIT_S)
    producer.close()
    reader = kafka.KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **door.of_python())
    taken = [next(reader).value for _ in values]
    reader.close()
    return taken


def by_aiokafka(door: Door, values: Values = VALUES) -> list[bytes]:
    async def both() -> list[bytes]:
        async with AIOKafkaProducer(**door.of_python(), linger_ms=5) as producer:
            for value in values:
                last = await producer.send("t", value, partition=0)
            await last
        reader = AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **door.of_python())
        async with reader, asyncio.timeout(WAIT_S):
            return [(await reader.getone()).value for _ in values]

    return asyncio.run(both())


def settings_of(directory: Path, *, logs_in: bool) -> dict[str, str]:
    if not logs_in:
        return {"listener__name__tls__ssl__client__auth": "required"}
    users = directory / "users"
    users.write_text(f"{USER}:{SECRET}\n")
    users.chmod(0o600)
    return {
        "listener__security__protocol__map": "PLAINTEXT:PLAINTEXT,TLS:SASL_SSL",
        "sasl__enabled__mechanisms": "PLAIN",
        "listener__name__tls__plain__users__file": str(users),
    }


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client", [by_confluent, by_kafka_python, by_aiokafka])
async def test_records_over_tls(tmp_path: Path, client: Callable[[Door], list[bytes]], version: str) -> None:
    settings = settings_of(tmp_path, logs_in=False) | {"ssl__enabled__protocols": version}
    async with tls_broker(tmp_path, CA, **settings) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=False)
        assert await asyncio.to_thread(client, door) == VALUES


@pytest.mark.slow
@pytest.mark.parametrize("client", [by_confluent, by_kafka_python, by_aiokafka])
async def test_a_hundred_thousand_records_over_tls(tmp_path: Path, client: Callable[[Door, Values], Values]) -> None:
    """SEC01: in their order."""
    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=False)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=False)
        assert await asyncio.to_thread(client, door, MANY) == MANY


async def test_client_without_tls_soon_hears_of_it(tmp_path: Path) -> None:
    """SEC01: and the broker's log says why."""
    async with tls_broker(tmp_path, CA) as broker:
        heard: list[str] = []
        bootstrap = "{}:{}".format(*address(broker))
        client = AdminClient({"bootstrap.servers": bootstrap, "error_cb": lambda error: heard.append(error.str())})

        def listen() -> float:
            began_s = time.monotonic()
            while not heard:
                client.poll(0.1)
            return time.monotonic() - began_s

        assert await asyncio.to_thread(listen) < 5
    why = "the client speaks Kafka's protocol without TLS, and this listener Kafka's protocol with TLS"
    assert reasons(broker)[0] == why


@pytest.mark.parametrize("client", [by_confluent, by_kafka_python, by_aiokafka])
async def test_login_over_tls(tmp_path: Path, client: Callable[[Door], list[bytes]]) -> None:
    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=True)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=True)
        assert await asyncio.to_thread(client, door) == VALUES


CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("logs_in", "count"), [(False, 100_000), (True, 50)])
async def test_java_over_tls(tmp_path: Path, logs_in: bool, count: int) -> None:
    """SEC01, of Kafka's own clients."""

    def by_java() -> list[str]:
        config = door.of_java(tmp_path / "client.properties")
        common = ("--bootstrap-server", door.bootstrap, "--topic", "t")
        words = [f"word {number}" for number in range(count)]
        run_tool(CONSOLE_PRODUCER, *common, "--producer.config", config, stdin="".join(f"{word}\n" for word in words))
        options = ("--consumer.config", config, "--from-beginning", "--max-messages", str(count))
        assert run_tool(CONSOLE_CONSUMER, *common, *options).splitlines()[:count] == words
        return words

    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=logs_in)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=logs_in)
        assert len(await asyncio.to_thread(by_java)) == count


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("logs_in", [False, True])
async def test_kcat_over_tls(tmp_path: Path, logs_in: bool) -> None:
    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=logs_in)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=logs_in)
        settings = [word for name, value in door.of_librdkafka().items() for word in ("-X", f"{name}={value}")]

        def kcat(*words: str, stdin: str = "") -> str:
            command = ["kcat", *settings, "-t", "t", *words]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=True)
            return done.stdout

        await asyncio.to_thread(kcat, "-P", stdin="a\nb\n")
        assert await asyncio.to_thread(kcat, "-C", "-e", "-q", "-o", "beginning") == "a\nb\n"


async def test_nothing_secret_is_written(tmp_path: Path) -> None:
    """Neither in the log, at its lowest level, nor in what DescribeConfigs says."""
    from confluent_kafka.admin import AdminClient, ConfigResource

    server = CA.issue("broker")
    settings = {
        "listener__name__tls__ssl__keystore__location": "",
        "listener__name__tls__ssl__keystore__key": server.encrypted_key_pem,
        "listener__name__tls__ssl__keystore__certificate__chain": server.chain_pem,
        "ssl__key__password": PASSWORD,
    }
    async with tls_broker(tmp_path, CA, **settings) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=False)
        admin = AdminClient(door.of_librdkafka())
        resource = ConfigResource(ConfigResource.Type.BROKER, "0")
        found = (await asyncio.to_thread(lambda: admin.describe_configs([resource])[resource].result(WAIT_S))).values()
        shown = str([(each.name, each.value, each.synonyms) for each in found])
        assert "listener.name.tls.ssl.keystore.key" in shown
        written = f"{shown} {broker.runtime.log.events}"  # type: ignore[attr-defined]
    for secret in (PASSWORD, *server.encrypted_key_pem.splitlines()[1:3], server.chain_pem.splitlines()[1]):
        assert secret not in written
