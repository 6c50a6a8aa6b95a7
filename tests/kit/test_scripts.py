"""Brokers for tests without pytest: contexts, and unittest."""

import subprocess
import sys
import unittest
from pathlib import Path

import pytest

from ottla import ConfigError, NotRunningError
from ottla.testing import Kafka, KafkaTestCase, broker


def test_context_gives_a_handle_and_stops_the_broker() -> None:
    with broker(topics={"orders": 2}, settings={"num.partitions": 3}) as kafka:
        kafka.produce("other", [b"a"])
        assert [len(kafka.topic(name).partitions) for name in ("orders", "other")] == [2, 3]

    with pytest.raises(NotRunningError):
        _ = kafka.topics


async def test_context_of_coroutines_gives_theirs() -> None:
    async with broker() as kafka:
        await kafka.produce("orders", [b"a"])
        assert await kafka.topics() == ["orders"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"profile": "fast"}, "profile='fast': expected one of test, kafka"),
        ({"brokers": 0}, "brokers=0: expected a whole number"),
        ({"deadline": 0}, "deadline=0: expected seconds, more than 0"),
        ({"settings": {"num.partition": 1}}, "num.partitions"),
    ],
)
def test_wrong_option_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        broker(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "library"), [("producers", "java"), ("producer", "librdkafka")])
def test_unknown_client_is_refused_by_name(kind: str, library: str) -> None:
    with broker() as kafka, pytest.raises(ConfigError, match="expected"):
        kafka.client_config(kind, library)


class _Cases(KafkaTestCase, unittest.IsolatedAsyncioTestCase):
    kafka_options = {"topics": {"orders": 1}}  # noqa: RUF012 - declared as a class variable in the base

    def test_first(self) -> None:
        self.kafka.produce("orders", [b"a"])
        assert len(self.kafka.records("orders")) == 1

    async def test_second(self) -> None:
        assert await self.kafka_async.records("orders") == []
        await self.kafka_async.produce("orders", [b"a"])


def test_cases_of_unittest_meet_an_empty_broker_each() -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(_Cases).run(result)

    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert isinstance(_Cases.kafka, Kafka)


def test_served_broker_loads_nothing_of_the_kit(tmp_path: Path) -> None:
    """`ottla serve` does without it, and so does all below."""
    program = (
        "import ottla.cli.operations.serve, ottla.cli.app, sys; print([m for m in sys.modules if 'ottla.testing' in m])"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)

    assert printed.stdout.strip() == "[]"


def test_pool_ends_the_testbed_that_was_used_least_recently(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        addresses = {}

        @pytest.mark.parametrize("number", [1, 2, 3, 4, 1, 5, 6, 4])
        def test_it(request, ottla, number):
            partitions = pytest.mark.kafka(settings={"num.partitions": number})
            request.node.add_marker(partitions)
            kafka = request.getfixturevalue("kafka")
            kafka.produce("orders", [b"a"])
            assert len(kafka.topic("orders").partitions) == number
            addresses.setdefault(ottla.bootstrap, []).append(kafka.bootstrap)

        def test_session_broker_is_never_ended(ottla):
            ottla.produce("orders", [b"a"])
            assert len(addresses) == 1
            used = addresses[ottla.bootstrap]
            assert used[0] != used[4] and used[3] != used[7] and ottla.bootstrap not in used
        """
    )

    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio", timeout=120).assert_outcomes(passed=9)


pytest_plugins = ("pytester",)
