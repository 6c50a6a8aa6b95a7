"""The audit at the end of tests, by pytest's own pytester, and of `ottla run`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.suites import ini, run

pytest_plugins = ("pytester",)

# A broker whose log is cut behind its back when the client has its answer.
LOSES = """
from confluent_kafka import Producer

def send(kafka, **config):
    producer = Producer(kafka.client_config("producer") | {"log_level": 0} | config)
    producer.produce("orders", b"book")
    assert producer.flush(20) == 0

def lose(kafka):
    replica = kafka._bed.call(lambda: kafka._bed.reader.leader("orders", 0))
    kafka._bed.call(lambda: replica.log.truncate_fully_and_start_at(replica.log.log_end_offset))
"""
LOST = f"""{LOSES}
def test_lost(kafka):
    kafka.create_topic("orders", 1)
    send(kafka)
    lose(kafka)
"""
DOUBLED = f"""{LOSES}
def test_doubled(kafka):
    kafka.create_topic("orders", 1)
    with kafka.fault(api="Produce", times=1, do={{"disconnect": "after"}}, optional=True):
        send(kafka, **{{"enable.idempotence": False}})
"""
AGAIN = f"""{LOSES}
from confluent_kafka import Consumer

def test_again(kafka):
    kafka.create_topic("orders", 1)
    send(kafka)
    for name in ("first", "second"):
        own = {{"group.id": "shop", "client.id": name, "enable.auto.commit": False}}
        consumer = Consumer(kafka.client_config("consumer") | own)
        consumer.subscribe(["orders"])
        assert consumer.poll(20).value() == b"book"
        consumer.close()
"""


def test_fault_of_the_broker_fails_the_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(LOST)

    result = run(suite)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["ottla: audit: 1 findings", "B1 orders-0: offsets 0 to 0 are acknowledged, *"])
    result.stdout.fnmatch_lines(["    +* ms  rdkafka#*  Produce orders-0 *: offsets 0 to 0"])
    result.stdout.fnmatch_lines(["ottla: audit: 1 B1 in 1 tests"])


@pytest.mark.parametrize("way", ["ini", "option", "marker"])
def test_audit_is_off_where_that_is_said(suite: pytest.Pytester, way: str) -> None:
    marker = "import pytest\npytestmark = pytest.mark.kafka(audit='off')\n" if way == "marker" else ""
    suite.makepyfile(marker + LOST)
    if way == "ini":
        ini(suite, "ottla_audit = off")

    result = run(suite, *(("--ottla-audit=off",) if way == "option" else ()))

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(("mode", "errors"), [("errors", 0), ("all", 1)])
def test_faults_of_applications_fail_tests_with_all(suite: pytest.Pytester, mode: str, errors: int) -> None:
    suite.makepyfile(AGAIN)

    result = run(suite, f"--ottla-audit={mode}", "-v")

    result.assert_outcomes(passed=1, errors=errors)
    result.stdout.fnmatch_lines(["ottla: audit: 1 P4 in 1 tests", "  *::test_again: P4 shop orders-0: 1 records *"])


def test_what_a_rule_explains_is_a_note(suite: pytest.Pytester) -> None:
    suite.makepyfile(DOUBLED)

    result = run(suite, "--ottla-audit=all", "-v")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*P1 orders-0: 1 records are at offsets 0 and 1 (explained by fault rule 'fault-1')"])


def test_failing_test_has_a_section_of_the_audit(suite: pytest.Pytester) -> None:
    suite.makepyfile(AGAIN + "    assert False\n")

    result = run(suite)

    result.stdout.fnmatch_lines(["*- ottla: audit -*", "P4 shop orders-0: 1 records from offset 0 on"])


def test_wrong_mode_is_one_sentence(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_audit = some")
    suite.makepyfile(LOST)

    assert "ottla_audit='some': expected one of errors, all, off" in run(suite).stdout.str()


def test_workers_hand_over_their_findings(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite.makepyfile(test_one=AGAIN, test_two=AGAIN, test_three=LOST)

    result = run(suite, "-n", "2")

    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["ottla: audit: 1 B1, 2 P4 in 3 tests"])


COMMAND = """
import os
from confluent_kafka import Consumer, Producer
bootstrap = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
producer.produce("orders", b"book")
assert producer.flush(20) == 0
for name in ("first", "second"):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop", "client.id": name,
                         "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(20).value() == b"book"
    consumer.close()
"""


@pytest.mark.parametrize(("mode", "status"), [("errors", 0), ("all", 3), ("off", 0)])
def test_run_prints_the_audit(tmp_path: Path, mode: str, status: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(COMMAND)
    ottla = Path(sys.executable).with_name("ottla")
    line = [str(ottla), "run", "--topic", "orders:1", "--audit", mode, "--", sys.executable, str(program)]

    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == status, done.stderr
    assert ("P4 shop orders-0: 1 records from offset 0 on" in done.stderr) == (mode != "off")
