"""Commands that log in: at brokers whose listeners want it, and at servers that do something else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.broker import broker as broker_module
from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import LoginFailed, NoAnswer
from ottla.protocol.address import Address, parse_address
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import run
from tests.security.servers import SaslDoors, SaslUser

PASSWORD = "her password"
ALICE = LoginCredentials("PLAIN", "alice", Secret(PASSWORD))


@pytest.fixture(scope="module")
def doors() -> SaslDoors:
    """The broker asks itself without a login, for it has none."""
    return SaslDoors(SaslUser("alice", PASSWORD), must_log_in=lambda client_id: not client_id.startswith("broker-"))


@pytest.fixture(scope="module")
def broker(doors: SaslDoors) -> Iterator[BrokerThread]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "TcpNetwork", doors.network)
        with BrokerThread(settings={"group.initial.rebalance.delay.ms": 0}) as started:
            yield started


@pytest.fixture
def as_alice(tmp_path: Path) -> list[str]:
    path = tmp_path / "password"
    path.write_text(PASSWORD)
    return ["--user", "alice", "--password-file", str(path)]


def ottla(broker: BrokerThread, *arguments: str, stdin: str = "", status: int = 0) -> str:
    result = run(*arguments, "--bootstrap", broker.bootstrap, "--request-timeout", "10", stdin=stdin)
    assert result.exit_code == status, result.output
    assert PASSWORD not in result.output
    return result.output


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
def test_commands_log_in_by_each_mechanism(broker: BrokerThread, as_alice: list[str], mechanism: str) -> None:
    topic = f"t-{mechanism}"
    login = [*as_alice, "--sasl-mechanism", mechanism.lower()]

    ottla(broker, "topics", "create", topic, *login)
    ottla(broker, "produce", topic, *login, stdin="a\nb\n")

    assert ottla(broker, "consume", topic, "--from-beginning", "--exit-at-end", *login) == "a\nb\n"
    assert topic in ottla(broker, "topics", "list", *login)


def test_groups_transactions_and_measurements_log_in_too(broker: BrokerThread, as_alice: list[str]) -> None:
    ottla(broker, "produce", "more", "--transactional-id", "id", *as_alice, stdin="a\nb\n")
    ottla(broker, "consume", "more", "--group", "g", "--from-beginning", "--max-messages", "2", *as_alice)
    ottla(broker, "perf", "produce", "more", "--records", "10", *as_alice)
    ottla(broker, "perf", "consume", "more", *as_alice)

    assert "g" in ottla(broker, "groups", "list", *as_alice)
    assert "id" in ottla(broker, "transactions", "list", *as_alice)
    assert broker.bootstrap in ottla(broker, "ping", *as_alice)


def test_properties_of_kafka_log_in(broker: BrokerThread, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="alice" password="{PASSWORD}";\n'
    )

    ottla(broker, "cluster", "status", "--command-config", str(path))


def test_password_and_properties_may_be_variables(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTTLA_PASSWORD", PASSWORD)
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(path))

    result = run("topics", "list", "--user", "alice")

    assert result.exit_code == 0, result.output


def test_a_wrong_password_is_one_sentence(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PASSWORD", "wrong")
    for mechanism, why in (
        ("PLAIN", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-512",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
    ):
        said = ottla(broker, "topics", "list", "--user", "alice", "--sasl-mechanism", mechanism, status=1)
        assert said == f"Error: cannot log in to {broker.bootstrap} as alice: {why}\n"


def test_a_command_without_a_login_says_how_to_log_in(broker: BrokerThread) -> None:
    assert ottla(broker, "topics", "list", status=1) == (
        f"Error: {broker.bootstrap} closed the connection at the first request, as a listener does that wants a login "
        "(SASL): give --user and --password-file, or --command-config\n"
    )


def test_shell_completes_names_of_who_is_logged_in(broker: BrokerThread, as_alice: list[str]) -> None:
    ottla(broker, "topics", "create", "completed", *as_alice)
    typed = " ".join(["ottla", "topics", "describe", "--bootstrap", broker.bootstrap, *as_alice, "compl"])
    environment = {"_OTTLA_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}

    assert "completed" in run_with(environment)


def run_with(environment: dict[str, str]) -> str:
    from click.testing import CliRunner

    from ottla.cli.app import cli

    return CliRunner().invoke(cli, [], prog_name="ottla", env=environment).output


# What the doctor says.


def examined(broker: BrokerThread, *arguments: str, status: int) -> dict[str, dict[str, str]]:
    result = run("doctor", "--bootstrap", broker.bootstrap, "--for", "0", "--json", "--silence", "D11", *arguments)
    assert result.exit_code == status, result.output
    return {each["id"]: each for each in json.loads(result.stdout)["findings"]}


def test_doctor_logs_in_everywhere(broker: BrokerThread, doors: SaslDoors, as_alice: list[str]) -> None:
    before = len(doors.failures)

    assert examined(broker, "--silence", "D12", *as_alice, status=0) == {}
    assert doors.failures[before:] == []


def test_doctor_finds_that_a_login_is_wanted_and_which(broker: BrokerThread) -> None:
    found = examined(broker, status=1)["D1.login-wanted"]

    wanted = "wants a login (SASL) by SCRAM-SHA-256 or SCRAM-SHA-512 or PLAIN, and none was given"
    assert found["text"] == f"{broker.bootstrap} {wanted}"
    assert "--user NAME" in found["advice"]


def test_doctor_finds_a_login_that_is_refused(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PASSWORD", "wrong")

    found = examined(broker, "--user", "alice", status=1)["D1.login-refused"]

    assert found["text"].startswith(f"cannot log in to {broker.bootstrap} as alice: Authentication failed")
    assert "ApiVersions is answered" in "".join(found["evidence"])


# Servers that do something else.


async def failure_of(broker: FakeBroker, kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        await BrokerConnection.open(Address("127.0.0.1", broker.port), 5, ALICE)
    return str(raised.value).replace(str(broker.port), "PORT")


OK = SaslHandshakeResponse(mechanisms=["PLAIN"])


@pytest.mark.parametrize(
    ("handshake", "why"),
    [
        (
            SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"]),
            "the listener does not offer the SASL mechanism PLAIN, but SCRAM-SHA-256",
        ),
        (SaslHandshakeResponse(error_code=34), "the listener has no SASL, and wants no login"),
    ],
)
async def test_a_refused_handshake_has_its_sentence(handshake: SaslHandshakeResponse, why: str) -> None:
    with FakeBroker() as broker:
        broker.answer(SaslHandshakeRequest, handshake)

        assert await failure_of(broker, LoginFailed) == f"cannot log in to 127.0.0.1:PORT as alice: {why}"


@pytest.mark.parametrize("ranges", [{3: (0, 12)}, {3: (0, 12), 17: (0, 0)}], ids=["without SASL", "of old"])
async def test_broker_that_knows_no_login_is_told_apart(ranges: dict[int, tuple[int, int]]) -> None:
    with FakeBroker(ranges=ranges) as broker:
        said = await failure_of(broker, LoginFailed)

    assert said == "cannot log in to 127.0.0.1:PORT as alice: the listener has no SASL, and wants no login"


async def test_a_connection_closed_in_a_login_is_no_answer() -> None:
    def closes(_request: object, _version: int) -> None:
        raise ConnectionAbortedError

    with FakeBroker() as broker:
        broker.answer(SaslHandshakeRequest, OK)
        broker.answers[SaslAuthenticateRequest] = closes

        assert await failure_of(broker, NoAnswer) == "127.0.0.1:PORT closed the connection during the login of alice"


@pytest.mark.parametrize("newest", [0, 1, 2])
async def test_a_login_travels_in_a_version_of_both(newest: int) -> None:
    ranges = {3: (0, 12), 17: (0, 1), 36: (0, newest)}
    with FakeBroker(ranges=ranges) as broker:
        broker.answer(SaslHandshakeRequest, OK)
        broker.answer(SaslAuthenticateRequest, SaslAuthenticateResponse())
        connection = await BrokerConnection.open(Address("127.0.0.1", broker.port), 5, ALICE)
        await connection.close()

    assert broker.versions(SaslHandshakeRequest) == [1]
    assert broker.versions(SaslAuthenticateRequest) == [newest]


async def test_a_session_is_renewed_before_its_end() -> None:
    with FakeBroker() as broker:
        broker.answer(SaslHandshakeRequest, OK)
        broker.answer(SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=100))
        connection = await BrokerConnection.open(parse_address(broker.bootstrap), 5, ALICE)
        while len(broker.requests(SaslAuthenticateRequest)) < 3:
            await connection.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
        await connection.close()

    tokens = {bytes(request.auth_bytes) for request in broker.requests(SaslAuthenticateRequest)}
    assert tokens == {b"\0alice\0" + PASSWORD.encode()}
    assert len(broker.requests(MetadataRequest)) > 2
