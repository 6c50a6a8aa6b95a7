"""What the end of a test says of its rules, of what it left open and of the audit, by pytest's own pytester."""

import re

import pytest

from tests.audit.test_plugin import LOSES
from tests.kit.test_plugin import ini, run, suite

__all__ = ["suite"]

pytest_plugins = ("pytester",)

NEVER_HIT = "'fault-1' ({api: Produce, topic: typo} → drop) never hit"
WHERE = pytest.mark.parametrize("where", ["thread", "process"])


@WHERE
def test_rule_that_never_acted_fails_no_test_that_was_left(suite: pytest.Pytester, where: str) -> None:
    """Skipped or expected to fail, it says nothing of what it has tested."""
    ini(suite, f"ottla_where = {where}")
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture
        def rule(kafka):
            kafka.fault(api="Produce", topic="typo", do={"drop": "response"})

        @pytest.fixture
        def later(rule):
            pytest.skip("later")

        def test_skips(rule): pytest.skip("later")

        def test_is_skipped_in_its_set_up(later): pass

        @pytest.mark.xfail
        def test_fails_as_expected(rule): assert False

        @pytest.mark.xfail(strict=True)
        def test_fails_as_it_must(rule): assert False

        def test_xfails(rule): pytest.xfail("it does not work yet")

        def test_passes(rule): pass
        """
    )

    result = run(suite)

    result.assert_outcomes(skipped=2, xfailed=3, passed=1, errors=1)
    assert result.stdout.str().count(NEVER_HIT) == 1


LEAKS = """
from confluent_kafka import Producer

left = []

def send(producer):
    producer.produce("orders", b"book")
    assert producer.flush(20) == 0

def leave_open(kafka, client_id):
    left.append(Producer({"bootstrap.servers": kafka.bootstrap, "client.id": client_id, "log_level": 0,
                          "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}))
    send(left[-1])

def test_leaks(kafka):
    leave_open(kafka, "former")

def test_innocent(kafka):
    # The client of the test before connects again.
    send(left[0])

def test_leaks_too(kafka):
    send(left[0])
    leave_open(kafka, "latter")

def test_ends():
    while left:
        left.pop().flush(0)
"""


@WHERE
def test_leak_is_an_error_of_the_test_that_left_it(suite: pytest.Pytester, where: str) -> None:
    """And of no later one that the client connects in again."""
    ini(suite, "ottla_leaks = error", f"ottla_where = {where}")
    suite.makepyfile(LEAKS)

    result = run(suite)

    result.assert_outcomes(passed=4, errors=2, warnings=None)
    errors = result.stdout.str().partition("= ERRORS =")[2].partition("= warnings summary =")[0]
    first, _, second = errors.partition("ERROR at teardown of test_leaks_too")
    assert re.search(r"(producer|client) former#\d+ of test_leaks was not closed", first)
    assert re.search(r"producer latter#\d+ of test_leaks_too was not closed", second)
    assert "former" not in second
    warnings = result.stdout.str().partition("= warnings summary =")[2]
    assert re.search(r"OttlaWarning: (producer|client) former#\d+ of test_leaks was not closed", warnings)


ALL_WRONG = f"""{LOSES}
left = []

def test_all(kafka):
    kafka.create_topic("orders", 1)
    send(kafka)
    lose(kafka)
    kafka.fault(api="Produce", topic="typo", do={{"drop": "response"}})
    left.append(Producer(kafka.client_config("producer") | {{"client.id": "former"}}))
    left[0].produce("other", b"book")
    assert left[0].flush(20) == 0

def test_ends():
    left.clear()
"""


def test_leak_hides_no_other_verdict(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_leaks = error")
    suite.makepyfile(ALL_WRONG)

    result = run(suite)

    result.assert_outcomes(passed=2, errors=1)
    lines = result.stdout.str()
    assert re.search(r"producer former#\d+ of test_all was not closed", lines)
    assert NEVER_HIT in lines
    assert "ottla: audit: 1 findings\nB1 orders-0" in lines
