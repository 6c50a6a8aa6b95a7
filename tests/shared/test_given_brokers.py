"""`--ottla-bootstrap` and `--ottla-control`: the fixtures with brokers that run already; and `--ottla-hold`."""

import json
import re
import socket
import sys
from collections.abc import Iterator
from subprocess import PIPE, STDOUT
from typing import NamedTuple

import pytest

from ottla.testing.control.access import TOKEN_VARIABLE, new_token
from ottla.testing.control.listener import opened_for_fixtures
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.shared.suites import audit_line, ini, run

pytest_plugins = ("pytester",)


class Running(NamedTuple):
    kafka: Kafka
    url: str
    token: str


@pytest.fixture
def running() -> Iterator[Running]:
    """Brokers that have a control address."""
    bed, token = Testbed(), new_token()
    bed.start()
    control = bed.run(opened_for_fixtures(bed, token))
    try:
        yield Running(Kafka(bed), control.url, token)
    finally:
        bed.run(control.close())
        bed.stop()


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    ini(pytester)
    return pytester


def at(running: Running, suite: pytest.Pytester) -> tuple[str, ...]:
    (suite.path / "token").write_text(f"{running.token}\n")
    return f"--ottla-control={running.url}", "--ottla-token-file=token"


def test_each_test_meets_the_running_broker_emptied(suite: pytest.Pytester, running: Running) -> None:
    running.kafka.produce("of-another", [b"a"])
    ini(suite, "ottla_env = KAFKA_ADDRESS")
    suite.makepyfile(
        f"""
        import os
        import pytest

        @pytest.mark.parametrize("number", range(2))
        def test_it(kafka, ottla, kafka_topic, kafka_bootstrap, number):
            assert kafka.topics == []
            kafka.produce(kafka_topic(partitions=1), [b"a"])
            assert {{kafka.bootstrap, ottla.bootstrap, kafka_bootstrap, os.environ["KAFKA_ADDRESS"]}} == {{
                "{running.kafka.bootstrap}"
            }}

        @pytest.mark.kafka(settings={{"num.partitions": 7}})
        def test_settings(kafka):
            kafka.produce("orders", [b"a"])
            assert kafka.bootstrap != "{running.kafka.bootstrap}" and len(kafka.topic("orders").partitions) == 7

        @pytest.mark.kafka(isolation="fresh")
        def test_fresh(kafka):
            assert kafka.bootstrap != "{running.kafka.bootstrap}"
        """
    )

    run(suite, *at(running, suite)).assert_outcomes(passed=4)

    assert running.kafka.topics == []


def test_audit_and_coverage_are_of_this_session(suite: pytest.Pytester, running: Running) -> None:
    suite.makepyfile(
        """
        from confluent_kafka import Producer

        def test_sent_twice(kafka, kafka_topic):
            topic = kafka_topic(partitions=1)
            producer = Producer(kafka.client_config("producer") | {"log_level": 0})
            with kafka.fault(api="Produce", topic=topic, times=1, do={"disconnect": "after"}) as fault:
                producer.produce(topic, b"book")
                assert producer.flush(20) == 0
                fault.wait(hits=1)
        """
    )

    for _ in range(2):
        result = run(suite, *at(running, suite), "--ottla-coverage=counted.json")

        assert audit_line(result) == "ottla: audit: 1 P1 in 1 tests"
        counted = json.loads((suite.path / "counted.json").read_text())
        assert sum(count for key, count in counted["apis"].items() if "Produce" in key) == 2


def test_without_control_only_the_address_is_there(suite: pytest.Pytester, running: Running) -> None:
    suite.makepyfile(
        f"""
        def test_address(kafka_bootstrap): assert kafka_bootstrap == "{running.kafka.bootstrap}"
        def test_handle(kafka): pass
        def test_session(ottla): pass
        def test_examples(kafka_world):
            with kafka_world(): pass
        def test_cluster(kafka_cluster): assert len(kafka_cluster.node_ids) == 3
        """
    )

    result = run(suite, f"--ottla-bootstrap={running.kafka.bootstrap}", "-rs")

    result.assert_outcomes(passed=2, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*have no --ottla-control, which this needs: only kafka_bootstrap is there"])


@pytest.mark.parametrize("form", ["file", "variable", "control file"])
def test_token_comes_by_a_file_or_a_variable(
    suite: pytest.Pytester, running: Running, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    suite.makepyfile("def test_it(kafka): assert kafka.topics == []")
    arguments = at(running, suite)
    if form == "variable":
        monkeypatch.setenv(TOKEN_VARIABLE, running.token)
        arguments = arguments[:1]
    elif form == "control file":
        (suite.path / "token").write_text(json.dumps({"url": running.url, "token": running.token}))

    result = run(suite, *arguments)

    result.assert_outcomes(passed=1)
    assert running.token not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "--ottla-token-file: [[]Errno 2[]] No such file*"),
        ("another token of some length", "--ottla-control: *token*"),
        ("{}", "--ottla-token-file: * has no token"),
    ],
)
def test_wrong_token_is_one_sentence(suite: pytest.Pytester, running: Running, text: str | None, sentence: str) -> None:
    suite.makepyfile("def test_it(kafka): pass")
    arguments = at(running, suite)
    (suite.path / "token").unlink()
    if text is not None:
        (suite.path / "token").write_text(text)

    result = run(suite, *arguments)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{sentence}"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--ottla-bootstrap=a:1", "--ottla-where=process"],
            "*run already: not with --ottla-where=process",
        ),
        (["--ottla-bootstrap=a:1", "--ottla-shared"], "*brokers that run already: not with --ottla-shared"),
        (["--ottla-control=a:1", "--ottla-artifacts=x"], "--ottla-artifacts needs*: not with --ottla-bootstrap"),
        (["--ottla-token-file=x"], "--ottla-token-file has the token of an --ottla-control"),
        (["--ottla-control=a:1", "-n", "2"], "workers would empty*take --ottla-isolation=names"),
        (["--ottla-hold", "-n", "2"], "--ottla-hold waits at the terminal*"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    suite: pytest.Pytester, arguments: list[str], sentence: str
) -> None:
    suite.makepyfile("def test_it(): pass")

    result = run(suite, *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])


def test_brokers_of_a_failed_test_are_held_until_enter(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        def test_well(kafka): pass
        def test_failing(kafka): assert kafka.produce("orders", [b"a"]) == []
        def test_without(): assert not "brokers"
        """
    )
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--ottla-hold")
    process = suite.popen(command, stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    while not said.endswith(b"ottla: Enter lets pytest go on\n"):
        line = process.stdout.readline()
        assert line, said
        said += line
    held = re.search(rb"::test_failing has failed; its brokers are held at 127.0.0.1:(\d+)", said)
    assert held is not None

    with socket.create_connection(("127.0.0.1", int(held[1])), timeout=10):
        assert process.poll() is None
        rest, _ = process.communicate(b"\n", timeout=60)

    assert b"2 failed, 1 passed" in rest
    assert rest.count(b"are held at") == 0
