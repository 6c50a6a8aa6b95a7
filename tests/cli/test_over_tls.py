"""Commands that speak TLS: with plain options, with Kafka's client properties, and with a login on top."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import BrokerThread
from tests.cli.runner import run
from tests.tls.brokers import of_listener
from tests.tls.certificates import PASSWORD, Authority

CA, OTHER = Authority(), Authority("Another CA")
SERVER, ALICE = CA.issue("broker"), CA.issue("alice")
ELSEWHERE = CA.issue("broker", hosts=("elsewhere.example",))


def settings(directory: Path, server: object = SERVER, **more: str) -> dict[str, object]:
    return {
        "listeners": "TLS://127.0.0.1:0",
        "listener.security.protocol.map": "TLS:SSL",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        # The broker is a client of its own listener too, so the check of its name stays out where it has another.
        "ssl.endpoint.identification.algorithm": "",
        **of_listener(
            "tls",
            keystore_location=server.write(directory / "broker.pem"),  # type: ignore[attr-defined]
            truststore_location=CA.write(directory / "ca.pem"),
            **more,
        ),
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    ALICE.write(made / "alice.pem")
    OTHER.write(made / "other.pem")
    return made


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[BrokerThread]:
    with BrokerThread(settings=settings(directory, client_auth="required")) as started:
        yield started


def ottla(broker: BrokerThread, *arguments: object, stdin: str = "", status: int = 0) -> str:
    words = map(str, (*arguments, "--bootstrap", broker.bootstrap, "--request-timeout", "10"))
    result = run(*words, stdin=stdin)
    assert result.exit_code == status, result.output
    return result.output


def test_commands_with_options(broker: BrokerThread, directory: Path) -> None:
    tls = ("--ca", directory / "ca.pem", "--cert", directory / "alice.pem")

    ottla(broker, "topics", "create", "t", *tls)
    ottla(broker, "produce", "t", *tls, stdin="a\nb\n")
    assert ottla(broker, "consume", "t", "--from-beginning", "--max-messages", "2", *tls).split() == ["a", "b"]
    assert "t" in ottla(broker, "topics", "list", *tls)
    assert broker.bootstrap in ottla(broker, "ping", *tls)


def test_commands_with_kafkas_properties(broker: BrokerThread, directory: Path) -> None:
    path = directory / "client.properties"
    inline = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": ALICE.encrypted_key_pem,
        "ssl.keystore.certificate.chain": ALICE.chain_pem,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
    }
    path.write_text(
        "".join(f"{key}={value}\n".replace("\n", "\\n", value.count("\n")) for key, value in inline.items())
    )

    assert broker.bootstrap in ottla(broker, "ping", "--command-config", path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "closed the connection; is it a Kafka-protocol listener without TLS?"),
        (("--ca", "other.pem"), "certificate in certificate chain; --ca names the file with the authority to trust"),
        (("--tls",), "certificate in certificate chain; --ca names the file with the authority to trust"),
        (("--ca", "ca.pem"), "the other side wants a certificate"),
    ],
)
def test_what_does_not_work_has_its_sentence(
    broker: BrokerThread, directory: Path, options: tuple[str, ...], sentence: str
) -> None:
    given = [directory / each if each.endswith(".pem") else each for each in options]
    said = ottla(broker, "ping", *given, status=1)
    assert sentence in said or (not options and "speaks TLS: give --ca, --tls or --command-config" in said), said


def test_name_of_the_server_is_checked(tmp_path: Path) -> None:
    with BrokerThread(settings=settings(tmp_path, ELSEWHERE)) as other:
        said = ottla(other, "ping", "--ca", tmp_path / "ca.pem", status=1)
        assert "cannot trust 127.0.0.1:" in said
        assert "certificate is not valid for '127.0.0.1'" in said

        path = tmp_path / "client.properties"
        lines = ("security.protocol=SSL", f"ssl.truststore.location={tmp_path / 'ca.pem'}")
        path.write_text("\n".join((*lines, "ssl.endpoint.identification.algorithm=", "")))
        assert other.bootstrap in ottla(other, "ping", "--command-config", path)


def test_server_without_tls(directory: Path) -> None:
    with BrokerThread() as plain:
        said = ottla(plain, "ping", "--ca", directory / "ca.pem", status=1)
        assert "it closes the connection in the TLS handshake, as what speaks no TLS does" in said


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        ("security.protocol=PLAINTEXT", ["--tls"], "--tls asks for TLS, and security.protocol=PLAINTEXT for none"),
        ("security.protocol=SSL\nssl.truststore.type=JKS", [], "only PEM stores are read; `keytool -importkeystore"),
        ("security.protocol=SSL\nssl.keystore.password=hidden", [], "ssl.keystore.password: stores are PEM files"),
        (
            "security.protocol=SSL\nssl.truststore.location=/no/file",
            [],
            "ssl.truststore.location: cannot read /no/file",
        ),
        ("security.protocol=SSL", ["--user", "a"], "--user logs in, but security.protocol=SSL of"),
    ],
)
def test_what_cannot_be(tmp_path: Path, lines: str, options: list[str], sentence: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{lines}\n")
    result = run("ping", "--command-config", str(path), *options)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert "hidden" not in result.output


def test_login_over_tls(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:sesame\n")
    users.chmod(0o600)
    over = settings(tmp_path) | {
        "listener.security.protocol.map": "TLS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.tls.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="sesame" user_alice="sesame";',
    }
    password = tmp_path / "password"
    password.write_text("sesame")
    options = ("--ca", tmp_path / "ca.pem", "--user", "alice", "--password-file", password, "--sasl-mechanism", "PLAIN")
    with BrokerThread(settings=over) as both:
        ottla(both, "topics", "create", "t", *options)
        ottla(both, "produce", "t", *options, stdin="a\n")
        assert ottla(both, "consume", "t", "--from-beginning", "--max-messages", "1", *options).split() == ["a"]
        said = ottla(both, "topics", "list", "--ca", tmp_path / "ca.pem", status=1)
        assert "as a listener does that wants a login" in said
