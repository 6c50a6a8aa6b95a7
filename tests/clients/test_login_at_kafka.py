"""The client's side of SASL at Apache Kafka 4.1: the command line, and a broker's connection to another one."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka
from ottla.broker.server.network import SocketOptions
from ottla.broker.server.peer_connection import Peer, PeerError
from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.protocol.address import Address
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret
from tests.broker.wire import running_broker
from tests.cli.runner import run
from tests.differential.brokers import JVM_OPTIONS, SHARED
from tests.java_tools import classpath

PASSWORD = 'her "password", = and more'
WITHIN_S = 90
LIFETIME_MS = 4000
KAFKA = "org.apache.kafka.common.security"
LISTENER = "listener.name.sasl_plaintext"
SASL = {
    **SHARED,
    "offsets.topic.replication.factor": "1",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(CLIENT_MECHANISMS),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": f'{KAFKA}.plain.PlainLoginModule required username="kafka" password="k" '
    # Both a string of JAAS and a value of a properties file.
    r'user_kafka="k" user_alice="her \\"password\\", = and more";',
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": f"{KAFKA}.scram.ScramLoginModule required;",
    f"{LISTENER}.scram-sha-512.sasl.jaas.config": f"{KAFKA}.scram.ScramLoginModule required;",
    "connections.max.reauth.ms": str(LIFETIME_MS),
}
SCRAM_PASSWORD = "her scram password"
USERS = [f"{name}=[name=alice,password={SCRAM_PASSWORD}]" for name in CLIENT_MECHANISMS if name.startswith("SCRAM")]


def her(mechanism: str) -> LoginCredentials:
    return LoginCredentials(mechanism, "alice", Secret(PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    classpath()
    directory = str(tmp_path_factory.mktemp("kafka"))
    node = ApacheKafka(directory, SASL, protocol="SASL_PLAINTEXT", scram=USERS)
    with node.running(JVM_OPTIONS) as server:
        address = Address("127.0.0.1", server.port)
        asyncio.run(serving(address))
        yield address
        server.kill()


async def serving(address: Address) -> None:
    """Until the broker answers who has logged in."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                async with Client([address], 5, her("SCRAM-SHA-256")) as client:
                    if (await client.metadata([])).brokers:
                        return
            except ClientError:
                await asyncio.sleep(0.2)


def ottla(address: Address, *arguments: str, stdin: str = "", status: int = 0) -> str:
    result = run(*arguments, "--bootstrap", str(address), stdin=stdin)
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
def test_commands_log_in_by_each_mechanism(
    kafka: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    monkeypatch.setenv("OTTLA_PASSWORD", her(mechanism).password.reveal())
    topic, login = f"t-{mechanism}", ("--user", "alice", "--sasl-mechanism", mechanism)

    ottla(kafka, "topics", "create", topic, *login)
    ottla(kafka, "produce", topic, *login, stdin="a\nb\n")

    assert ottla(kafka, "consume", topic, "--from-beginning", "--exit-at-end", *login) == "a\nb\n"
    assert topic in ottla(kafka, "topics", "list", *login)
    assert "127.0.0.1" in ottla(kafka, "ping", *login)


def test_properties_are_read_as_by_tools_of_kafka(kafka: Address, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={kafka}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={KAFKA}.plain.PlainLoginModule required \\\n"
        r'  username="alice" password="her \\"password\\", = and more";'
    )

    result = run("cluster", "status", "--command-config", str(path))

    assert result.exit_code == 0, result.output


def test_failures_are_told_apart(kafka: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PASSWORD", "wrong")
    for mechanism, why in (
        ("PLAIN", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
    ):
        said = ottla(kafka, "topics", "list", "--user", "alice", "--sasl-mechanism", mechanism, status=1)
        assert said == f"Error: cannot log in to {kafka} as alice: {why}\n"
    assert "wants a login (SASL)" in ottla(kafka, "topics", "list", status=1)


def test_doctor_says_which_login_is_wanted(kafka: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ottla(kafka, "doctor", "--for", "0", status=1)
    assert all(mechanism in said for mechanism in ("D1.login-wanted", *CLIENT_MECHANISMS))
    monkeypatch.setenv("OTTLA_PASSWORD", "wrong")

    assert "D1.login-refused" in ottla(kafka, "doctor", "--for", "0", "--user", "alice", status=1)


def test_library_of_produce_outlives_its_session(kafka: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not renew it, but connects again."""
    monkeypatch.setenv("OTTLA_PASSWORD", PASSWORD)
    login = ("--user", "alice", "--sasl-mechanism", "PLAIN")
    ottla(kafka, "topics", "create", "long", *login)

    ottla(kafka, "perf", "produce", "long", "--records", "70", "--throughput", "10", "--record-size", "1", *login)

    records = ottla(kafka, "consume", "long", "--from-beginning", "--exit-at-end", "--format", r"x\n", *login)
    assert records.count("x\n") == 70


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
async def test_the_session_of_a_broker_is_renewed(kafka: Address, tmp_path: Path, mechanism: str) -> None:
    """On one connection, for longer than a session lasts."""
    async with running_broker(tmp_path) as broker:
        peer = Peer(broker.runtime, broker.network, kafka, "broker-1-test", SocketOptions(), her(mechanism))
        await peer.connect()
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1.5 * LIFETIME_MS / 1000:
            assert isinstance(await peer.ask(ends()), ListOffsetsResponse)
            await asyncio.sleep(0.1)
        peer.close()


async def test_session_of_a_command_is_renewed(kafka: Address) -> None:
    """On one connection, which would be made again if it were lost."""
    async with Client([kafka], 5, her("SCRAM-SHA-512")) as client:
        began_s = time.monotonic()
        (first,) = client._connections.values()
        while time.monotonic() < began_s + 1.5 * LIFETIME_MS / 1000:
            await client.metadata([])
            await asyncio.sleep(0.1)

        assert [*client._connections.values()] == [first]


async def test_a_broker_that_is_refused_says_why(kafka: Address, tmp_path: Path) -> None:
    wrong = LoginCredentials("SCRAM-SHA-256", "alice", Secret("wrong"))
    async with running_broker(tmp_path) as broker:
        peer = Peer(broker.runtime, broker.network, kafka, "broker-1-test", SocketOptions(), wrong)
        with pytest.raises(PeerError, match=r"no login as alice: Authentication failed .* SCRAM-SHA-256"):
            await peer.connect()
        other = Peer(broker.runtime, broker.network, kafka, "broker-1-test", SocketOptions(), None)
        await other.connect()
        with pytest.raises(PeerError, match="as by a listener that wants a login"):
            await other.ask(ends())


def ends() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="no-such-topic", partitions=[partition])])
