"""`ottla serve --kafka-env` as a process, configured by its variables alone."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.runtime import StartError
from ottla.cli.kafka_image.serving import DEFAULT_CLUSTER_ID, kafka_image
from ottla.cli.kafka_image.storage_tool import storage
from ottla.cli.serve_options import parse_plain
from ottla.storage.files import OsFileSystem
from ottla.storage.meta_properties import known_cluster_id
from tests.cli.runner import run
from tests.ports import free_ports

LINES = [
    "[BrokerLifecycle id=5] Transitioning from RECOVERY to RUNNING",
    "[KafkaServer id=5] started",
    "Kafka Server started",
]
ENDS_WITHIN_S = 40


def environment(directory: Path, ports: list[int], **more: str) -> dict[str, str]:
    out, between, controller = ports
    variables = {
        "KAFKA_NODE_ID": "5",
        "KAFKA_LISTENERS": f"CONTROLLER://:{controller},PLAINTEXT://:{out},BROKER://127.0.0.1:{between}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{out},BROKER://127.0.0.1:{between},",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://x:1",
        "KAFKA_MADE_UP": "1",
        "KAFKA_LOG_DIRS": str(directory),
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")} | variables | more


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "serve", "--kafka-env", *arguments]


@contextmanager
def started(variables: Mapping[str, str], *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command(*arguments), env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stopped(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it has printed since, to both its outputs."""
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stderr is not None
    # Not by `communicate`, which does not see what `readline` has read ahead. There is too little to fill a pipe.
    printed = process.stdout.read(), process.stderr.read()
    assert process.wait(ENDS_WITHIN_S) == 0, printed
    return printed


def refusal(variables: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(command(*arguments), env=variables, capture_output=True, text=True, timeout=ENDS_WITHIN_S)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def test_the_lines_come_once_when_all_listeners_accept(tmp_path: Path) -> None:
    ports = free_ports(3)
    with started(environment(tmp_path / "data", ports)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        # At once, and without a second attempt.
        answered = [run("ping", "--bootstrap", f"127.0.0.1:{port}").exit_code for port in ports[:2]]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[2])).close()
        created = run("topics", "create", "t", "--bootstrap", f"127.0.0.1:{ports[0]}")
        described = run("topics", "list", "--json", "--bootstrap", f"127.0.0.1:{ports[0]}")
        rest, log = stopped(process)

    assert answered == [0, 0]
    assert created.exit_code == 0, created.output
    assert '"partitions": 3' in described.stdout
    assert [first.rstrip(), *rest.splitlines()] == LINES
    assert log.count("properties without effect") == 1
    names = '"names": ["controller.listener.names", "process.roles", "rest.bootstrap.servers"]'
    assert names in log
    assert '"event": "properties that are not known"' in log
    assert '"names": ["made.up"]' in log


def test_the_cluster_id_is_kept_and_another_is_refused(tmp_path: Path) -> None:
    variables = environment(tmp_path / "data", free_ports(3))
    for given in ({"CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw"}, {}):
        with started(variables | given) as process:
            assert process.stdout is not None
            assert process.stdout.readline().rstrip() == LINES[0]
            stopped(process)
        assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in (tmp_path / "data" / "meta.properties").read_text()

    said = refusal(variables | {"CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"})

    assert re.search(r"belongs to cluster 4L6g3nShT-eMCtK--X86sw, this broker to 5L6g3nShT-eMCtK--X86sw", said)


def cluster_id_of(data: Path, **variables: str) -> str:
    kafka_image(data, None, variables).claim_data_dir()
    found = known_cluster_id(OsFileSystem(), data)
    assert found is not None
    return found


def test_new_data_get_kafkas_default_or_what_is_asked(tmp_path: Path) -> None:
    assert cluster_id_of(tmp_path / "a") == DEFAULT_CLUSTER_ID
    assert cluster_id_of(tmp_path / "b", CLUSTER_ID="asked") == "asked"
    assert cluster_id_of(tmp_path / "b") == "asked"


def test_what_the_storage_tool_formats_keeps_its_id(tmp_path: Path) -> None:
    variables = {"KAFKA_LOG_DIRS": str(tmp_path / "data"), "CLUSTER_ID": "of-the-variable"}
    assert storage(["format", "-t", "of-the-tool", "-c", "x"], variables) == 0

    kafka_image(tmp_path, None, variables).claim_data_dir()
    assert known_cluster_id(OsFileSystem(), tmp_path / "data") == "of-the-tool"


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    with pytest.raises(StartError, match=r"holds precious but no meta\.properties"):
        kafka_image(tmp_path, None, {}).claim_data_dir()


def test_a_mounted_file_is_read_below_the_variables(tmp_path: Path) -> None:
    ports = free_ports(3)
    mounted = tmp_path / "server.properties"
    mounted.write_text("num.partitions=7\ngroup.initial.rebalance.delay.ms=9\nlog4j.logger=x\n")
    with started(environment(tmp_path / "data", ports), "--config", str(mounted)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        configs = run("brokers", "configs", "--bootstrap", f"127.0.0.1:{ports[0]}").stdout
        stopped(process)

    assert re.search(r"num\.partitions +3 ", configs)
    assert re.search(r"group\.initial\.rebalance\.delay\.ms +9 ", configs)


def test_what_is_refused_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    variables = environment(tmp_path / "data", free_ports(3))

    said = refusal(variables | {"KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks", "KAFKA_NUM_PARTITIONS": "3"})
    malformed = refusal(variables | {"KAFKA_NUM_PARTITIONS": "none"})

    assert said.startswith("ottla: ssl.keystore.location=/etc/kafka/secrets/broker.jks: key stores are PEM; `keytool")
    assert malformed.startswith("ottla: num.partitions=none: ")
    assert not (tmp_path / "data").exists()


def test_without_the_option_variables_mean_nothing(tmp_path: Path) -> None:
    """And what the image accepts is refused."""
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--set", "rest.bootstrap.servers=x")
    plain = [sys.executable, "-m", "ottla", "serve", *arguments]

    done = subprocess.run(plain, env=environment(tmp_path, [1, 2, 3]), capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert "there is no property rest.bootstrap.servers" in done.stderr


@pytest.mark.parametrize(
    "other",
    [
        ("--listen", "a:1"), ("--advertise", "a:1"), ("--ephemeral",), ("--brokers", "2"), ("--node-id", "1"),
        ("--metadata", "etcd://a:1", "--node-id", "1"), ("--secure", "d"), ("--set", "a=b"),
    ],
)  # fmt: skip
def test_options_that_variables_stand_for_are_refused(other: tuple[str, ...]) -> None:
    arguments = ("--kafka-env", *other)
    result = run("serve", *arguments)

    assert parse_plain(arguments) is None
    assert result.exit_code == 2
    assert "it cannot be combined with --" in result.stderr
