"""`--ottla-artifacts`, by pytest's own pytester, and `--capture` of the commands that start brokers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.operations.run import START_FAILED_STATUS
from ottla.testing.wire_capture.file_format import CaptureFile, RecordKind
from tests.cli.runner import run
from tests.served import ServedBroker
from tests.wire.captures import apis_in, records_of, stream

pytest_plugins = ("pytester",)

SUITE = """
from confluent_kafka import Consumer

def test_that_fails(kafka):
    kafka.create_topic("orders")
    kafka.produce("orders", [b"a"])
    consumer = Consumer(kafka.client_config("consumer") | {"group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    value = consumer.poll(20).value()
    consumer.close()
    assert value == b"b"

def test_that_passes(kafka):
    kafka.produce("orders", [b"a"])

def test_that_leaves_a_rule(kafka):
    kafka.faults.fault(api="Produce", topic="orders", do={"error": "INVALID_RECORD"})
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(test_shop=SUITE)
    return pytester


def test_failed_tests_leave_captures_and_reports(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-artifacts", "left", timeout=120)

    result.assert_outcomes(passed=2, failed=1, errors=1)
    left = suite.path / "left"
    names = ["test_shop.py--test_that_fails", "test_shop.py--test_that_leaves_a_rule"]
    assert sorted(each.name for each in left.iterdir()) == names
    failed = left / names[0]
    assert sorted(each.name for each in failed.iterdir()) == ["broker.log", "capture.owire", "report.json"]
    assert {"JoinGroup", "Fetch", "LeaveGroup"} <= set(apis_in(failed / "capture.owire"))
    report = json.loads((failed / "report.json").read_text())
    assert report["test"] == "test_shop.py::test_that_fails"
    assert report["failures"][0]["phase"] == "call"
    assert "assert b'a' == b'b'" in report["failures"][0]["text"]
    assert "ottla: groups" in report["sections"]
    printed = result.stdout.str()
    assert re.findall(r"-+ ottla: (.*?) -+", printed) == ["artifacts"]
    assert str(failed) in printed
    with CaptureFile(failed / "capture.owire") as file:
        assert file.header["test"] == report["test"]


def test_without_the_option_nothing_is_left(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-p", "no:cacheprovider", "-k", "fails", timeout=120)

    result.assert_outcomes(failed=1)
    assert "ottla: groups" in result.stdout.str()
    assert list(suite.path.rglob("*.owire")) == []


def test_run_captures_what_its_command_does(tmp_path: Path) -> None:
    capture = tmp_path / "run.owire"
    command = [sys.executable, "-m", "ottla", "topics", "create", "orders"]
    ottla_run = (sys.executable, "-m", "ottla", "run", "--capture")
    done = subprocess.run([*ottla_run, str(capture), "--", *command], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert "CreateTopics" in apis_in(capture)
    with CaptureFile(capture) as file:
        assert file.header["command"] == command

    wrong = subprocess.run([*ottla_run, "none/a.owire", "--", "true"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == START_FAILED_STATUS
    assert wrong.stderr == "ottla: --capture: cannot write the capture none/a.owire: it does not exist\n"


@pytest.mark.parametrize("brokers", [1, 3])
def test_serve_captures_until_it_stops(tmp_path: Path, brokers: int) -> None:
    capture = tmp_path / "served.owire"
    arguments = ["--brokers", str(brokers), "--capture", str(capture)]
    with ServedBroker(tmp_path / "data", {"default.replication.factor": str(brokers)}, arguments=arguments) as broker:
        # Each broker leads one, where there are three.
        for words in (("topics", "create", "orders", "--partitions", "3"), ("produce", "orders")):
            done = run(*words, "--bootstrap", broker.bootstrap, stdin="a\nb\n")
            assert done.exit_code == 0, done.output
        broker.stop()

    records = records_of(capture)
    assert records[-1].fields() == {"cause": "stopped"}
    assert "Produce" in apis_in(capture)
    # Brokers copy from each other by the same listeners.
    assert ("Fetch" in apis_in(capture)) == (brokers > 1)
    opened = [each.fields() for each in records if each.kind == RecordKind.OPENED]
    assert (len({each["node"] for each in opened}) > 1) == (brokers > 1)


def test_logins_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:open-sesame\n")
    users.chmod(0o600)
    (tmp_path / "password").write_text("open-sesame")
    settings = {
        "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.users.file": str(users),
    }
    login = ("--user", "alice", "--password-file", str(tmp_path / "password"), "--sasl-mechanism", "PLAIN")
    for name, options in (("blanked", []), ("whole", ["--capture-secrets"])):
        capture = tmp_path / name
        arguments = ["--capture", str(capture), *options]
        with ServedBroker(tmp_path / f"{name}-data", settings, arguments=arguments) as broker:
            done = run("topics", "list", "--bootstrap", broker.bootstrap, *login)
            assert done.exit_code == 0, done.output
            broker.stop()
        received = stream(records_of(capture), RecordKind.RECEIVED, 1)
        assert (b"open-sesame" in received) == bool(options)
        assert "SaslAuthenticate" in apis_in(capture)
        shown = run("wire", "show", "-vv", str(capture)).stdout
        assert ("open-sesame" in shown) == bool(options)
    assert len(received) == len(stream(records_of(tmp_path / "blanked"), RecordKind.RECEIVED, 1))
