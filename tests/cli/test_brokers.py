"""`ottla brokers`, and what leaders are asked for: offsets by time, deletion of records, producers."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla import BrokerThread
from ottla.broker.server.apis import APIS
from ottla.cli.operations.brokers import API_NAMES
from tests.cli.embedded import json_of, output_of, refusal_of, run_at

NOON_MS = 1_780_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """Partition 0 of `t` has five records, a minute apart."""
    with BrokerThread(settings={"num.partitions": 2}) as broker:
        lines = [json.dumps({"value": "x", "timestamp": NOON_MS + i * 60_000, "partition": 0}) for i in range(5)]
        output_of(broker, "produce", "t", "--from-json", stdin="\n".join(lines))
        yield broker


def test_names_of_apis_are_those_of_the_broker() -> None:
    assert {key: API_NAMES[key] for key in APIS} == {key: api.name for key, api in APIS.items()}


def test_api_versions_are_those_that_the_broker_serves(broker: BrokerThread) -> None:
    found = json_of(broker, "brokers", "api-versions")

    assert [(row["broker"], row["key"], row["api"] if "api" in row else row["name"]) for row in found][:2] == [
        (0, 0, "Produce"),
        (0, 1, "Fetch"),
    ]
    assert len(found) == len(APIS)


def test_configs_are_shown_and_altered_at_run_time(broker: BrokerThread) -> None:
    assert "num.partitions" in output_of(broker, "brokers", "configs")
    assert output_of(broker, "brokers", "alter", "0", "--config", "log.retention.ms=1000") == "altered broker 0\n"

    configs = {row["name"]: (row["value"], row["source"]) for row in json_of(broker, "brokers", "configs", "0")}
    assert configs["log.retention.ms"] == ("1000", "this broker")
    output_of(broker, "brokers", "alter", "--all", "--unset", "log.retention.ms")
    output_of(broker, "brokers", "alter", "0", "--unset", "log.retention.ms")
    assert refusal_of(broker, "brokers", "alter", "0", "--config", "node.id=3").startswith("cannot alter broker 0: ")
    assert refusal_of(broker, "brokers", "configs", "7") == "broker 7 is not live; 0 are"


def test_log_directories_have_their_replicas_and_sizes(broker: BrokerThread) -> None:
    (directory,) = json_of(broker, "brokers", "log-dirs")

    assert (directory["broker"], directory["error"], directory["replicas"]) == (0, None, 2)
    sizes = {(each["topic"], each["partition"]): each["size_bytes"] for each in directory["partitions"]}
    assert sizes["t", 0] > sizes["t", 1] == 0
    assert output_of(broker, "brokers", "log-dirs", "--replicas").count("\n") == 3


def test_offsets_by_time_and_by_name(broker: BrokerThread) -> None:
    def offsets(*arguments: str) -> list[int | None]:
        return [row["offset"] for row in json_of(broker, "topics", "offsets", *arguments)]

    assert offsets("t") == [5, 0]
    assert offsets("t", "--time", "earliest") == [0, 0]
    assert offsets("t:0", "--time", "max-timestamp") == [4]
    assert offsets("t", "--time", "2026-05-28T20:28:00+00:00") == [2, None]
    assert refusal_of(broker, "topics", "offsets", "t:9") == "topic t has no partition 9"


def test_producers_of_a_partition_are_listed(broker: BrokerThread) -> None:
    output_of(broker, "topics", "create", "idempotent", "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce("idempotent", b"x")
    assert producer.flush(20) == 0

    (found,) = json_of(broker, "partitions", "producers", "idempotent")
    assert (found["partition"], found["producer_epoch"], found["last_sequence"]) == (0, 0, 0)


def test_records_before_an_offset_or_a_time_are_deleted(broker: BrokerThread) -> None:
    lines = [json.dumps({"value": "x", "timestamp": NOON_MS + i * 60_000, "partition": 0}) for i in range(5)]
    output_of(broker, "produce", "old", "--from-json", stdin="\n".join(lines))

    def start_after(*arguments: str) -> int:
        (row,) = json_of(broker, "topics", "delete-records", "old:0", *arguments)
        return int(row["log_start_offset"])

    assert start_after("--before-offset", "1") == 1
    assert start_after("--before", "2026-05-28T20:29:00+00:00") == 3
    assert refusal_of(broker, "topics", "delete-records", "old:0", "--before-offset", "9") == (
        "cannot delete records of old-0: the log does not have that offset"
    )
    assert start_after("--all") == 5
    assert run_at(broker, "topics", "delete-records", "old", "--all", "--before-offset", "3").exit_code == 2


def test_lag_and_description_of_all_groups(broker: BrokerThread) -> None:
    for group in ("one", "two"):
        output_of(broker, "consume", "t", "--group", group, "--from-beginning", "--max-messages", "2")

    lags = {(row["group_id"], row["partition"]): row["lag"] for row in json_of(broker, "groups", "lag", "--all")}
    assert lags["one", 0] == lags["two", 0] == 3
    assert [group["group_id"] for group in json_of(broker, "groups", "describe", "--all")] == ["one", "two"]
    assert output_of(broker, "groups", "lag", "one").splitlines()[1].split()[:2] == ["one", "Empty"]


def test_offsets_of_a_topic_are_deleted_from_a_group(broker: BrokerThread) -> None:
    output_of(broker, "consume", "t", "--group", "gone", "--from-beginning", "--max-messages", "1")

    assert "deleted the offset of t:0\n" in output_of(broker, "groups", "delete-offsets", "gone", "--topic", "t")
    assert json_of(broker, "groups", "lag", "gone") == []
    assert refusal_of(broker, "groups", "delete-offsets", "gone", "--topic", "t") == (
        "group gone has committed no offsets there"
    )
