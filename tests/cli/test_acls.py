"""`ottla acls`: at a broker with an authorizer, and at one without."""

from collections.abc import Iterator

import pytest

from ottla import BrokerThread
from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from tests.cli.embedded import json_of, output_of, refusal_of, run_at


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with BrokerThread(settings=settings) as broker:
        yield broker


def operations_on(broker: BrokerThread, *resource: str) -> list[str]:
    return sorted(each["operation"] for each in json_of(broker, "acls", "list", *resource))


def test_a_producer_and_a_consumer_get_what_they_need(broker: BrokerThread) -> None:
    alice = ("--allow-principal", "User:alice")
    said = output_of(
        broker, "acls", "add", *alice, "--producer", "--idempotent", "--topic", "orders", "--transactional-id", "pay"
    )
    assert said == "added 6 ACLs\n"
    assert operations_on(broker, "--topic", "orders") == ["CREATE", "DESCRIBE", "WRITE"]
    assert operations_on(broker, "--transactional-id", "pay") == ["DESCRIBE", "WRITE"]
    assert operations_on(broker, "--cluster") == ["IDEMPOTENT_WRITE"]
    output_of(broker, "acls", "add", *alice, "--consumer", "--topic", "bills", "--group", "crew")
    assert operations_on(broker, "--topic", "bills") == ["DESCRIBE", "READ"]
    assert operations_on(broker, "--group", "crew") == ["READ"]


def test_acls_are_listed_as_a_table(broker: BrokerThread) -> None:
    for name, kind in (("team-", "prefixed"), ("team-a", "literal"), ("other", "literal")):
        where = ("--topic", name, "--resource-pattern-type", kind)
        output_of(broker, "acls", "add", "--allow-principal", "User:a", "--operation", "read", *where)
    listed = output_of(broker, "acls", "list", "--topic", "team-a", "--resource-pattern-type", "match")
    assert [line.split() for line in listed.splitlines()] == [
        ["TYPE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
        ["TOPIC", "team-", "PREFIXED", "User:a", "*", "READ", "ALLOW"],
        ["TOPIC", "team-a", "LITERAL", "User:a", "*", "READ", "ALLOW"],
    ]
    assert len(json_of(broker, "acls", "list")) == 3
    assert json_of(broker, "acls", "list", "--principal", "User:b") == []


def test_acls_of_principals_or_of_resources_are_removed(broker: BrokerThread) -> None:
    both = ("--allow-principal", "User:a", "--deny-principal", "User:b", "--deny-host", "10.0.0.1")
    output_of(broker, "acls", "add", *both, "--operation", "READ", "--operation", "WRITE", "--topic", "t")
    assert len(json_of(broker, "acls", "list")) == 4
    one = ("--allow-principal", "User:a", "--operation", "READ", "--topic", "t")
    assert output_of(broker, "acls", "remove", "--yes", *one) == "removed 1 ACL\n"
    assert json_of(broker, "acls", "remove", "--yes", "--topic", "t") == {"removed": 3}
    assert json_of(broker, "acls", "list") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--topic", "t"), "name whom with --allow-principal or --deny-principal"),
        (("--allow-principal", "User:a"), "name what with --topic"),
        (("--allow-principal", "alice", "--topic", "t"), "'alice' is no principal"),
        (("--allow-host", "10.0.0.1", "--topic", "t"), "--allow-host needs a principal"),
        (("--allow-principal", "User:a", "--producer"), "--producer needs --topic"),
        (("--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --topic and --group"),
        (("--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "READ"), "give neither"),
        (("--allow-principal", "User:a", "--topic", "t", "--idempotent"), "--idempotent goes with --producer"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(
    broker: BrokerThread, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run_at(broker, "acls", "add", *arguments)
    assert (result.exit_code, sentence in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_an_operation_that_means_nothing_is_refused_here(broker: BrokerThread) -> None:
    wanted = ("--allow-principal", "User:a", "--operation", "IDEMPOTENT_WRITE", "--topic", "t")
    assert "means nothing for a resource of the type TOPIC" in refusal_of(broker, "acls", "add", *wanted)


def test_a_broker_without_an_authorizer_says_so() -> None:
    with BrokerThread() as broker:
        refusal = refusal_of(broker, "acls", "list")
        assert "No Authorizer is configured" in refusal
        wanted = ("--allow-principal", "User:a", "--topic", "t")
        assert "No Authorizer is configured" in refusal_of(broker, "acls", "add", *wanted)
