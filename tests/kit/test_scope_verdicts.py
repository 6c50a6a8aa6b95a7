"""Verdicts of brokers that are not those of one test of pytest: examples, modules, sessions, contexts, unittest."""

import re
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from ottla.testing import KafkaTestCase, broker
from ottla.testing.verdicts import OttlaWarning
from tests.audit.test_plugin import LOSES
from tests.kit.test_plugin import ini, run, suite

__all__ = ["suite"]

pytest_plugins = ("pytester",)

NEVER_HIT = "'fault-1' ({api: Produce, topic: typo} → drop) never hit"
DROP: dict[str, Any] = {"api": "Produce", "topic": "typo", "do": {"drop": "response"}}
WHERE = pytest.mark.parametrize("where", ["thread", "process"])

WORLDS = f"""{LOSES}
from hypothesis import given, settings, strategies as st

DROP = {DROP}

def test_unused(kafka_world):
    with kafka_world() as kafka:
        kafka.fault(**DROP)

@settings(max_examples=3, deadline=None)
@given(value=st.integers())
def test_examples(kafka_world, value):
    with kafka_world() as kafka:
        kafka.fault(**DROP)

def test_block_that_fails(kafka_world):
    with kafka_world() as kafka:
        kafka.fault(**DROP)
        kafka.create_topic("orders", 1)
        send(kafka)
        assert kafka.topics == ["shown"]

def test_open(kafka_world):
    with kafka_world() as kafka:
        send.producer = Producer(kafka.client_config("producer") | {{"client.id": "forgotten"}})
        send.producer.produce("orders", b"book")
        assert send.producer.flush(20) == 0

def test_passes(kafka_world):
    with kafka_world() as kafka:
        assert kafka.topics == []
"""


@WHERE
def test_blocks_of_worlds_are_judged(suite: pytest.Pytester, where: str) -> None:
    ini(suite, f"ottla_where = {where}")
    suite.makepyfile(WORLDS)

    result = run(suite)

    result.assert_outcomes(passed=2, failed=3, warnings=None)
    shown = result.stdout.str()
    parts = dict(re.findall(r"(?s)_ (test_\w+) _+\n(.*?)(?=\n_{5}|\n={5})", shown))
    assert NEVER_HIT in parts["test_unused"]
    assert NEVER_HIT in parts["test_examples"]
    assert re.search(r"ottla: wire, last \d+ -+\n(.*\n)*.*Produce", parts["test_block_that_fails"])
    assert "ottla: wire" not in parts["test_unused"]
    assert re.search(r"OttlaWarning: producer forgotten#\d+ of test_open was not closed", shown)


def test_audit_judges_blocks_of_worlds(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        f"""{LOSES}
def test_lost(kafka_world):
    with kafka_world() as kafka:
        kafka.create_topic("orders", 1)
        send(kafka)
        lose(kafka)
"""
    )

    result = run(suite)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["ottla: audit: 1 findings", "B1 orders-0: *", "ottla: audit: 1 B1 in 1 tests"])


MODULE = f"""{LOSES}
import pytest
from ottla.testing import broker_fixture

own = broker_fixture("own", topics={{"orders": 1}})

def test_rule(own):
    assert (own._bed.deadline_s, own._bed.hosted.fault_host.seed) == (0.25, 7)
    own.fault(**{DROP})

def test_without(): pass

def test_of_the_module(own):
    send(own)
    LAST
"""


@pytest.mark.parametrize(
    ("last", "outcomes", "is_said", "is_shown"),
    [
        ("pass", {"passed": 3, "errors": 1}, True, False),
        ("own.produce('typo', [b'a']); own.faults.clear()", {"passed": 3}, False, False),
        ("lose(own)", {"passed": 3, "errors": 1}, True, False),
        ("assert False", {"passed": 2, "failed": 1}, False, True),
        ("pytest.skip('later')", {"passed": 2, "skipped": 1}, False, False),
    ],
)
def test_broker_of_a_module_is_judged_at_its_end(
    suite: pytest.Pytester, last: str, outcomes: dict[str, int], is_said: bool, is_shown: bool
) -> None:
    ini(suite, "ottla_deadline = 0.25")
    suite.makepyfile(MODULE.replace("LAST", last))

    result = run(suite, "--ottla-seed=7")

    result.assert_outcomes(**outcomes)
    shown = result.stdout.str()
    assert ("the broker of own, at its end:\n" in shown and NEVER_HIT in shown) == is_said
    assert ("B1 orders-0" in shown) == last.startswith("lose")
    assert ("ottla: wire, last" in shown) == is_shown


