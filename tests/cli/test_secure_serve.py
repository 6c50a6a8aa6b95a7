"""`ottla serve --secure` as a process, with the clients that it has made files for."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.cli.runner import run
from tests.cluster_processes import wait_for
from tests.java_tools import run_tool
from tests.ports import free_ports
from tests.served import ServedBroker

WAIT_S = 30
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
SECRET_FILES = ("admin.password", "broker.password", "ca-key.pem", "broker.pem")


def served(tmp_path: Path, *arguments: str) -> ServedBroker:
    return ServedBroker(tmp_path / "data", SETTINGS, arguments=["--secure", str(tmp_path / "dev"), *arguments])


def of_librdkafka(tmp_path: Path, **more: object) -> dict[str, object]:
    """The documented way from the file to the settings of confluent-kafka."""
    lines = (tmp_path / "dev" / "librdkafka.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines) | more


def command(tmp_path: Path, *arguments: str, status: int = 0) -> str:
    result = run(*arguments, "--command-config", str(tmp_path / "dev" / "client.properties"))
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def produce(tmp_path: Path, *values: bytes) -> None:
    producer = Producer(of_librdkafka(tmp_path, acks="all"))
    failures: list[object] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(tmp_path: Path, count: int) -> list[bytes]:
    consumer = Consumer(of_librdkafka(tmp_path) | {"group.id": os.urandom(4).hex(), "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    taken = [consumer.poll(WAIT_S) for _ in range(count)]
    consumer.close()
    return sorted(each.value() or b"" for each in taken if each is not None)


def test_clients_connect_with_the_files(tmp_path: Path) -> None:
    with served(tmp_path):
        command(tmp_path, "topics", "create", "t")
        produce(tmp_path, b"a", b"b")
        assert consume(tmp_path, 2) == [b"a", b"b"]
        users = [line.split() for line in command(tmp_path, "users", "list").splitlines()]
        assert users[1:] == [["admin", "SCRAM-SHA-512"], ["broker", "SCRAM-SHA-512"]]


@pytest.mark.java
def test_kafkas_tools_connect_with_the_file(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        config = tmp_path / "dev" / "client.properties"
        ask = ["--bootstrap-server", broker.bootstrap, "--command-config", config]
        run_tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "by-java", *ask)

        assert "by-java" in run_tool("org.apache.kafka.tools.TopicCommand", "--list", *ask)


def test_second_start_has_files_users_and_data(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        command(tmp_path, "topics", "create", "t")
        produce(tmp_path, b"a")
        made = {each.name: each.read_bytes() for each in (tmp_path / "dev").iterdir()}
        broker.restart()

        assert {each.name: each.read_bytes() for each in (tmp_path / "dev").iterdir()} == made
        assert consume(tmp_path, 1) == [b"a"]


def test_three_brokers_reach_each_other(tmp_path: Path) -> None:
    with served(tmp_path, "--brokers", "3") as broker:
        bootstrap = of_librdkafka(tmp_path)["bootstrap.servers"]
        assert bootstrap == broker.bootstrap
        assert len(str(bootstrap).split(",")) == 3
        topic = NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})
        admin = AdminClient(of_librdkafka(tmp_path))
        admin.create_topics([topic])["t"].result(WAIT_S)
        produce(tmp_path, *(b"%d" % number for number in range(100)))

        assert len(consume(tmp_path, 100)) == 100
        command(tmp_path, "cluster", "status")
    assert "authentication failed" not in broker.stderr
    assert "result=denied" not in broker.stderr


def test_who_lacks_password_or_grant_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("sesame\n")
    with served(tmp_path) as broker:
        ca = str(tmp_path / "dev" / "ca.pem")
        command(tmp_path, "topics", "create", "t")
        command(tmp_path, "users", "create", "alice", "--new-password-file", str(tmp_path / "new"))
        as_alice = ["--bootstrap", broker.bootstrap, "--ca", ca, "--user", "alice", "--password-file"]
        (tmp_path / "wrong").write_text("open\n")

        assert run("topics", "list", "--bootstrap", broker.bootstrap, "--ca", ca).exit_code == 1
        assert "Authentication failed" in run("topics", "list", *as_alice, str(tmp_path / "wrong")).stderr
        assert run("topics", "list", "--json", *as_alice, str(tmp_path / "new")).stdout.strip() == "[]"
        command(tmp_path, "acls", "add", "--allow-principal", "User:alice", "--operation", "DESCRIBE", "--topic", "t")
        assert '"t"' in run("topics", "list", "--json", *as_alice, str(tmp_path / "new")).stdout
        without_ca = of_librdkafka(tmp_path)
        without_ca["ssl.ca.location"] = "probe"
        with pytest.raises(KafkaException):
            AdminClient(without_ca).list_topics(timeout=3)


def handshake(bootstrap: str, ca: Path, name: str) -> None:
    """As a client does that has connected to `name`, with the strict rules for certificates of newer Pythons."""
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as raw, context.wrap_socket(raw, server_hostname=name):
        pass


def test_certificate_names_these_hosts_alone(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
            handshake(broker.bootstrap, tmp_path / "dev" / "ca.pem", name)
        for name in ("broker.example", "127.0.0.2"):
            with pytest.raises(ssl.SSLCertVerificationError, match=r"(Hostname|IP address) mismatch"):
                handshake(broker.bootstrap, tmp_path / "dev" / "ca.pem", name)


def test_advertised_host_is_in_the_certificate(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = served(tmp_path, "--advertise", "broker.example:9092")
    broker.listen = f"127.0.0.1:{port}"
    with broker:
        handshake(f"127.0.0.1:{port}", tmp_path / "dev" / "ca.pem", "broker.example")
        assert of_librdkafka(tmp_path)["bootstrap.servers"] == "broker.example:9092"


@contextmanager
def printing(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`ottla serve --secure`, and the file with all that it prints, when it has said how clients connect."""
    said = tmp_path / "said"
    words = ["serve", "--listen", "127.0.0.1:0", "--secure", str(tmp_path / "dev"), *arguments]
    with said.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "ottla", *words], stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: "  others: " in said.read_text(), WAIT_S, "it has not said how clients connect")
        yield process, said
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def secrets_in(directory: Path) -> list[str]:
    """Passwords, and each line of a key."""
    texts = [(directory / name).read_text().partition("-----BEGIN CERT")[0] for name in SECRET_FILES]
    return [line for text in texts for line in text.splitlines() if line and not line.startswith("-----")]


