"""The image in place of apache/kafka and confluentinc/cp-kafka, built and run as their users would."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.kafka_image.examples import SINGLE_NODE
from tests.cli.runner import run as run_ottla
from tests.cluster_processes import wait_for
from tests.docker.engine import build_kafka_image, docker, inspect, logs, run
from tests.docker.mini_cluster import NO_COMPOSE, compose_commands
from tests.ports import free_ports

READY_WITHIN_S = 60
BYTES_OVER_BASE_MAX = 60_000_000
COMPOSE = Path(__file__).with_name("kafka_single_node.yaml")
LINES = [
    "[BrokerLifecycle id=1] Transitioning from RECOVERY to RUNNING",
    "[KafkaServer id=1] started",
    "Kafka Server started",
]
# What the module for Go writes; that for Node differs in the name of the file.
OF_GO = """#!/bin/bash
source /etc/confluent/docker/bash-config
export KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:{port},BROKER://$(hostname):9092${{EXTRA:+,${{EXTRA}}}}"
echo Starting Kafka KRaft mode
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" -c /etc/kafka/kafka.properties' \
>> /etc/confluent/docker/configure
echo '' > /etc/confluent/docker/ensure
/etc/confluent/docker/configure
/etc/confluent/docker/launch
"""
# What the module for .NET writes, with the comma behind the last listener.
OF_DOTNET = """#!/bin/sh
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port},BROKER://$(hostname):9092,
exec /etc/kafka/docker/run
"""
LISTENERS = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_NODE_ID": "1",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def image() -> str:
    return build_kafka_image()


@contextmanager
def container(image: str, variables: Mapping[str, str], *command: str, options: Sequence[str] = ()) -> Iterator[str]:
    pairs = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    started = docker("run", "--detach", *pairs, *options, image, *command)
    try:
        yield started
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", started], capture_output=True)


def wait_for_lines(started: str) -> None:
    wait_for(lambda: LINES[-1] in logs(started), READY_WITHIN_S, lambda: logs(started))


def produced_and_consumed(bootstrap: str) -> None:
    assert run_ottla("produce", "words", "--bootstrap", bootstrap, stdin="one\n").exit_code == 0
    read = run_ottla("consume", "words", "--from-beginning", "--exit-at-end", "--bootstrap", bootstrap)
    assert read.stdout == "one\n"


def test_the_image_says_what_it_is_made_for(image: str) -> None:
    config = json.loads(docker("inspect", "--format", "{{json .Config}}", image))
    names = [each.partition("=")[0] for each in config["Env"]]

    assert not config.get("Entrypoint")
    assert config["Cmd"] == ["/etc/kafka/docker/run"]
    assert config["User"] == "appuser"
    assert sorted(config["ExposedPorts"]) == ["9092/tcp", "9098/tcp"], "of clients, and of control in testing mode"
    assert not [name for name in names if name.startswith("KAFKA_")], "one would take the defaults away"


def test_the_image_is_not_much_larger_than_its_base(image: str) -> None:
    history = docker("history", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", image).splitlines()
    first = next(index for index, line in enumerate(history) if "useradd" in line)

    assert sum(int(line.split()[0]) for line in history[: first + 1]) < BYTES_OVER_BASE_MAX


def test_a_client_that_comes_with_the_line_is_served(image: str) -> None:
    (port,) = free_ports(1)
    with container(image, {}, options=("--publish", f"127.0.0.1:{port}:9092")) as started:
        follow = subprocess.Popen(["docker", "logs", "--follow", started], stdout=subprocess.PIPE, text=True)
        assert follow.stdout is not None
        first = follow.stdout.readline().rstrip()
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            # ApiVersions, version 0, of a client without a name.
            connection.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
            answer = connection.recv(8)
        docker("stop", "--time", "30", started)
        said = [first, *follow.stdout.read().splitlines()]
        follow.wait()
        status = inspect(started, "{{.State.ExitCode}}")

    assert answer[4:] == bytes.fromhex("00000007")
    assert said == LINES
    assert status == "0"


def test_kafkas_compose_example_comes_up(image: str) -> None:
    (port,) = free_ports(1)
    command = next(iter(compose_commands()), None)
    if command is None:
        pytest.skip(NO_COMPOSE)
    compose = (*command, "--project-name", f"ottla-{uuid4().hex[:8]}", "--file", str(COMPOSE))
    variables = {"IMAGE": image, "PORT": str(port)}
    try:
        run(*compose, "up", "--detach", **variables)
        started = run(*compose, "ps", "--quiet", "broker", **variables)
        wait_for_lines(started)
        produced_and_consumed(f"localhost:{port}")
        listed = docker(
            "exec", started, "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "broker:19092", "--list"
        )
        status = docker("exec", started, "ottla", "cluster", "status", "--json", "--bootstrap", "broker:19092")
        kept = docker("exec", started, "ls", "/tmp/kraft-combined-logs")
    finally:
        run(*compose, "down", "--volumes", "--timeout", "5", **variables)

    assert "words" in listed.splitlines()
    assert json.loads(status)["cluster_id"] == SINGLE_NODE["CLUSTER_ID"]
    assert "meta.properties" in kept


@pytest.mark.parametrize("script", [OF_GO, OF_DOTNET])
def test_scripts_that_modules_copy_start_the_broker(image: str, tmp_path: Path, script: str) -> None:
    """The loop that waits for the script runs before it is there."""
    (port,) = free_ports(1)
    target = "/usr/sbin/testcontainers_start.sh"
    loop = f"while [ ! -f {target} ]; do sleep 0.1; done; bash {target}"
    options = ("--publish", f"127.0.0.1:{port}:9093", "--entrypoint", "sh")
    with container(image, LISTENERS, "-c", loop, options=options) as started:
        written = tmp_path / "start.sh"
        written.write_text(script.format(port=port))
        docker("cp", str(written), f"{started}:{target}")
        wait_for_lines(started)
        produced_and_consumed(f"localhost:{port}")
        # The shell that waits for the script has no ear for signals: what is in the container is killed.
        docker("restart", "--time", "0", started)
        wait_for(lambda: logs(started).count(LINES[-1]) == 2, READY_WITHIN_S, lambda: logs(started))
        again = run_ottla("consume", "words", "--from-beginning", "--exit-at-end", "--bootstrap", f"localhost:{port}")

    assert again.stdout == "one\n"


def test_arguments_and_a_mounted_file_are_read(image: str, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=7\nmin.insync.replicas=1\nlog.retention.hours=5\n")
    tmp_path.chmod(0o755)
    options = ("--volume", f"{tmp_path}:/mnt/shared/config")
    arguments = ("/etc/kafka/docker/run", "KAFKA_NUM_PARTITIONS=9", "KAFKA_NODE_ID=1")
    with container(image, {"KAFKA_NUM_PARTITIONS": "8"}, *arguments, options=options) as started:
        wait_for_lines(started)
        configs = docker("exec", started, "ottla", "brokers", "configs")

    assert re.search(r"num\.partitions +9 ", configs)
    assert re.search(r"log\.retention\.hours +5 ", configs)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"KAFKA_SSL_KEYSTORE_FILENAME": "kafka01.keystore.jks"}, "key stores are PEM; `keytool -importkeystore"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093"}, "compose.yaml of Ottla has one"),
        ({"KAFKA_PROCESS_ROLES": "controller"}, "process.roles=controller: there is no controller without a broker"),
    ],
)
def test_examples_that_cannot_work_end_with_a_sentence(image: str, variables: dict[str, str], sentence: str) -> None:
    with container(image, SINGLE_NODE | variables) as started:
        status = docker("wait", started)

        assert status == "1"
        assert sentence in logs(started)
        assert len(logs(started).splitlines()) == 1
