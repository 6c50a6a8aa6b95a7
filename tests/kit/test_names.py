"""Names that `kafka_topic` and `kafka_group` give: unique to test, worker and call, by pytest's own pytester."""

import pytest

from ottla.testing.control.access import new_token
from ottla.testing.control.listener import opened_for_fixtures
from ottla.testing.testbed import Testbed
from tests.kit.test_plugin import ini, run

pytest_plugins = ("pytester",)

NAMES = """
import pytest

def used(kafka, kafka_topic, kafka_group):
    topic, group = kafka_topic(partitions=2), kafka_group()
    assert kafka.group(group).offsets == {}
    kafka.group(group).set_offsets(topic, {0: 0})

def test_ship(kafka, kafka_topic, kafka_group):
    used(kafka, kafka_topic, kafka_group)

class TestOrders:
    def test_ship(self, kafka, kafka_topic, kafka_group):
        used(kafka, kafka_topic, kafka_group)

@pytest.mark.parametrize("name", ["a b", "a-b", "a/b", "p" * 130 + "1", "p" * 130 + "2", "ä", "ö"])
def test_each(kafka, kafka_topic, kafka_group, name):
    used(kafka, kafka_topic, kafka_group)
    used(kafka, kafka_topic, kafka_group)
"""
TESTS = 9


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Two modules of one name in two directories, and nothing is emptied between two tests."""
    ini(pytester, "ottla_isolation = names")
    for directory in ("first", "second"):
        (pytester.mkpydir(directory) / "test_names.py").write_text(NAMES, encoding="utf-8")
    return pytester


@pytest.mark.parametrize("arguments", [[], ["-n", "2"], ["-n", "2", "--ottla-shared"]], ids=" ".join)
def test_names_of_two_tests_never_meet(suite: pytest.Pytester, arguments: list[str]) -> None:
    run(suite, *arguments).assert_outcomes(passed=2 * TESTS)


def test_two_sessions_meet_in_no_name_of_brokers_that_run(suite: pytest.Pytester) -> None:
    bed, token = Testbed(), new_token()
    bed.start()
    control = bed.run(opened_for_fixtures(bed, token))
    (suite.path / "token").write_text(token)
    try:
        for _ in range(2):
            result = run(suite, f"--ottla-control={control.url}", "--ottla-token-file=token")
            result.assert_outcomes(passed=2 * TESTS)
    finally:
        bed.run(control.close())
        bed.stop()


def test_test_that_is_run_again_gets_names_of_its_own(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, nextitem=nextitem, log=False)
        """
    )
    run(suite).assert_outcomes(passed=2 * TESTS)


def test_name_can_be_read(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import re

        def test_ship(kafka_topic, kafka_group):
            assert re.fullmatch(r"test_ship-[0-9a-f]{8}-topic1", kafka_topic())
            assert re.fullmatch(r"test_ship-[0-9a-f]{8}-group2", kafka_group())
        """
    )
    run(pytester).assert_outcomes(passed=1)