def test_no_secret_is_shown(tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--log-level", "debug", "--admin", "127.0.0.1:0"]
    with printing(tmp_path, *arguments) as (process, said):
        resource = ConfigResource(ConfigResource.Type.BROKER, "0")
        admin = AdminClient(of_librdkafka(tmp_path))
        described = admin.describe_configs([resource])[resource].result(WAIT_S)
        shown = " ".join(f"{name}={entry.value}" for name, entry in described.items())
        shown += Path(f"/proc/{process.pid}/cmdline").read_text()
        shown += Path(f"/proc/{process.pid}/environ").read_text()
    stored = b"".join(each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file())
    secrets = secrets_in(tmp_path / "dev")

    assert len(secrets) > 6
    assert "User:admin" in shown
    assert [each for each in secrets if each in shown + said.read_text() or each.encode() in stored] == []


def test_it_says_how_clients_connect(tmp_path: Path) -> None:
    with printing(tmp_path, "--ephemeral") as (_, said):
        lines = said.read_text().splitlines()
        bootstrap = of_librdkafka(tmp_path)["bootstrap.servers"]
        dev = tmp_path / "dev"
        ready = next(number for number, line in enumerate(lines) if line.startswith(f"ready bootstrap={bootstrap} "))

        assert f"listeners=SASL_SSL://{bootstrap}" in lines[ready]
        assert lines[ready + 1] == (
            f"for development only: who can read {dev} can do everything; clients log in as admin:"
        )
        assert lines[ready + 2] == f"  ottla topics list --command-config {dev}/client.properties"
        assert '"event": "keys and users of --secure are for development"' in said.read_text()


def test_an_ephemeral_broker_has_the_users_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with printing(tmp_path, "--ephemeral", "--set", "group.initial.rebalance.delay.ms=0"):
            command(tmp_path, "topics", "create", "t")
            produce(tmp_path, b"a")
            assert consume(tmp_path, 1) == [b"a"]


def test_printed_command_mends_a_password(tmp_path: Path) -> None:
    """The one that the refusal of a start gives to paste."""
    with served(tmp_path):
        pass
    (tmp_path / "dev" / "broker.password").write_text("another\n")
    refused = subprocess.run(
        [sys.executable, "-m", "ottla", "serve", "--secure", tmp_path / "dev", "--data-dir", tmp_path / "data"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("ottla: user broker in ")
    assert "another\n" not in refused.stderr
    assert run(*refused.stderr.split("`")[1].split()[1:]).exit_code == 0
    with served(tmp_path, "--brokers", "1"):
        command(tmp_path, "topics", "list")
