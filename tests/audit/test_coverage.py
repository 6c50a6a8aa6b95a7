"""What `--ottla-coverage` counts, writes, compares and merges."""

import json
import re
from pathlib import Path

import pytest

from ottla.testing.coverage import Coverage, read_baseline
from tests.audit.suites import ini, run

pytest_plugins = ("pytester",)

SUITE = """
from confluent_kafka import Consumer, Producer

def send(kafka, **config):
    producer = Producer(kafka.client_config("producer") | {"log_level": 0} | config)
    producer.produce("orders", b"book" * 500)
    assert producer.flush(20) == 0

def test_writes(kafka):
    kafka.create_topic("orders", 1)
    with kafka.fault(api="Produce", times=1, do={"error": "NOT_LEADER_OR_FOLLOWER"}):
        send(kafka, **{"enable.idempotence": True, "compression.type": "gzip"})
"""
REBALANCE = """
def test_rebalances(kafka):
    kafka.create_topic("orders", 1)
    send(kafka)
    consumer = Consumer(kafka.client_config("consumer") | {"group.id": "shop"})
    consumer.subscribe(["orders"])
    assert consumer.poll(20).value()
    consumer.close()
"""


def test_suite_with_a_rebalance_lists_its_transitions(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE + REBALANCE)

    result = run(suite, "--ottla-coverage")

    result.assert_outcomes(passed=2)
    counted = json.loads((suite.path / "ottla-coverage.json").read_text())
    assert {"Empty to PreparingRebalance", "CompletingRebalance to Stable"} <= set(counted["transitions"])
    assert {"member joined"} <= set(counted["causes"])
    assert {"idempotence", "compression gzip"} <= set(counted["features"])
    assert counted["errors"]["Produce NOT_LEADER_OR_FOLLOWER"] == 1
    assert counted["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 1}
    assert any(key.startswith("Produce v") and "rdkafka" in key for key in counted["apis"])
    assert "NOT_LEADER_OR_FOLLOWER" not in counted["never"]["Produce"]
    assert "ILLEGAL_GENERATION" in counted["never"]["OffsetCommit"]
    lines = [line for line in result.stdout.lines if line.startswith("ottla: coverage:")]
    assert len(lines) == 3
    assert "errors answered (1 times by rules); never: Produce" in lines[1]


def test_loss_against_the_baseline_fails_the_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE + REBALANCE)
    assert run(suite, "--ottla-coverage=whole.json").ret == 0
    ini(suite, "ottla_coverage_baseline = whole.json")
    assert run(suite, "--ottla-coverage=again.json").ret == 0
    suite.makepyfile(SUITE)

    result = run(suite, "--ottla-coverage=now.json")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ottla: coverage: lost: transitions: Empty to PreparingRebalance"])


def test_baseline_that_is_not_there_fails_the_run(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_coverage_baseline = none.json")
    suite.makepyfile(SUITE)

    result = run(suite, "--ottla-coverage=now.json")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ottla: coverage: lost: the baseline cannot be read: *none.json'"])


def test_release_is_compared_with_what_was_used(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE + REBALANCE)

    result = run(suite, "--ottla-coverage=old.json", "--ottla-target=3.0.2")

    counted = json.loads((suite.path / "old.json").read_text())
    assert counted["target"] == "3.0"
    (metadata,) = (each for each in counted["differs"] if each.startswith("Metadata "))
    assert re.fullmatch(r"Metadata v1[23] by confluent-kafka-python \S+: Kafka 3.0 has v0 to v11", metadata)
    result.stdout.fnmatch_lines(["ottla: coverage: * versions of APIs and 0 errors are not those of Kafka 3.0: *"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ottla-target=3.7"], "--ottla-target compares what --ottla-coverage counts, which is not given"),
        (["--ottla-coverage", "--ottla-target=9.9"], "--ottla-target: '9.9' is no release of Kafka that is known here"),
    ],
)
def test_wrong_target_is_wrong_usage(suite: pytest.Pytester, options: list[str], sentence: str) -> None:
    result = run(suite, *options)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {sentence}*"])


def test_file_that_cannot_be_written_fails_the_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE)

    result = run(suite, "--ottla-coverage=none/counted.json")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ottla: coverage: cannot write none/counted.json: No such file or directory"])


def test_workers_are_merged(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite.makepyfile(**{f"test_{number}": SUITE + REBALANCE for number in range(4)})

    result = run(suite, "--ottla-coverage=all.json", "-n", "2")

    result.assert_outcomes(passed=8)
    counted = json.loads((suite.path / "all.json").read_text())
    assert counted["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 4}
    assert counted["transitions"]["Empty to PreparingRebalance"] == 4


def test_counts_add_up() -> None:
    one, other = Coverage(), Coverage()
    one.failed("Produce", 6)
    other.failed("Produce", 6)
    other.failed("Fetch", 1)

    one.merge(other.plain())

    assert one.plain()["errors"] == {"Fetch OFFSET_OUT_OF_RANGE": 1, "Produce NOT_LEADER_OR_FOLLOWER": 2}


def test_another_version_of_a_client_is_no_loss() -> None:
    now = Coverage()
    now.counts["apis"]["Produce v11 by librdkafka 2.7.0"] = 1

    assert now.lost_since({"apis": {"Produce v11 by librdkafka 2.6.1": 5}}) == []
    assert now.lost_since({"apis": {"Produce v9 by librdkafka 2.6.1": 5}}) == ["apis: Produce v9 by librdkafka"]


@pytest.mark.parametrize("content", ["[]", "{}", "{"])
def test_another_file_is_no_baseline(tmp_path: Path, content: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r".+"):
        read_baseline(path)
