"""Which records `ottla consume` reads: of which topics, from where, up to where."""

import json
from collections.abc import Iterator

import pytest

from ottla import BrokerThread
from tests.cli.runner import run

NOON_MS = 1_780_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """With topics `a` and `b`, of ten records each, a minute apart from noon on."""
    with BrokerThread() as broker:
        for topic in ("a", "b"):
            lines = [json.dumps({"value": f"{topic}{i}", "timestamp": NOON_MS + i * 60_000}) for i in range(10)]
            produced = run("produce", topic, "--from-json", "--bootstrap", broker.bootstrap, stdin="\n".join(lines))
            assert produced.exit_code == 0, produced.output
        yield broker


def consumed(broker: BrokerThread, *arguments: str) -> list[str]:
    result = run("consume", *arguments, "--bootstrap", broker.bootstrap)
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def values(topic: str, *numbers: int) -> list[str]:
    return [f"{topic}{number}" for number in numbers]


def at(minute: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOON_MS / 1000 + minute * 60, UTC).isoformat()


def test_records_since_a_time_and_until_another(broker: BrokerThread) -> None:
    assert consumed(broker, "a", "--since", at(7), "--exit-at-end") == values("a", 7, 8, 9)
    assert consumed(broker, "a", "--since", at(3), "--until", at(5)) == values("a", 3, 4)
    assert consumed(broker, "a", "--from-beginning", "--until", at(99)) == values("a", *range(10))


def test_records_from_an_offset_to_another(broker: BrokerThread) -> None:
    assert consumed(broker, "a", "--offset", "2", "--to-offset", "4") == values("a", 2, 3)
    assert consumed(broker, "a", "--offset", "-2", "--to-offset", "99", "--exit-at-end") == values("a", 8, 9)
    assert consumed(broker, "a", "--offset", "5", "--to-offset", "3") == []


def test_several_topics_and_a_pattern(broker: BrokerThread) -> None:
    both = sorted(values("a", *range(10)) + values("b", *range(10)))

    assert sorted(consumed(broker, "a", "b", "--from-beginning", "--exit-at-end")) == both
    assert sorted(consumed(broker, "--include", "[a-c]", "--from-beginning", "--exit-at-end")) == both
    assert (
        sorted(consumed(broker, "--include", ".", "--group", "g", "--from-beginning", "--max-messages", "20")) == both
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name a topic, or give --include"),
        (("--include", "("), "'(' is not a regular expression"),
        (("a", "--since", "noon"), "'noon' is neither a duration like 12h or 30m, nor a time like 2026-03-01T12:00"),
        (("a", "--since", "1h", "--offset", "3"), "--from-beginning, --offset and --since cannot be combined"),
        (("a", "--group", "g", "--to-offset", "3"), "--group cannot be combined with"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("consume", *arguments)

    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


def test_pattern_without_a_topic_is_one_sentence(broker: BrokerThread) -> None:
    result = run("consume", "--include", "x.*", "--bootstrap", broker.bootstrap)

    assert (result.exit_code, result.stderr) == (1, "Error: no topic matches x.*\n")
