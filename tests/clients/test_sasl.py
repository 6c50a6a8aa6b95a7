"""Clients of three kinds, commands and brokers log in by PLAIN and SCRAM; some again while they go on."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from ottla import ClusterThread
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.close_reasons import CloseReason
from ottla.cli.app import cli
from tests.broker.wire import RecordingLog

WAIT_S = 20
DELAY_MS = 100
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USER, PASSWORD = "alice", "sesame"
VALUES = [b"a", b"b", b"c"]
LIFETIME_MS = 2_000


def create_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    admin.alter_user_scram_credentials(wanted)[USER].result(WAIT_S)


@asynccontextmanager
async def broker_with_sasl(directory: Path, **settings: str) -> AsyncIterator[Broker]:
    users = directory / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    users.chmod(0o600)
    static = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.plain.users.file": str(users),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    } | {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(ServerConfig(static), data_dir=directory / "data", log=RecordingLog())
    await broker.start()
    await asyncio.to_thread(create_user, broker.listeners.bootstrap)
    try:
        yield broker
    finally:
        await broker.stop()


def address(broker: Broker) -> str:
    return next(each.address for each in broker.listeners.endpoints if each.name == "SASL")


def of_librdkafka(bootstrap: str, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def of_python(bootstrap: str, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def by_confluent(bootstrap: str, mechanism: str) -> list[bytes]:
    common = of_librdkafka(bootstrap, mechanism, PASSWORD)
    producer = confluent_kafka.Producer(common)
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    reader = confluent_kafka.Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["t"])
    taken = reader.consume(len(VALUES), WAIT_S)
    reader.close()
    return [message.value() for message in taken]


def by_kafka_python(bootstrap: str, mechanism: str) -> list[bytes]:
    common = of_python(bootstrap, mechanism, PASSWORD)
    producer = kafka.KafkaProducer(**common)
    for value in VALUES:
        producer.send("t", value, partition=0).get(WAIT_S)
    producer.close()
    reader = kafka.KafkaConsumer(
        "t", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000, **common
    )
    taken = [next(reader).value for _ in VALUES]
    reader.close()
    return taken


async def by_aiokafka(bootstrap: str, mechanism: str) -> list[bytes]:
    common = of_python(bootstrap, mechanism, PASSWORD)
    async with AIOKafkaProducer(**common) as producer:
        for value in VALUES:
            await producer.send_and_wait("t", value, partition=0)
    async with AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **common) as reader:
        return [(await asyncio.wait_for(reader.getone(), WAIT_S)).value for _ in VALUES]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [by_confluent, by_kafka_python])
async def test_a_client_logs_in(tmp_path: Path, client: Callable[[str, str], list[bytes]], mechanism: str) -> None:
    async with broker_with_sasl(tmp_path) as broker:
        assert await asyncio.to_thread(client, address(broker), mechanism) == VALUES
        assert broker.server.sasl["SASL"].ended.keys() == {("login", mechanism, "success")}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in(tmp_path: Path, mechanism: str) -> None:
    async with broker_with_sasl(tmp_path) as broker:
        assert await by_aiokafka(address(broker), mechanism) == VALUES
        assert broker.server.sasl["SASL"].ended.keys() == {("login", mechanism, "success")}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
async def test_kcat_logs_in(tmp_path: Path) -> None:
    """By PLAIN: with SCRAM, a librdkafka before 2.6.1, which many a kcat has, repeats its nonce and is refused."""
    mechanism = "PLAIN"
    async with broker_with_sasl(tmp_path) as broker:

        def kcat(*words: str, password: str = PASSWORD, stdin: str = "") -> subprocess.CompletedProcess[str]:
            config = of_librdkafka(address(broker), mechanism, password)
            settings = [word for name, value in config.items() for word in ("-X", f"{name}={value}")]
            command = ["kcat", *settings, "-t", "t", *words]
            return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=False)

        produced = await asyncio.to_thread(kcat, "-P", stdin="a\nb\n")
        consumed = await asyncio.to_thread(kcat, "-C", "-e", "-q", "-o", "beginning")
        refused = await asyncio.to_thread(kcat, "-L", "-m", "3", password="wrong")
    assert (produced.returncode, consumed.stdout) == (0, "a\nb\n")
    assert refused.returncode != 0
    assert "Authentication failed" in refused.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_keeps_clients_out(tmp_path: Path, mechanism: str) -> None:
    async with broker_with_sasl(tmp_path) as broker:
        began = time.monotonic()
        with pytest.raises(KafkaError):
            await AIOKafkaProducer(**of_python(address(broker), mechanism, "wrong"), request_timeout_ms=2_000).start()
        took_ms = (time.monotonic() - began) * 1000
        heard = await asyncio.to_thread(what_confluent_hears, address(broker), mechanism)
        assert broker.server.sasl["SASL"].ended.keys() == {("login", mechanism, "failure")}

    assert took_ms >= DELAY_MS
    sentence = "Invalid username or password" if mechanism == "PLAIN" else f"SASL mechanism {mechanism}"
    assert sentence in heard


def what_confluent_hears(bootstrap: str, mechanism: str) -> str:
    heard: list[str] = []
    settings = of_librdkafka(bootstrap, mechanism, "wrong") | {"error_cb": lambda error: heard.append(error.str())}
    producer = confluent_kafka.Producer(settings)
    deadline = time.monotonic() + WAIT_S
    while not any("SASL" in each for each in heard) and time.monotonic() < deadline:
        producer.poll(0.1)
    return "\n".join(heard)


async def test_a_session_is_renewed_while_a_client_produces(tmp_path: Path) -> None:
    async with broker_with_sasl(tmp_path, connections_max_reauth_ms=str(LIFETIME_MS)) as broker:
        ended = broker.server.sasl["SASL"].ended
        producer = confluent_kafka.Producer(of_librdkafka(address(broker), "SCRAM-SHA-256", PASSWORD))
        failed: list[object] = []
        async with asyncio.timeout(WAIT_S):
            while ended["renewal", "SCRAM-SHA-256", "success"] < 3:
                producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
                producer.poll(0)
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(producer.flush, WAIT_S) == 0

        assert failed == []
        assert ended["renewal", "SCRAM-SHA-256", "failure"] == 0
        assert ("SASL", CloseReason.SESSION_EXPIRED) not in broker.server.closed


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_command_logs_in(tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    login = ["--user", USER, "--password-file", str(password), "--sasl-mechanism", mechanism]
    async with broker_with_sasl(tmp_path) as broker:
        command = ["users", "list", "--bootstrap", address(broker)]
        done = await asyncio.to_thread(CliRunner().invoke, cli, [*command, *login])
        refused = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert (done.exit_code, USER in done.output) == (0, True)
    assert refused.exit_code == 1


def test_brokers_and_clients_of_a_cluster_log_in() -> None:
    """By one listener for both: followers copy, transactions are verified and sessions renewed."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    options = f'username="broker" password="between us" user_broker="between us" user_{USER}="{PASSWORD}"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{module} required {options};",
        "connections.max.reauth.ms": LIFETIME_MS,
        "min.insync.replicas": 3,
    }
    with ClusterThread(brokers=3, settings=settings) as cluster:
        common = of_librdkafka(cluster.bootstrap, "PLAIN", PASSWORD)
        admin = AdminClient(common)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WAIT_S)
        producer = confluent_kafka.Producer(common | {"transactional.id": "id"})
        producer.init_transactions(WAIT_S)
        until = time.monotonic() + 2 * LIFETIME_MS / 1000
        while time.monotonic() < until:
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("t", b"x", partition=partition)
            producer.commit_transaction(WAIT_S)
