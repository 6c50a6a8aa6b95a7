"""`ottla serve --testing`: what it refuses, what it marks, and who has the token."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.cli.operations.control import ControlAddress
from ottla.testing.control.serving import TestingBrokers, TestingOptions
from ottla.testing.hosting import Hosting
from tests.clients.test_confluent_kafka import create_topic, produced
from tests.control.asking import TOKEN, Asker
from tests.served import ServedBroker

SERVE = (sys.executable, "-m", "ottla", "serve")
ENDED_WITHIN_S = 30


def refusal(*arguments: str, **environment: str) -> str:
    """The one sentence of a serve that does not start."""
    done = subprocess.run(
        [*SERVE, *arguments],
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
        env={**os.environ, **environment},
    )
    assert (done.returncode != 0, done.stdout) == (True, ""), done
    return [line for line in done.stderr.splitlines() if line.strip()][-1]


class TestingServe:
    """`ottla serve --testing` with its control address."""

    __test__ = False

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.directory = directory
        self.file = directory / "control.json"
        command = [*SERVE, "--testing", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"), *arguments]
        self.errors = directory / "stderr"
        with self.errors.open("ab") as errors:
            given = {**os.environ, **environment}
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=given)
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().split()
        assert self.ready[:1] == ["ready"], self.errors.read_text()
        self.bootstrap = self.ready[1].partition("=")[2]
        self.control = self.process.stdout.readline().split() if "--control" in arguments else []

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(ENDED_WITHIN_S)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[TestingServe]:
    serving = TestingServe(tmp_path, "--control", "127.0.0.1:0", "--control-file", str(tmp_path / "control.json"))
    yield serving
    serving.process.kill()
    serving.process.wait()


def test_marked_directory_is_refused_without_testing(tmp_path: Path) -> None:
    for brokers in ("1", "3"):
        directory = tmp_path / brokers
        directory.mkdir()
        serving = TestingServe(directory, "--brokers", brokers)
        assert serving.stop() == 0

        said = refusal("--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"), "--brokers", brokers)

        assert "has the file ottla-testing: it is that of a broker in testing mode" in said


def test_records_of_production_are_refused_with_testing(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        create_topic(broker, "orders")
        produced(broker, "orders", ["a"])

    said = refusal("--testing", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))

    assert "has records, and not the file ottla-testing" in said
    assert not (tmp_path / "data" / "ottla-testing").exists()


def test_marked_directory_is_served_again_with_testing(tmp_path: Path) -> None:
    for _ in range(2):
        serving = TestingServe(tmp_path, "--control", "127.0.0.1:0", "--control-file", str(tmp_path / "control.json"))
        asker = asker_of(serving)
        asker.ask("POST", "/v1/topics", {"name": "orders"})
        asker.post("/v1/topics/orders/records", {"records": [{"value": "a"}]})
        records = asker.get("/v1/topics/orders/records")["records"]
        assert serving.stop() == 0

    assert len(records) == 2
    assert not serving.file.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--testing", "--metadata", "etcd://127.0.0.1:1", "--node-id", "1"], "metadata of this process"),
        (["--testing", "--secure", "dev"], "cannot be combined with --secure"),
        (["--testing", "--listen", "0.0.0.0:0"], "not on 0.0.0.0: that needs --testing-remote"),
        (["--testing", "--set", "listeners=PLAINTEXT://:0"], "not on all addresses: that needs --testing-remote"),
        (["--testing", "--control", "0.0.0.0:0", "--control-file", "c"], "no loopback address: that needs"),
        (["--testing", "--testing-remote", "--control", "0.0.0.0:0", "--control-open"], "so a token is needed"),
        (["--testing", "--control", "127.0.0.1:0"], "no client could know the token"),
        (["--testing", "--control", "9098", "--control-open"], "is not HOST:PORT"),
        (["--testing", "--control-open"], "it needs --control"),
        (["--control", "127.0.0.1:0"], "it needs --testing"),
        (["--testing-remote"], "it needs --testing"),
        (["--set", "ottla.testing=true"], "ottla.testing"),
    ],
)
def test_wrong_surroundings_are_refused_in_a_sentence(arguments: list[str], says: str, tmp_path: Path) -> None:
    assert says in refusal(*arguments, "--data-dir", str(tmp_path / "data"))


def test_control_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    arguments = ("--testing", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--data-dir", str(tmp_path / "d"))

    said = refusal(*arguments, "--control-file", str(tmp_path))

    assert said.startswith(f"ottla: cannot write {tmp_path} (--control-file): ")


def test_weak_token_is_refused_and_not_shown(tmp_path: Path) -> None:
    arguments = ("--testing", "--control", "127.0.0.1:0", "--data-dir", str(tmp_path))

    said = refusal(*arguments, OTTLA_CONTROL_TOKEN="guessed")

    assert "OTTLA_CONTROL_TOKEN: expected 128 bits" in said
    assert "guessed" not in said


def test_nothing_is_recorded_that_no_client_can_ask_for(tmp_path: Path) -> None:
    async def records(control: str | None) -> bool:
        options = TestingOptions(control=control, control_open=True)
        brokers = TestingBrokers(Hosting.on_free_ports({}), 1, tmp_path / "data", options)
        await brokers.start()
        try:
            return brokers._bed.auditor.recorder is not None
        finally:
            await brokers.stop()

    assert not asyncio.run(records(None))
    assert asyncio.run(records("127.0.0.1:0"))


def asker_of(serving: TestingServe) -> Asker:
    found = json.loads(serving.file.read_text())
    return Asker(found["url"], found["token"])


def test_the_control_file_has_address_and_token(serving: TestingServe) -> None:
    found = json.loads(serving.file.read_text())

    assert serving.control == ["control", found["url"]]
    assert found["bootstrap"] == serving.bootstrap
    assert serving.file.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(found["token"])) == 16
    assert asker_of(serving).get("/v1")["bootstrap"] == serving.bootstrap
    assert Asker(found["url"], None).ask("GET", "/v1").problem == (401, "wrong-token")


def test_the_token_is_in_no_output_and_no_arguments(serving: TestingServe) -> None:
    """KT-20."""
    token = json.loads(serving.file.read_text())["token"]
    asker = asker_of(serving)
    asker.ask("POST", "/v1/faults", "api=Nothing")
    report = asker.ask("GET", "/v1/report").body.decode()
    arguments = Path(f"/proc/{serving.process.pid}/cmdline").read_text()
    assert serving.stop() == 0
    assert serving.process.stdout is not None
    said = [report, arguments, *serving.ready, *serving.control, serving.process.stdout.read()]

    assert token not in "".join([*said, serving.errors.read_text()])
    kept = [path.read_bytes() for path in (serving.directory / "data").rglob("*") if path.is_file()]
    assert not [data for data in kept if token.encode() in data]


def test_start_is_warned_of_and_configs_show_it(serving: TestingServe) -> None:
    assert serving.errors.read_text().count("testing mode: everything can be deleted") == 1
    (entry,) = described(serving.bootstrap)
    assert (entry.value, entry.is_read_only) == ("true", True)


def test_broker_in_production_shows_and_imports_nothing_of_it(tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    with ServedBroker(tmp_path / "data", launcher=launcher_that_writes(imported, tmp_path)) as broker:
        create_topic(broker, "orders")
        produced(broker, "orders", ["a"])
        assert described(broker.bootstrap) == []
        assert broker.stop() == 0

    modules = imported.read_text().split()
    assert "ottla.broker.broker" in modules
    assert [name for name in modules if name.startswith("ottla.testing") or name == "pytest_ottla"] == []


def launcher_that_writes(path: Path, directory: Path) -> tuple[str, ...]:
    """A program before the command: the process writes the names of its modules when it ends."""
    (directory / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        f"atexit.register(lambda: open({str(path)!r}, 'w').write(chr(10).join(sorted(sys.modules))))\n"
    )
    return ("env", f"PYTHONPATH={directory}:{Path(__file__).parents[2]}")


def described(bootstrap: str) -> list[Any]:
    """Configs of the broker whose names have `testing`."""
    resource = ConfigResource(ResourceType.BROKER, "0")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(20)
    return [entry for name, entry in found.items() if "testing" in name]


def test_no_client_turns_testing_on(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "production") as broker:
        entry = ConfigEntry("ottla.testing", "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        altered = admin.incremental_alter_configs([resource])
        with pytest.raises(KafkaException, match=r"ottla\.testing"):
            altered[resource].result(20)


def test_unix_socket_needs_no_token_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    for _ in range(2):
        serving = TestingServe(tmp_path, "--control", f"unix:{path}")
        assert serving.control == ["control", f"unix:{path}"]
        assert path.stat().st_mode & 0o777 == 0o600
        assert ControlAddress(f"unix:{path}", None).ask("GET", "/v1/topics") == {"topics": []}
        # A process that is killed leaves its socket, which gives way to the next one's.
        serving.process.kill()
        serving.process.wait()


def test_image_in_testing_mode_serves_control_with_its_token(tmp_path: Path) -> None:
    command = [*SERVE, "--kafka-env", "--control", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    environment = {
        **os.environ,
        "OTTLA_TESTING": "1",
        "OTTLA_CONTROL_TOKEN": TOKEN,
        "OTTLA_CONTROL_HOSTS": "kafka,broker",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        assert lines[2] == "Kafka Server started"
        asker = Asker(lines[3].removeprefix("control "), TOKEN)
        assert asker.ask("GET", "/v1/topics", Host="kafka:9098").json == {"topics": []}
        assert asker.ask("GET", "/v1/topics", Host="other:9098").problem == (403, "foreign-host")
    finally:
        process.kill()
        process.wait()


def test_image_in_testing_mode_needs_a_token(tmp_path: Path) -> None:
    said = refusal("--kafka-env", "--data-dir", str(tmp_path), OTTLA_TESTING="1")

    assert "OTTLA_CONTROL_TOKEN" in said


def test_control_goes_on_when_a_broker_of_three_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "control.json"
    settings = ("--set", "broker.session.timeout.ms=1000", "--set", "broker.heartbeat.interval.ms=300")
    serving = TestingServe(
        tmp_path, "--brokers", "3", "--control", "127.0.0.1:0", "--control-file", str(file), *settings
    )
    asker = asker_of(serving)
    asker.post("/v1/topics", {"name": "orders", "partitions": 1, "replication_factor": 3})
    leader = asker.get("/v1/topics/orders")["partitions"][0]["leader"]

    assert leader not in asker.post(f"/v1/brokers/{leader}/kill", {})["brokers"]
    others = sorted({0, 1, 2} - {leader})
    deadline = time.monotonic() + 20
    while asker.get("/v1/topics/orders")["partitions"][0]["leader"] not in others:
        assert time.monotonic() < deadline
    assert asker.ask("POST", f"/v1/brokers/{leader}/kill", {}).problem == (409, "wrong-state")
    assert asker.post(f"/v1/brokers/{leader}/restart", {})["brokers"] == [0, 1, 2]
    asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders", "within_ms": 20_000})
    assert serving.stop() == 0
