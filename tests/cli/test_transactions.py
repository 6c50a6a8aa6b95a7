"""`ottla transactions` against a broker in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from ottla import BrokerThread
from tests.cli.embedded import json_of, output_of, refusal_of, run_at
from tests.cli.hanging import write_hanging

UNVERIFIED = {"transaction.partition.verification.enable": False}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """`paid` is complete, `pending` open in partition 1 of `t`."""
    with BrokerThread(settings=UNVERIFIED | {"num.partitions": 2}) as broker:
        output_of(broker, "topics", "create", "t", "ghost", "--partitions", "2")
        with transaction(broker, "paid") as producer:
            producer.commit_transaction()
        with transaction(broker, "pending") as producer:
            yield broker
            producer.abort_transaction()


@contextmanager
def transaction(broker: BrokerThread, transactional_id: str) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=1)
    assert producer.flush(20) == 0
    yield producer


def listed(broker: BrokerThread, *options: str) -> list[str]:
    return [row["transactional_id"] for row in json_of(broker, "transactions", "list", *options)]


def test_list_shows_states_and_coordinators(broker: BrokerThread) -> None:
    rows = [line.split() for line in output_of(broker, "transactions", "list").splitlines()]

    assert rows[0] == ["TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "COORDINATOR"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        ("paid", "CompleteCommit", "0"),
        ("pending", "Ongoing", "0"),
    ]


def test_list_takes_the_filters_of_kafka(broker: BrokerThread) -> None:
    (pending,) = json_of(broker, "transactions", "list", "--state", "Ongoing", "--state", "Empty")

    assert pending["transactional_id"] == "pending"
    assert listed(broker, "--producer-id", str(pending["producer_id"])) == ["pending"]
    assert listed(broker, "--open-for", "1h") == []
    assert listed(broker, "--open-for", "0s") == ["pending"]
    assert listed(broker, "--include", "pa.*") == ["paid"]
    assert listed(broker, "--include", "pa") == []


def test_describe_shows_the_open_transaction(broker: BrokerThread) -> None:
    (described,) = json_of(broker, "transactions", "describe", "pending")

    assert described["partitions"] == [{"topic": "t", "partition": 1}]
    assert (described["state"], described["transaction_timeout_ms"]) == ("Ongoing", 60000)
    assert described["coordinator"] == broker.bootstrap
    lines = output_of(broker, "transactions", "describe", "paid", "pending").splitlines()
    assert lines[0] == "transactional id paid"
    assert lines[-2:] == ["TOPIC  PARTITION", "t              1"]


def test_unknown_transactional_id_is_one_sentence(broker: BrokerThread) -> None:
    assert refusal_of(broker, "transactions", "describe", "no") == "transactional id no: it does not exist"


def test_hanging_transaction_is_found_and_aborted(broker: BrokerThread) -> None:
    producer_id = write_hanging(broker.bootstrap, "ghost", b"a", b"b", ago_s=3600)

    (found,) = json_of(broker, "transactions", "find-hanging")
    assert (found["topic"], found["partition"], found["producer_id"]) == ("ghost", 0, producer_id)
    assert found["transaction_start_offset"] == 0
    assert json_of(broker, "transactions", "find-hanging", "ghost:0,1", "--open-for", "2h") == []
    assert json_of(broker, "transactions", "find-hanging", "t") == []

    said = output_of(broker, "transactions", "abort", "ghost:0", "--start-offset", "0")
    assert said == f"aborted the transaction of producer {producer_id} in ghost-0\n"
    assert json_of(broker, "transactions", "find-hanging", "ghost") == []
    again = refusal_of(broker, "transactions", "abort", "ghost:0", "--start-offset", "0")
    assert again == "ghost-0 has no such open transaction"


def test_transaction_of_a_producer_and_epoch_is_aborted(broker: BrokerThread) -> None:
    producer = ("--producer-id", str(write_hanging(broker.bootstrap, "ghost", b"c")))

    newer = refusal_of(broker, "transactions", "abort", "ghost:0", *producer, "--producer-epoch", "1")
    assert newer == "ghost-0 has no such open transaction"
    aborted = json_of(broker, "transactions", "abort", "ghost:0", *producer, "--producer-epoch", "0")
    assert str(aborted["producer_id"]) == producer[1]


def test_transaction_of_a_live_coordinator_needs_force(broker: BrokerThread) -> None:
    with transaction(broker, "alive"):
        producer_id = json_of(broker, "transactions", "describe", "alive")[0]["producer_id"]
        (epoch,) = (
            str(each["producer_epoch"])
            for each in json_of(broker, "partitions", "producers", "t:1")
            if each["producer_id"] == producer_id
        )
        target = ("t:1", "--producer-id", str(producer_id), "--producer-epoch", epoch)

        assert refusal_of(broker, "transactions", "abort", *target) == (
            "the transaction of alive in t-1 does not hang: its state is Ongoing, and its coordinator ends it"
        )
        output_of(broker, "transactions", "abort", *target, "--force")
        assert json_of(broker, "transactions", "describe", "alive")[0]["state"] == "Ongoing"


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort", "t:1"),
        ("abort", "t", "--start-offset", "0"),
        ("abort", "t:1", "--producer-id", "3"),
        ("abort", "t:1", "--start-offset", "0", "--producer-id", "3", "--producer-epoch", "0"),
        ("list", "--state", "Lost"),
        ("list", "--open-for", "yesterday"),
        ("describe",),
    ],
)
def test_wrong_usage_of_transactions(broker: BrokerThread, arguments: tuple[str, ...]) -> None:
    assert run_at(broker, "transactions", *arguments).exit_code == 2
