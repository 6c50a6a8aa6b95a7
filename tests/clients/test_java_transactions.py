"""Transactions of Apache Kafka's Java client and of its tools, against this broker."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import BrokerThread
from ottla.testing.faults.actions import Disconnect
from tests.cli.hanging import write_hanging
from tests.cli.runner import run
from tests.clients.test_confluent_kafka import create_topic
from tests.clients.test_kafka_tools import AT, TOOLS, Tool, run_all
from tests.java_tools import TOOL_WITHIN_S, classpath, program, run_tool
from tests.served import ServedBroker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

SOURCE = Path(__file__).parents[1] / "java" / "Transactions.java"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
# By `transaction.version` 2, as against Apache Kafka 4.1; that refuses the running producer at level 0.
SEEN = [
    "epoch 3",
    "read_committed [committed, second]",
    "read_uncommitted [committed, aborted, second]",
    "offset none",
    "offset 6",
    "refused CommitFailedException: Specified group generation id is not valid.",
    "refused CommitFailedException: The coordinator is not aware of this member.",
    "offsets {in-0=null}",
    "fenced InvalidProducerEpochException",
    "read_committed [committed, second, newer]",
    "timed out InvalidProducerEpochException",
    "epoch 2",
    "level 1 epoch 0",
    "level 2 epoch 2",
    "level 0 epoch 3",
    "level 2 epoch 5",
    "read_committed 13",
    "left open",
]
WITHOUT_VERIFICATION = "transaction.partition.verification.enable=false"
COMMAND = TOOLS + "TransactionsCommand"
OPEN_PLACE = "--topic in --partition 0"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("java") / "data", SETTINGS) as broker:
        for topic in ("in", "out", "ghost"):
            create_topic(broker, topic)
        yield broker


def seen_by_client(broker: ServedBroker) -> list[str]:
    command = [*program(SOURCE, classpath()), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * TOOL_WITHIN_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def said(broker: ServedBroker) -> list[str]:
    """What the client saw; it has left the transaction of `open` open."""
    return seen_by_client(broker)


def test_client_commits_aborts_copies_and_is_fenced(said: list[str]) -> None:
    assert said == SEEN


def test_client_sees_the_same_with_three_brokers(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", SETTINGS, arguments=["--brokers", "3"]) as cluster:
        create_topic(cluster, "in")
        create_topic(cluster, "out")

        assert seen_by_client(cluster) == SEEN


def test_client_sees_the_same_when_answers_to_the_end_are_lost() -> None:
    """TX24, by `transaction.version` 2 and below: each EndTxn that is repeated gets the pair of the first."""
    with BrokerThread(settings=SETTINGS) as broker:
        for topic in ("in", "out"):
            create_topic(broker, topic)  # type: ignore[arg-type]
        lost = Disconnect("after")
        with broker.faults.fault(api="EndTxn", nth="every 2", times="unlimited", do=lost) as rule:
            assert seen_by_client(broker) == SEEN  # type: ignore[arg-type]

        assert rule.hits > 5


def rows(printed: str) -> list[list[str]]:
    """Below the heading; the first tool of a virtual machine says something of its log before."""
    lines = [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("SLF4J")]
    return lines[1:]


def test_tool_lists_describes_and_aborts(broker: ServedBroker, said: list[str], tmp_path: Path) -> None:
    altered = run("brokers", "alter", "--all", "--config", WITHOUT_VERIFICATION, "--bootstrap", broker.bootstrap)
    assert altered.exit_code == 0, altered.output
    producer_id = write_hanging(broker.bootstrap, "ghost", b"x", ago_s=3600)
    place = "--topic ghost --partition 0"
    find = Tool("find", COMMAND, f"{AT} find-hanging --topic ghost", "")
    tools = [
        Tool("list", COMMAND, f"{AT} list", ""),
        Tool("describe", COMMAND, f"{AT} describe --transactional-id open", ""),
        Tool("producers", COMMAND, f"{AT} describe-producers {place}", ""),
        find,
        Tool("abort", COMMAND, f"{AT} abort {place} --start-offset 0", ""),
        find,
        Tool("long", COMMAND, f"{AT} list --duration-filter 3600000", ""),
        Tool("pattern", COMMAND, f"{AT} list --transactional-id-pattern o.*", ""),
        Tool("terminate", COMMAND, f"{AT} forceTerminateTransaction --transactionalId open", ""),
        Tool("terminated", COMMAND, f"{AT} describe --transactional-id open", ""),
        Tool("no producer", COMMAND, f"{AT} describe-producers {OPEN_PLACE}", ""),
        Tool("no pattern", COMMAND, f"{AT} list --transactional-id-pattern (", ""),
    ]

    outcomes = run_all(broker, tools, tmp_path)

    (is_refused, _) = outcomes.pop()
    assert is_refused
    assert [status for status, _ in outcomes] == [0] * len(outcomes), outcomes
    listed, (described,), (producer,), (found,), _, left, _, (matched,), *forced = (rows(out) for _, out in outcomes)
    assert [(row[0], row[1], row[3]) for row in sorted(listed)] == [
        ("java", "0", "CompleteCommit"),
        ("level", "0", "CompleteCommit"),
        ("levels", "0", "CompleteCommit"),
        ("open", "0", "Ongoing"),
        ("slow", "0", "CompleteCommit"),
    ]
    assert (described[1], described[4], described[-1]) == ("open", "Ongoing", "in-0")
    assert (producer[0], producer[-1]) == (str(producer_id), "0")
    assert found[:4] == ["ghost", "0", str(producer_id), "0"]
    assert left == []
    assert matched[0] == "open"
    _, (terminated,), producers = forced
    # One epoch fences the producer that was in the transaction, the next one is for the tool itself.
    assert terminated[1:5] == ["open", described[2], str(int(described[3]) + 2), "Empty"]
    assert {row[-1] for row in producers} == {"None"}


def test_dump_log_decodes_transaction_state(broker: ServedBroker, said: list[str]) -> None:
    assert broker.stop() == 0
    files = [str(path) for path in broker.data_dir.glob("__transaction_state-*/*.log") if path.stat().st_size]

    dump = run_tool("kafka.tools.DumpLogSegments", "--files", ",".join(files), "--transaction-log-decoder")

    assert '"transactionalId":"open"' in dump
    assert re.search(r'"topic":"in","partitionIds":\[0\]', dump)
    assert "isvalid: false" not in dump
