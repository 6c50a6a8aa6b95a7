"""`ottla quotas`: described, altered, and refused."""

from collections.abc import Iterator

import pytest

from ottla import BrokerThread
from tests.cli.embedded import json_of, output_of, run_at


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


def test_quotas_are_set_described_and_taken_away(broker: BrokerThread) -> None:
    alter = ("quotas", "alter")
    said = output_of(broker, *alter, "user=alice", "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")
    assert said == "altered the quotas of user=alice\n"
    output_of(broker, *alter, "client-id=a=b", "user", "--add-config", "consumer_byte_rate=5")
    output_of(broker, *alter, "ip=10.0.0.7", "--add-config", "connection_creation_rate=3")
    table = output_of(broker, "quotas", "describe")
    assert [line.split() for line in table.splitlines()] == [
        ["ENTITY", "QUOTA", "VALUE"],
        ["ip=10.0.0.7", "connection_creation_rate", "3"],
        ["user", "client-id=a=b", "consumer_byte_rate", "5"],
        ["user=alice", "producer_byte_rate", "1048576"],
        ["user=alice", "request_percentage", "12.5"],
    ]
    described = json_of(broker, "quotas", "describe", "user")
    assert described == [{"entity": {"user": None, "client-id": "a=b"}, "quotas": {"consumer_byte_rate": 5}}]

    output_of(broker, *alter, "user=alice", "--delete-config", "producer_byte_rate", "--delete-config", "no_such")
    assert json_of(broker, "quotas", "describe", "user=alice") == [
        {"entity": {"user": "alice"}, "quotas": {"request_percentage": 12.5}}
    ]
    done = json_of(broker, *alter, "user=alice", "--delete-config", "request_percentage")
    assert done == {"entity": {"user": "alice"}, "set": {}, "removed": ["request_percentage"]}
    assert json_of(broker, "quotas", "describe", "user=alice") == []


def test_what_is_only_validated_is_not_set(broker: BrokerThread) -> None:
    said = output_of(broker, "quotas", "alter", "user=bob", "--add-config", "producer_byte_rate=7", "--validate-only")
    assert said == "could alter the quotas of user=bob\n"
    assert json_of(broker, "quotas", "describe", "user=bob") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("alter", "user=alice"), "say what with --add-config or --delete-config"),
        (("alter", "planet=mars", "--delete-config", "x"), "planet=mars is not TYPE=NAME"),
        (("alter", "user=", "--delete-config", "x"), "user= is not TYPE=NAME"),
        (("alter", "user=a", "user=b", "--delete-config", "x"), "user is given twice"),
        (("alter", "user=a", "--add-config", "producer_byte_rate"), "producer_byte_rate is not KEY=NUMBER"),
        (("alter", "user=a", "--add-config", "producer_byte_rate=fast"), "producer_byte_rate=fast is not KEY=NUMBER"),
        (("alter", "user=a", "--add-config", "producer_byte_rate=0"), "must be greater than 0"),
        (("alter", "user=a", "--add-config", "no_such=1"), "Invalid configuration key no_such"),
        (
            ("alter", "user=a", "ip=10.0.0.1", "--add-config", "producer_byte_rate=1"),
            "Invalid quota entity",
        ),
    ],
)
def test_what_cannot_be_set_is_refused(broker: BrokerThread, arguments: tuple[str, ...], sentence: str) -> None:
    result = run_at(broker, "quotas", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in " ".join(result.stderr.split())
