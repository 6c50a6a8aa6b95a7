"""`ottla produce --transactional-id` and `ottla consume --isolation`, as a user runs them."""

import json
from collections.abc import Iterator

import pytest

from ottla import BrokerThread
from tests.cli.embedded import json_of, output_of, refusal_of, run_at
from tests.cli.hanging import write_hanging
from tests.cli.runner import run

COMMITTED = ("--isolation", "read_committed", "--from-beginning", "--exit-at-end")
UNCOMMITTED = ("--from-beginning", "--exit-at-end")
IN_TRANSACTION = ("--transactional-id", "tx")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings={"transaction.partition.verification.enable": False}) as broker:
        yield broker


def state(broker: BrokerThread) -> str:
    (described,) = json_of(broker, "transactions", "describe", "tx")
    return str(described["state"])


def test_lines_of_a_transaction_are_committed_together(broker: BrokerThread) -> None:
    said = output_of(broker, "produce", "whole", *IN_TRANSACTION, stdin="a\nb\n")

    assert said.startswith("produced 2 records to whole")
    assert state(broker) == "CompleteCommit"
    assert output_of(broker, "consume", "whole", *COMMITTED).split() == ["a", "b"]
    assert output_of(broker, "consume", "whole", *UNCOMMITTED).split() == ["a", "b"]


def test_transaction_of_no_lines_does_nothing(broker: BrokerThread) -> None:
    assert output_of(broker, "produce", "whole", *IN_TRANSACTION, stdin="").startswith("produced 0 records")


def test_line_that_is_wrong_aborts_the_transaction(broker: BrokerThread) -> None:
    lines = "\n".join([*(json.dumps({"value": "x" * 500}) for _ in range(1000)), "{}"])
    result = run_at(broker, "produce", "wrong", "--from-json", *IN_TRANSACTION, stdin=lines)

    assert (result.exit_code, result.stderr) == (1, "Error: line 1001 of standard input has no value\n")
    assert state(broker) != "Ongoing"
    assert output_of(broker, "consume", "wrong", *COMMITTED) == ""


def test_consumer_of_committed_records_stops_before_an_open_one(broker: BrokerThread) -> None:
    output_of(broker, "produce", "open", stdin="a\n")
    write_hanging(broker.bootstrap, "open", b"b")
    output_of(broker, "produce", "open", stdin="c\n")

    assert output_of(broker, "consume", "open", *COMMITTED).split() == ["a"]
    assert output_of(broker, "consume", "open", *UNCOMMITTED).split() == ["a", "b", "c"]
    output_of(broker, "transactions", "abort", "open:0", "--start-offset", "1")
    assert output_of(broker, "consume", "open", *COMMITTED).split() == ["a", "c"]


def test_timeout_above_the_brokers_is_one_sentence(broker: BrokerThread) -> None:
    assert refusal_of(broker, "produce", "whole", *IN_TRANSACTION, "--transaction-timeout", "1000") == (
        "cannot produce to whole: the broker does not allow a transaction timeout as long as this"
    )


def test_transaction_needs_all_acknowledgements() -> None:
    result = run("produce", "t", *IN_TRANSACTION, "--acks", "1")

    assert result.exit_code == 2
    assert "--transactional-id needs --acks all" in result.stderr
