"""How commands are found, listed and completed."""

from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from confluent_kafka import Producer

from ottla import BrokerThread
from ottla.cli.app import cli
from ottla.cli.operations import produce
from tests.cli.embedded import json_of, output_of
from tests.cli.runner import run


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        output_of(broker, "topics", "create", "orders", "other")
        output_of(broker, "produce", "orders", stdin="x")
        output_of(broker, "consume", "orders", "--group", "shop", "--from-beginning", "--max-messages", "1")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
        producer.init_transactions(20)
        yield broker


def error_of(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2
    return result.stderr.splitlines()[-1]


def test_misspelled_command_is_answered_with_a_guess() -> None:
    assert error_of("topcs", "list") == "Error: No such command 'topcs'. Did you mean topics?"
    assert error_of("reassign") == "Error: No such command 'reassign'. Did you mean partitions reassign?"
    assert error_of("groups", "descibe") == "Error: No such command 'descibe'. Did you mean describe?"
    assert error_of("cluster", "xyz") == "Error: No such command 'xyz'. There are health, status, unregister."


@pytest.mark.parametrize("name", ["topic", "groups", "broker", "clusters"])
def test_commands_are_found_by_singular_and_plural(name: str) -> None:
    assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("group", ["", "topics", "partitions", "groups", "transactions", "brokers", "cluster", "log"])
def test_lists_of_commands_have_whole_sentences(group: str) -> None:
    _, heading, commands = run(*group.split(), "--help").stdout.partition("Commands:\n")

    assert heading
    assert "..." not in commands


@pytest.mark.parametrize(
    ("words", "incomplete", "completed"),
    [
        (["consume"], "o", ["orders", "other"]),
        (["consume"], "__con", ["__consumer_offsets"]),
        (["topics", "describe"], "ord", ["orders"]),
        (["topics", "delete-records"], "oth", ["other"]),
        (["groups", "why"], "", ["shop"]),
        (["groups"], "des", ["describe"]),
        (["transactions", "describe"], "p", ["payments"]),
    ],
)
def test_shell_completes_commands_and_names(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, words: list[str], incomplete: str, completed: list[str]
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)

    found = ShellComplete(cli, {}, "ottla", "_OTTLA_COMPLETE").get_completions(words, incomplete)
    assert [item.value for item in found] == completed


def test_shell_completes_nothing_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:1")

    assert ShellComplete(cli, {}, "ottla", "_OTTLA_COMPLETE").get_completions(["consume"], "o") == []


def test_time_of_a_produce_begins_before_its_topic_is_there(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, partitions_of = [0.0], produce.reachable_partitions

    async def slow(*arguments: object, **options: object) -> list[int]:
        now[0] += 5
        return await partitions_of(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(produce, "reachable_partitions", slow)
    monkeypatch.setattr(produce, "monotonic", lambda: now[0])

    assert json_of(broker, "produce", "orders", "/dev/null")["seconds"] == 5.0
