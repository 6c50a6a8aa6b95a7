"""Who a command logs in as: what the options and Kafka's client properties say together."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.broker.config.client_properties import ClientProperties
from ottla.cli.app import cli
from ottla.cli.login import LOGIN_PARAMETERS, read_login
from ottla.security.client import LoginCredentials, Secret
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import run

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
HERS = 'required username="alice" password="her password";'


def properties(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
WHOLE = properties(*SASL, f"sasl.jaas.config={PLAIN_MODULE} {HERS}")


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("her password\nanother line\n")
    return path


def read(
    tmp_path: Path, text: str | None = None, environment: dict[str, str] | None = None, **values: object
) -> object:
    """The login, or the sentence that refuses it."""
    if text is not None:
        path = tmp_path / "client.properties"
        path.write_text(text)
        values["command_config"] = path
    try:
        return read_login(values, environment or {})[0]
    except ValueError as error:
        return str(error).replace(str(tmp_path), "DIR")


def her(mechanism: str) -> LoginCredentials:
    return LoginCredentials(mechanism, "alice", Secret("her password"))


def test_without_anything_there_is_no_login(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    assert read(tmp_path, "") is None
    assert read(tmp_path, properties("security.protocol=PLAINTEXT", "sasl.mechanism=PLAIN")) is None
    assert read(tmp_path, environment={"OTTLA_PASSWORD": "x"}) is None


def test_user_and_password_are_options(tmp_path: Path, password_file: Path) -> None:
    variable = {"OTTLA_PASSWORD": "her password"}

    assert read(tmp_path, user="alice", password_file=password_file) == her("SCRAM-SHA-512")
    assert read(tmp_path, user="alice", environment=variable) == her("SCRAM-SHA-512")
    assert read(tmp_path, user="alice", environment=variable, sasl_mechanism="PLAIN") == her("PLAIN")


def test_password_file_goes_before_the_variable(tmp_path: Path, password_file: Path) -> None:
    environment = {"OTTLA_PASSWORD": "another"}

    assert read(tmp_path, user="alice", password_file=password_file, environment=environment) == her("SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", PLAIN_MODULE), ("SCRAM-SHA-256", SCRAM_MODULE), ("SCRAM-SHA-512", SCRAM_MODULE)],
)
def test_properties_are_those_of_kafka(tmp_path: Path, mechanism: str, module: str) -> None:
    text = properties(
        "# as Kafka's tools read it",
        "bootstrap.servers: kafka-1:9092,kafka-2:9092",
        "security.protocol = sasl_plaintext",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config={module} required \\",
        '   username="alice" \\',
        '   password="her password";',
        "ssl.endpoint.identification.algorithm=",
        "client.id=mine",
    )

    assert read(tmp_path, text) == her(mechanism)


def test_user_goes_before_the_properties(tmp_path: Path, password_file: Path) -> None:
    given = {"user": "bob", "password_file": password_file}
    bob = LoginCredentials("PLAIN", "bob", Secret("her password"))

    assert read(tmp_path, WHOLE, **given) == bob
    assert read(tmp_path, properties(*SASL), **given) == bob
    assert read(tmp_path, WHOLE, **given, sasl_mechanism="SCRAM-SHA-256") == bob._replace(mechanism="SCRAM-SHA-256")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ["security.protocol=TLS"],
            "security.protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'",
        ),
        (
            [SASL[0]],
            (
                "sasl.mechanism is missing: Kafka's default GSSAPI is not supported, "
                "but PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
            ),
        ),
        (
            [SASL[0], "sasl.mechanism=OAUTHBEARER"],
            "sasl.mechanism=OAUTHBEARER is not supported, but PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are",
        ),
        (SASL, "security.protocol=SASL_PLAINTEXT needs sasl.jaas.config, or --user"),
        (
            [*SASL, f"sasl.jaas.config={SCRAM_MODULE} {HERS}"],
            "sasl.mechanism=PLAIN needs the login module PlainLoginModule, not ScramLoginModule",
        ),
        (
            [*SASL, f'sasl.jaas.config={PLAIN_MODULE} required username="alice";'],
            "sasl.jaas.config has no password",
        ),
        ([*SASL, f'sasl.jaas.config={PLAIN_MODULE} required password="s3";'], "sasl.jaas.config has no username"),
        (
            [*SASL, f'sasl.jaas.config={PLAIN_MODULE} required username="alice" password=s3'],
            "sasl.jaas.config: ';' is missing at the end of the login configuration",
        ),
        (
            [*SASL, "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;"],
            (
                "sasl.jaas.config: the login module com.sun.security.auth.module.Krb5LoginModule is not supported, "
                "but PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule are"
            ),
        ),
        ([r"security.protocol=\uXYZ"], "DIR/client.properties is not a file of properties in UTF-8"),
    ],
)
def test_each_wrong_property_has_its_sentence(tmp_path: Path, lines: list[str], sentence: str) -> None:
    assert read(tmp_path, properties(*lines)) == sentence


def test_options_that_say_too_little_are_refused(tmp_path: Path, password_file: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xff\n")

    assert read(tmp_path, password_file=password_file) == "--password-file needs --user"
    assert read(tmp_path, sasl_mechanism="PLAIN") == "--sasl-mechanism needs --user"
    missing = "--user needs --password-file, or the password in the variable OTTLA_PASSWORD"
    assert read(tmp_path, user="alice") == missing
    assert read(tmp_path, user="alice", environment={"OTTLA_PASSWORD": ""}) == missing
    assert read(tmp_path, user="alice", password_file=empty) == "DIR/empty has no password in its first line"
    assert read(tmp_path, user="alice", password_file=odd) == "the password in DIR/odd is not UTF-8"
    refused = read(tmp_path, "security.protocol=PLAINTEXT", user="alice", password_file=password_file)
    assert refused == "--user logs in, but security.protocol=PLAINTEXT of DIR/client.properties has no login"


def test_properties_that_only_look_meaningful_are_named() -> None:
    names = (
        "sasl.mechanism", "sasl.mechansim", "sasl.login.class", "sasl.kerberos.service.name", "security.providers",
        "sasl.login.refresh.window.factor", "ssl.truststore.location", "client.id", "interceptor.classes",
    )  # fmt: skip

    assert ClientProperties(dict.fromkeys(names, "x")).without_meaning == ["sasl.mechansim", "sasl.login.class"]


def commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def test_every_command_that_asks_a_broker_can_log_in() -> None:
    assert isinstance(cli, click.Group)
    for names, command in commands(cli):
        options = {parameter.name for parameter in command.params}
        assert ("bootstrap" in options) == (set(LOGIN_PARAMETERS) <= options), names


def test_wrong_usage_of_a_login_has_status_2(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\n")

    for arguments in (("--user", "alice"), ("--command-config", str(path)), ("--command-config", "no-such-file")):
        result = run("topics", "list", *arguments)
        assert (result.exit_code, "Usage: ottla topics list" in result.output) == (2, True)


def test_brokers_may_be_those_of_the_properties(tmp_path: Path) -> None:
    """Unless --bootstrap says others."""
    path = tmp_path / "client.properties"
    with FakeBroker() as broker, FakeBroker() as other:
        path.write_text(f"bootstrap.servers={broker.bootstrap}\nsasl.login.class=Mine\n")
        result = run("ping", "--command-config", str(path))
        elsewhere = run("ping", "--command-config", str(path), "--bootstrap", other.bootstrap)

    assert broker.bootstrap in result.output
    assert result.stderr == f"Warning: {path}: sasl.login.class means nothing to this command\n"
    assert other.bootstrap in elsewhere.output
