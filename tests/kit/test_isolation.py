"""The modes of isolation, by pytest's own pytester: what one test leaves to the next, with and without a seed."""

from pathlib import Path

import pytest

from tests.kit.test_plugin import ini, run, suite

__all__ = ["suite"]

pytest_plugins = ("pytester",)

SEED = """
{"topics": {"orders": {"partitions": 2, "records": [{"key": "alice", "value": "book"}]}},
 "groups": {"shop": {"offsets": {"orders": {"0": 0, "1": "end"}}}}}
"""
# Each test finds the seed, and changes all of it.
SEEDED = """
import pytest

kept = []

@pytest.mark.parametrize("n", range(4))
def test_finds_the_seed(kafka, n):
    topic = kafka.topic("orders").describe()
    kept.append((kafka.bootstrap, topic.topic_id))
    assert [record.value for record in kafka.records("orders")] == [b"book"]
    assert kafka.topics == ["orders"] and kafka.groups == ["shop"]
    kafka.produce("orders", [b"mine"])
    kafka.create_topic("other", partitions=1)
    kafka.snapshot("mine")
    kafka.load({"groups": {"bank": {"offsets": {"other": {"0": 0}}}}})
    if n == 2:
        kafka.topic("orders").delete()

def test_ports_and_identities():
    assert len({bootstrap for bootstrap, _ in kept}) == PORTS
    assert len({topic_id for _, topic_id in kept}) == 4
"""


@pytest.mark.parametrize(("mode", "ports"), [("reset", 1), ("snapshot", 1), ("fresh", 4)])
def test_each_test_finds_the_seed(mode: str, ports: int, suite: pytest.Pytester) -> None:
    suite.path.joinpath("shop.json").write_text(SEED)
    ini(suite, "ottla_seed_file = shop.json")
    suite.makepyfile(SEEDED.replace("PORTS", str(ports)))

    result = run(suite, f"--ottla-isolation={mode}")

    result.assert_outcomes(passed=5)


def test_seeds_of_markers_and_modes_take_turns(suite: pytest.Pytester) -> None:
    """On one broker: what a test begins with depends on nothing but its own marker."""
    suite.path.joinpath("one.toml").write_text("[topics]\none = 1\n")
    suite.path.joinpath("two.toml").write_text("[topics]\ntwo = 1\n")
    suite.makepyfile(
        """
        import pytest

        seen = set()

        def check(kafka, *topics):
            assert kafka.topics == list(topics)
            seen.add(kafka.bootstrap)
            kafka.produce("left", [b"x"])

        def named(seed, isolation):
            return pytest.mark.kafka(isolation=isolation, **({"seed": seed} if seed else {}))

        cases = [("one.toml", "snapshot"), ("two.toml", "snapshot"), (None, "reset"), ("one.toml", "reset"),
                 ("one.toml", "snapshot"), (None, "snapshot"), ("two.toml", "snapshot"), (None, "names")]

        @pytest.mark.parametrize(
            "wanted", [pytest.param(case, marks=named(*case)) for case in cases + cases[::-1][1:]]
        )
        def test_begins(kafka, wanted):
            check(kafka, *([wanted[0].removesuffix(".toml")] if wanted[0] else []))

        def test_one_broker():
            assert len(seen) == 1
        """
    )

    result = run(suite)

    result.assert_outcomes(passed=16)


def test_time_and_faults_are_those_of_one_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from datetime import UTC, datetime
        import pytest
        pytestmark = pytest.mark.kafka(isolation="snapshot")

        def test_breaks_it(kafka):
            kafka.clock.freeze(at=datetime(2031, 1, 1, tzinfo=UTC))
            kafka.disk(0).full()
            kafka.brokers[0].pause()

        def test_next(kafka):
            assert abs(kafka.clock.now() - datetime.now(UTC)).total_seconds() < 60
            kafka.produce("orders", [b"book"])
            from confluent_kafka import Consumer
            consumer = Consumer(kafka.client_config("consumer") | {"group.id": "shop"})
            consumer.subscribe(["orders"])
            assert consumer.poll(10).value() == b"book"
            consumer.close()
        """
    )

    result = run(suite)

    result.assert_outcomes(passed=2)


def test_seed_where_nothing_is_emptied_is_refused(suite: pytest.Pytester) -> None:
    suite.path.joinpath("one.toml").write_text("[topics]\none = 1\n")
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(seed="one.toml", isolation="names")
        def test_it(kafka):
            pass
        """
    )

    result = run(suite)

    result.assert_outcomes(errors=1)
    assert "take reset or snapshot" in result.stdout.str()


def test_wrong_seed_is_an_error_of_the_test(suite: pytest.Pytester) -> None:
    suite.path.joinpath("one.toml").write_text("[topic]\none = 1\n")
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(seed="one.toml")
        def test_it(kafka):
            pass

        def test_next(kafka):
            assert kafka.topics == []
        """
    )

    result = run(suite)

    result.assert_outcomes(errors=1, passed=1)
    assert "one.toml: topic: there is no such key; did you mean 'topics'?" in result.stdout.str()


def test_leaks_are_named_where_the_world_is_restored(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from confluent_kafka import Consumer

        left = []

        def test_leaks(kafka):
            kafka.create_topic("orders", partitions=1)
            left.append(Consumer(kafka.client_config("consumer") | {"group.id": "shop", "log_level": 0}))
            left[0].subscribe(["orders"])
            while not left[0].assignment():
                left[0].poll(0.02)

        def test_next(kafka):
            assert (kafka.topics, kafka.groups) == ([], [])
            left.pop().close()
        """
    )

    result = run(suite, "--ottla-isolation=snapshot")

    result.assert_outcomes(passed=2)
    assert "(group shop) of test_leaks was not closed" in result.stdout.str()


def test_several_brokers_find_the_seed(suite: pytest.Pytester, tmp_path: Path) -> None:
    suite.path.joinpath("shop.json").write_text(SEED)
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(seed="shop.json", isolation="snapshot")
        @pytest.mark.parametrize("n", range(2))
        def test_finds_the_seed(kafka_cluster, n):
            assert [record.value for record in kafka_cluster.records("orders")] == [b"book"]
            kafka_cluster.produce("orders", [b"mine"])
        """
    )

    result = run(suite)

    result.assert_outcomes(passed=2)


def test_examples_of_hypothesis_find_the_seed(suite: pytest.Pytester) -> None:
    suite.path.joinpath("shop.json").write_text(SEED)
    ini(suite, "ottla_seed_file = shop.json\nottla_isolation = snapshot")
    suite.makepyfile(
        """
        from time import process_time

        from hypothesis import given, settings, strategies as st

        @settings(max_examples=200, deadline=None)
        @given(st.binary())
        def test_clean(kafka_world, value):
            with kafka_world() as kafka:
                assert [record.value for record in kafka.records("orders")] == [b"book"]
                kafka.produce("orders", [value])
        """
    )

    result = run(suite)

    result.assert_outcomes(passed=1)
