"""SEC29 at the commands: what clients have chosen is text on an operator's terminal, and nothing that it would obey."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from ottla.broker.handlers.find_coordinator import GROUP, TRANSACTION
from ottla.cli.app import cli
from ottla.cli.kafka_image.__main__ import main
from ottla.cli.output import Output
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Message
from tests.cli.runner import run
from tests.conftest import QUICK_GROUPS
from tests.fakes.consumer_protocol import build_subscription
from tests.served import ServedBroker
from tests.siege.wire import Wire, address_of
from tests.waiting import wait_for

# Clears the screen, sets the title, begins a sequence in one character (C1), turns the direction, forges a line.
NAME = "g\x1b[2J\x1b]0;title\x07\x9b31m\u202etxet\u2028\nforged"
SHOWN = "g\\u001b[2J\\u001b]0;title\\u0007\\u009b31m\\u202etxet\\u2028\\u000aforged"
NOT_FOR_A_SHELL = [
    "$(id)", "`id`", "a;id", "a b", "a&", "a|b", "a>b", "a<b", "a(b", "*", "a?", "[a]", "{a,b}", "~", "a\\b", "a'b",
    'a"b', "-f", "--json", "!1", "#a", "a\nfile,b", "a\tb", "a\x1b[2J", "payments\n",
]  # fmt: skip
WITHIN_S = 30
COMMANDS = (
    ("groups", "list"),
    ("groups", "describe", NAME),
    ("groups", "why", NAME),
    ("groups", "why"),
    ("groups", "story", NAME),
    ("transactions", "list"),
    ("transactions", "describe", NAME),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    settings = {**QUICK_GROUPS, "ottla.events.enable": "true", "ottla.events.flush.interval.ms": "5"}
    with (
        ServedBroker(tmp_path_factory.mktemp("cli") / "data", settings) as served,
        Wire(address_of(served.bootstrap), NAME) as wire,
    ):
        for key_type in (GROUP, TRANSACTION):
            wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[NAME]), 4)
        join(wire)
        for transactional_id in (NAME, *NOT_FOR_A_SHELL, "payments", "größe-1:a/b"):
            initialize(wire, transactional_id)
        wait_for(lambda: SHOWN in run_at(served, "groups", "story", NAME).stdout, WITHIN_S, "there is no story")
        yield served


def join(wire: Wire) -> None:
    """As the only member of a group of that name, which chooses whatever a member can."""
    protocol = JoinGroupRequestProtocol(name=NAME, metadata=build_subscription(ConsumerProtocolSubscription(), 0))
    joining = JoinGroupRequest(
        group_id=NAME,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
        group_instance_id=NAME,
        reason=NAME,
    )
    joined = accepted(wire, joining, 8)
    syncing = SyncGroupRequest(
        group_id=NAME,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=NAME,
        protocol_type="consumer",
        protocol_name=NAME,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=NAME.encode())],
    )
    assert wire.call(syncing, 5).error_code == 0


def initialize(wire: Wire, transactional_id: str) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    accepted(wire, request, 4)


def accepted(wire: Wire, request: Message, version: int) -> Any:
    """The answer to a request that is sent until the coordinator serves."""
    answers: list[Any] = []

    def is_accepted() -> bool:
        answers.append(wire.call(request, version))
        return answers[-1].error_code == 0

    wait_for(is_accepted, WITHIN_S, lambda: f"refused: {answers[-1]}")
    return answers[-1]


def run_at(broker: ServedBroker, *arguments: str) -> Result:
    return run(*arguments, "--bootstrap", broker.bootstrap)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_names_of_clients_are_text_on_a_terminal(broker: ServedBroker, command: tuple[str, ...]) -> None:
    shown = run_at(broker, *command)

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert SHOWN in shown.stdout
    assert not [line for line in shown.stdout.split("\n") if not line.isprintable()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_json_has_names_of_clients_as_they_are(broker: ServedBroker, command: tuple[str, ...]) -> None:
    shown = run_at(broker, *command, "--json")

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert not [line for line in shown.stdout.split("\n") if not line.isprintable()]
    lines = shown.stdout.splitlines() if "story" in command else [shown.stdout]
    assert NAME in texts_in([json.loads(line) for line in lines])


def texts_in(value: Any) -> set[str]:
    match value:
        case str():
            return {value}
        case list():
            return set().union(*map(texts_in, value))
        case dict():
            return texts_in([*value, *value.values()])
        case _:
            return set()


def test_what_a_command_refuses_is_text_too(broker: ServedBroker) -> None:
    refused = run_at(broker, "groups", "delete", "--yes", NAME)

    assert refused.exit_code == 1
    assert SHOWN in refused.stderr
    assert refused.stderr.rstrip("\n").isprintable()


def test_a_shell_completes_no_name_that_it_would_obey(broker: ServedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What bash completes stands in the line as it is, without quotes."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    shell = ShellComplete(cli, {}, "ottla", "_OTTLA_COMPLETE")

    assert [each.value for each in shell.get_completions(["transactions", "describe"], "")] == [
        "größe-1:a/b",
        "payments",
    ]
    assert shell.get_completions(["groups", "describe"], "") == []


def test_tools_of_kafka_show_names_as_text(broker: ServedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--list"], ["--describe", "--group", NAME], ["--describe", "--members", "--group", NAME]):
        assert main(["kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, *options]) == 0
        printed = capsys.readouterr().out
        assert not [line for line in printed.split("\n") if not line.isprintable()]


def test_an_output_lets_nothing_through(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.lines([NAME])
    output.say(NAME)
    output.facts(NAME, [("name", NAME)])
    output.table(["name"], [[NAME], [[NAME]]])

    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 6
    assert not [line for line in printed.split("\n") if not line.isprintable()]


def test_records_are_as_they_were_sent(broker: ServedBroker) -> None:
    record = NAME.replace("\n", "")
    produced = run("produce", "records", "--bootstrap", broker.bootstrap, stdin=record + "\n")
    assert produced.exit_code == 0, produced.output
    consumed = run_at(broker, "consume", "records", "--from-beginning", "--exit-at-end")

    assert consumed.stdout == record + "\n"
