"""Clients of four kinds over TLS: with and without certificates, and with a login on top."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.java_tools import run_tool
from tests.tls.brokers import address, tls_broker
from tests.tls.certificates import PASSWORD, Authority

WAIT_S = 30
CA = Authority()
COUNT = 5_000
VALUES = [f"value {number}".encode() for number in range(COUNT)]
USER, SECRET = "alice", "sesame"


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


def by_confluent(door: Door) -> list[bytes]:
    producer = confluent_kafka.Producer(door.of_librdkafka())
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    reader = confluent_kafka.Consumer(door.of_librdkafka() | {"group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["t"])
    taken: list[bytes] = []
    while len(taken) < COUNT:
        taken += [message.value() for message in reader.consume(COUNT - len(taken), WAIT_S)]
    reader.close()
    return taken


def by_kafka_python(door: Door) -> list[bytes]:
    producer = kafka.KafkaProducer(**door.of_python())
    for value in VALUES:
        producer.send("t", value, partition=0)
    producer.flush(WAIT_S)
    producer.close()
    reader = kafka.KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **door.of_python())
    taken = [next(reader).value for _ in VALUES]
    reader.close()
    return taken


def by_aiokafka(door: Door) -> list[bytes]:
    async def both() -> list[bytes]:
        async with AIOKafkaProducer(**door.of_python()) as producer:
            for value in VALUES:
                last = await producer.send("t", value, partition=0)
            await last
        reader = AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **door.of_python())
        async with reader, asyncio.timeout(WAIT_S):
            return [(await reader.getone()).value for _ in VALUES]

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


@pytest.mark.parametrize("client", [by_confluent, by_kafka_python, by_aiokafka])
async def test_login_over_tls(tmp_path: Path, client: Callable[[Door], list[bytes]]) -> None:
    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=True)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=True)
        assert await asyncio.to_thread(client, door) == VALUES


CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize("logs_in", [False, True])
async def test_java_over_tls(tmp_path: Path, logs_in: bool) -> None:
    def by_java() -> list[str]:
        config = door.of_java(tmp_path / "client.properties")
        common = ("--bootstrap-server", door.bootstrap, "--topic", "t")
        words = [f"word {number}" for number in range(50)]
        run_tool(CONSOLE_PRODUCER, *common, "--producer.config", config, stdin="".join(f"{word}\n" for word in words))
        options = ("--consumer.config", config, "--from-beginning", "--max-messages", "50")
        assert run_tool(CONSOLE_CONSUMER, *common, *options).splitlines()[:50] == words
        return words

    async with tls_broker(tmp_path, CA, **settings_of(tmp_path, logs_in=logs_in)) as broker:
        door = Door("{}:{}".format(*address(broker)), tmp_path, logs_in=logs_in)
        assert len(await asyncio.to_thread(by_java)) == 50


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
