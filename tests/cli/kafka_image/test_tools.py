"""Kafka's command-line tools as the image has them, at a broker in a process of its own."""

import io
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.cli.kafka_image.__main__ import OTHERS, main, tools
from tests.cli.runner import run
from tests.ports import free_ports
from tests.served import ServedBroker


class Shell:
    """Runs tools at a broker, and gives what they print."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.bootstrap = bootstrap
        self._capture, self._patch = capture, patch

    def __call__(self, line: str, *more: str, stdin: str = "", status: int = 0) -> str:
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capture.readouterr()
        tool, *arguments = line.split()
        assert main([tool, "--bootstrap-server", self.bootstrap, *arguments, *more]) == status
        printed = self._capture.readouterr()
        return printed.out if status == 0 else printed.err


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with ServedBroker(tmp_path_factory.mktemp("tools") / "data", settings) as broker:
        yield broker


@pytest.fixture
def shell(broker: ServedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(broker.bootstrap, capsys, monkeypatch)


def test_topics_from_creation_to_deletion(shell: Shell) -> None:
    created = shell("kafka-topics --create --topic a.b --partitions 2 --replication-factor 1 --config retention.ms=9")
    shell("kafka-topics.sh --create --if-not-exists --topic a.b --partitions=2")
    described = shell("kafka-topics --describe --topic a.b")
    shell("kafka-topics --alter --topic a.b --partitions 3")
    listed = shell("kafka-topics --list --exclude-internal")
    deleted = shell("kafka-topics --delete --topic a.b")

    assert created == "Created topic a.b.\n"
    assert described.splitlines()[0] == "Topic: a.b\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=9"
    assert described.splitlines()[1] == "\tTopic: a.b\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0"
    assert len(described.splitlines()) == 3
    assert listed.split() == ["a.b"]
    assert "deleted topic a.b" in deleted
    assert shell("kafka-topics --delete --topic a.b --if-exists") == ""
    assert shell("kafka-topics --describe --topic a.b", status=1) == "Error: topic a.b does not exist\n"


def test_topics_are_named_by_regular_expressions(shell: Shell) -> None:
    for name in ("re-1", "re-2", "other"):
        shell(f"kafka-topics --create --topic {name}")

    shell("kafka-topics --delete --topic re-.*")

    assert "other" in shell("kafka-topics --list").split()
    assert "re-1" not in shell("kafka-topics --list").split()


def test_records_with_keys_go_in_and_come_out(shell: Shell) -> None:
    shell("kafka-topics --create --topic words --partitions 1")
    shell(
        "kafka-console-producer --topic words --property parse.key=true --property key.separator=: --producer-property",
        "acks=1",
        stdin="a:one\nb:two\n",
    )
    shell("kafka-console-producer --topic words --request-required-acks -1", stdin="three\n")

    read = "kafka-console-consumer --topic words --from-beginning --max-messages 3"
    values = shell(read)
    keyed = shell(f"{read} --timeout-ms 5000 --property print.key=true --property print.offset=true")
    separated = shell(f"{read} --formatter-property print.key=true --formatter-property", "key.separator={,}")

    assert values == "one\ntwo\nthree\n"
    assert keyed == "Offset:0\ta\tone\nOffset:1\tb\ttwo\nOffset:2\t\tthree\n"
    assert separated == "a{,}one\nb{,}two\n{,}three\n"


def test_groups_are_listed_described_reset_and_deleted(shell: Shell) -> None:
    shell("kafka-topics --create --topic of-group --partitions 1")
    shell("kafka-console-producer --topic of-group", stdin="one\ntwo\n")
    shell("kafka-console-consumer --topic of-group --group g --from-beginning --max-messages 2")

    listed = shell("kafka-consumer-groups --list")
    described = shell("kafka-consumer-groups --describe --group g").splitlines()
    shell("kafka-consumer-groups --group g --reset-offsets --topic of-group --to-earliest --execute")
    after = shell("kafka-consumer-groups --describe --all-groups").splitlines()
    shell("kafka-consumer-groups --delete --group g")

    assert "g" in listed.split()
    assert described[1].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert described[2].split()[:6] == ["g", "of-group", "0", "2", "2", "0"]
    assert next(line for line in after if line.startswith("g ")).split()[:6] == ["g", "of-group", "0", "0", "2", "2"]
    assert "g" not in shell("kafka-consumer-groups --list").split()


def test_configs_of_topics_brokers_and_users(shell: Shell) -> None:
    shell("kafka-topics --create --topic configured --partitions 1")
    topic = "--entity-type topics --entity-name configured"
    said = shell(f"kafka-configs --alter {topic} --add-config", "cleanup.policy=[compact,delete],retention.ms=5")
    described = shell(f"kafka-configs --describe {topic}")
    shell(f"kafka-configs --alter {topic} --delete-config retention.ms")
    shell("kafka-configs --alter --entity-type brokers --entity-name 0 --add-config max.connections=99")
    shell("kafka-configs --alter --entity-type brokers --entity-default --add-config max.connections.per.ip=98")
    shell("kafka-configs --alter --entity-type users --entity-name ann --add-config", "SCRAM-SHA-512=[password=secret]")

    assert said == "Completed updating config for topic configured.\n"
    assert "compact,delete" in described
    assert "retention.ms" not in shell(f"kafka-configs --describe {topic}")
    assert "max.connections " in shell("kafka-configs --describe --entity-type brokers --entity-name 0")
    assert "SCRAM-SHA-512" in shell("kafka-configs --describe --entity-type users --entity-name ann")
    shell("kafka-configs --alter --entity-type users --entity-name ann --delete-config SCRAM-SHA-512")
    assert "ann" not in shell("kafka-configs --describe --entity-type users")


def test_what_stands_in_health_checks_answers(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Produce" in shell("kafka-broker-api-versions")
    assert main(["cub", "kafka-ready", "-b", f"PLAINTEXT://{shell.bootstrap}".rpartition("/")[2], "1", "5"]) == 0
    assert main(["cub", "zk-ready", "zookeeper:2181", "40"]) == 0
    assert main(["cub", "kafka-ready", "-b", "127.0.0.1:1", "1", "0"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("kafka-topics --list --unknown", "kafka-topics does not know --unknown here"),
        ("kafka-topics --topic t", "kafka-topics needs one of --create, --list, --describe, --delete, --alter"),
        ("kafka-topics --create", "kafka-topics needs --topic"),
        ("kafka-topics --create --topic", "kafka-topics: --topic needs a value"),
        ("kafka-topics --create --topic t --replica-assignment 0", "`ottla topics create --assignment` does"),
        ("kafka-topics --zookeeper z:2181 --list", "kafka-topics does not know --zookeeper here"),
        ("kafka-console-producer --topic t --property parse.headers=true", "does not know the property parse.headers"),
        ("kafka-console-consumer --topic t --property print.timestamp=true", "know the property print.timestamp here"),
        ("kafka-console-consumer --topic t --timeout-ms x", "--timeout-ms x is no number of milliseconds"),
        ("kafka-configs --describe --entity-type ips", "kafka-configs has no ips here, only topics, brokers and users"),
        ("kafka-configs --alter --user a --add-config producer_byte_rate=1", "`ottla quotas` alters quotas"),
        ("kafka-configs --alter --user a --add-config SCRAM-SHA-256=[iterations=4096]", "the password is empty"),
        ("kafka-configs --alter --entity-type brokers --entity-name 0 --add-config advertised.listeners=[A://b:1]",
         "advertised.listeners cannot be changed while the broker runs"),
        ("kafka-consumer-groups --describe", "kafka-consumer-groups needs --group"),
        ("kafka-acls --list", "kafka-acls is not in this image: `ottla acls` does what it does"),
        ("kafka-made-up", "kafka-made-up is not in this image"),
    ],
)  # fmt: skip
def test_what_is_not_known_fails_by_name(shell: Shell, line: str, sentence: str) -> None:
    assert sentence in shell(line, status=1)


def test_the_names_are_those_that_the_image_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["names"]) == 0

    names: Sequence[str] = capsys.readouterr().out.split()
    assert set(names) == {*tools(), *OTHERS}
    assert len(names) == len(set(names))


def test_other_tools_name_commands_that_there_are() -> None:
    for hint in OTHERS.values():
        if hint.startswith("`ottla "):
            result = run(*hint.strip("`").split()[1:], "--help")
            assert result.exit_code == 0, hint


def test_formatting_gives_an_id_and_a_first_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ottla.cli.kafka_image.storage_tool import storage
    from ottla.cli.kafka_image.tool_options import ToolError

    data = tmp_path / "data"
    variables = {"KAFKA_LOG_DIRS": str(data), "KAFKA_NODE_ID": "3"}
    arguments = ["format", "-t", "an-id", "-c", "/etc/kafka/kafka.properties", "--add-scram"]
    user = "SCRAM-SHA-256=[name=ann,password=secret,iterations=4096]"

    assert storage([*arguments, user], variables) == 0
    meta = (data / "meta.properties").read_text()
    with pytest.raises(ToolError, match=r"is already formatted. Use --ignore-formatted"):
        storage([*arguments, user], variables)
    assert storage(["format", "-t", "other", "-c", "x", "--ignore-formatted"], variables) == 0

    assert "cluster.id=an-id" in meta
    assert "node.id=3" in meta
    assert (data / "meta.properties").read_text() == meta
    with ServedBroker(data, arguments=("--node-id", "3")) as broker:
        assert "ann" in run("users", "list", "--bootstrap", broker.bootstrap).stdout


def test_a_random_id_is_kafkas_form_of_a_uuid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-storage", "random-uuid"]) == 0

    assert len(capsys.readouterr().out.strip()) == 22


def test_where_zookeeper_would_be_a_port_accepts(tmp_path: Path) -> None:
    """The module for Node waits for it."""
    (port,) = free_ports(1)
    properties = tmp_path / "zookeeper.properties"
    properties.write_text(f"clientPort={port}\ndataDir=/var/lib/zookeeper/data\n")
    command = [sys.executable, "-m", "ottla.cli.kafka_image", "zookeeper-server-start", str(properties)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                assert connection.recv(1) == b""
        process.terminate()

    assert said.startswith("zookeeper-server-start: there is no ZooKeeper in this image")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "cannot read"), ("clientPort=x", "clientPort=x is no port"), ("clientPort=0", "clientPort=0 is no port")],
)
def test_a_port_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, sentence: str
) -> None:
    path = tmp_path / "zookeeper.properties"
    if text is not None:
        path.write_text(text)

    assert main(["zookeeper-server-start", str(path)]) == 1
    assert sentence in capsys.readouterr().err
