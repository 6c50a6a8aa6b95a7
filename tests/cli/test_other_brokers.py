"""The commands against a cluster of three that is not ours: librdkafka's built-in mock."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.cli.runner import run


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    owner = Producer({"bootstrap.servers": "replaced.invalid:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    # The cluster lives as long as the producer that it belongs to.
    owner.flush(1)


def ottla(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    result = run(*arguments, "--bootstrap", bootstrap, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_foreign_cluster_can_be_produced_to_and_consumed_from(mock_cluster: str) -> None:
    ottla(mock_cluster, "produce", "foreign", stdin="a\nb\nc\n")

    assert sorted(ottla(mock_cluster, "consume", "foreign", "--from-beginning", "--exit-at-end").split()) == [
        "a",
        "b",
        "c",
    ]
    assert "foreign" in ottla(mock_cluster, "topics", "list")


def test_what_a_foreign_broker_does_not_offer_is_said(mock_cluster: str) -> None:
    result = run("groups", "list", "--bootstrap", mock_cluster)

    assert result.exit_code == 1
    assert "does not offer ListGroups in a version that this command speaks" in result.stderr