def test_audit_of_a_module_is_that_of_the_session_or_its_own(suite: pytest.Pytester) -> None:
    lost = f"""{LOSES}
from ottla.testing import broker_fixture

session = broker_fixture("session", topics={{"orders": 1}})
own = broker_fixture("own", topics={{"orders": 1}}, audit="errors")

def test_session(session): send(session); lose(session)
"""
    suite.makepyfile(test_first=lost, test_second=f"{lost}\ndef test_own(own): send(own); lose(own)\n")

    result = run(suite, "--ottla-audit=off")

    result.assert_outcomes(passed=3, errors=1)
    assert result.stdout.str().count("the broker of own, at its end:\nottla: audit: 1 findings") == 1


def test_broker_of_the_session_is_judged_at_its_end(suite: pytest.Pytester) -> None:
    suite.makepyfile(f"def test_rule(ottla): ottla.fault(**{DROP})\n\ndef test_last(): pass\n")

    result = run(suite)

    result.assert_outcomes(passed=2, errors=1)
    assert f"the broker of ottla, at its end:\n{NEVER_HIT}" in result.stdout.str()


def test_kafka_is_empty_behind_a_test_with_ottla(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        def test_first(kafka): pass
        def test_fills(ottla): ottla.create_topic("orders", 1)
        def test_next(kafka): assert kafka.topics == []
        def test_fills_again(ottla): ottla.create_topic("orders", 1)
        def test_last(kafka): assert kafka.topics == []
        """
    )

    run(suite).assert_outcomes(passed=5)


def test_context_fails_for_a_rule_that_never_acted() -> None:
    with pytest.raises(AssertionError, match="never hit"), broker() as kafka:
        kafka.fault(**DROP)


async def test_context_of_coroutines_fails_for_it_too() -> None:
    with pytest.raises(AssertionError, match="never hit"):
        async with broker() as kafka:
            kafka.fault(**DROP)


def test_failure_in_a_context_has_a_note_of_what_is_shown() -> None:
    def fail() -> None:
        with broker() as kafka:
            kafka.fault(**DROP)
            raise KeyError

    with pytest.raises(KeyError) as caught:
        fail()

    (note,) = caught.value.__notes__
    assert "--- ottla: faults ---" in note
    assert NEVER_HIT[:9] in note


def outcome_of(test: Callable[[Any], None]) -> unittest.TestResult:
    case = type("Case", (KafkaTestCase,), {"test_it": test})
    result = unittest.TestResult()
    unittest.TestSuite([case("test_it")]).run(result)
    return result


def test_case_fails_for_a_rule_that_never_acted() -> None:
    result = outcome_of(lambda case: case.kafka.fault(**DROP))

    ((_, text),) = result.failures
    assert NEVER_HIT in text
    assert result.errors == []


@pytest.mark.parametrize("way", ["fails", "skips", "fails as expected"])
def test_case_that_has_not_passed_is_not_judged(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    def test(case: KafkaTestCase) -> None:
        case.kafka.fault(**DROP)
        if way == "skips":
            case.skipTest("later")
        case.fail("as it should")

    result = outcome_of(unittest.expectedFailure(test) if way == "fails as expected" else test)

    assert (len(result.failures), len(result.skipped), len(result.expectedFailures), result.errors) == (
        int(way == "fails"),
        int(way == "skips"),
        int(way == "fails as expected"),
        [],
    )
    assert ("--- ottla: faults ---" in capsys.readouterr().err) == (way == "fails")


def test_case_names_what_it_leaves_open() -> None:
    from confluent_kafka import Producer

    left: list[Any] = []

    def test(case: KafkaTestCase) -> None:
        left.append(Producer(case.kafka.client_config("producer") | {"client.id": "forgotten"}))
        left[0].produce("orders", b"book")
        assert left[0].flush(20) == 0

    with warnings.catch_warnings(record=True, action="always") as caught:
        result = outcome_of(test)

    assert result.wasSuccessful()
    said = [str(each.message) for each in caught if each.category is OttlaWarning]
    assert said
    assert all(re.fullmatch(r"(producer|client) forgotten#\d+ of test_it was not closed", each) for each in said)
