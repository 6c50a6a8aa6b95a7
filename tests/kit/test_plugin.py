"""The pytest plugin, by pytest's own pytester: fixtures, marker, ini, isolation, reports, xdist."""

import re

import pytest

from ottla.testing.profile import TEST_SETTINGS

pytest_plugins = ("pytester",)

ONE_RECORD = """
def test_one(kafka):
    kafka.produce("orders", [b"a"])
    assert len(kafka.records("orders")) == 1

def test_two(kafka):
    assert kafka.topics == []
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def ini(suite: pytest.Pytester, *lines: str) -> None:
    suite.makeini(
        "\n".join(["[pytest]", "asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function", *lines])
    )


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)


def loaded_by_an_unused_plugin(suite: pytest.Pytester, *arguments: str) -> str:
    """Modules of Ottla, and of what it brings, after a run of a test that needs none."""
    suite.makepyfile("def test_it(): pass")
    suite.makeconftest(
        """
        import sys

        def pytest_unconfigure(config):
            loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("ottla", "uvloop", "structlog"))
            print("loaded:", loaded, "by", "pytest_ottla" in sys.modules)
        """
    )
    found = re.search(r"loaded: (\[.*\]) by (True|False)", run(suite, "-s", *arguments).stdout.str())
    assert found is not None
    assert (found[2] == "True") == ("no:ottla" not in arguments)
    return found[1]


@pytest.mark.parametrize("arguments", [["--collect-only"], [], ["-p", "no:ottla"]], ids=str)
def test_unused_plugin_imports_nothing_of_ottla(suite: pytest.Pytester, arguments: list[str]) -> None:
    assert loaded_by_an_unused_plugin(suite, *arguments) == "[]"


def test_brokers_are_imported_without_rewriting_their_assertions(suite: pytest.Pytester) -> None:
    """`-p ottla` asks pytest to rewrite what is called so, as a wheel with a plugin does."""
    suite.makepyfile(
        """
        import sys

        def test_loaders(kafka):
            modules = [each for name, each in sys.modules.items() if name.startswith("ottla.")]
            assert len(modules) > 100
            assert {type(each.__spec__.loader).__name__ for each in modules} == {"SourceFileLoader"}
        """
    )
    run(suite, "-p", "ottla").assert_outcomes(passed=1)


def test_no_garbage_is_collected_while_the_fixtures_are_imported(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        import gc, sys

        collections = []

        def looking(phase, info):
            is_importing = "ottla.testing.fixtures" in sys.modules and "TestbedPool" not in vars(
                sys.modules["ottla.testing.fixtures"]
            )
            if phase == "start" and is_importing:
                collections.append(info)

        gc.callbacks.append(looking)
        """
    )
    suite.makepyfile(
        """
        import gc
        from conftest import collections

        def test_it(kafka):
            assert collections == []
            assert gc.isenabled()
        """
    )
    run(suite).assert_outcomes(passed=1)


def test_each_test_meets_an_empty_broker(suite: pytest.Pytester) -> None:
    suite.makepyfile(ONE_RECORD)

    result = run(suite)

    result.assert_outcomes(passed=2)
    assert "ottla: profile test, 11 settings differ from Kafka's" in result.stdout.str()


def test_fixtures_give_what_they_promise(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import asyncio
        import pytest

        def test_names_are_unique(kafka, kafka_topic, kafka_group, kafka_bootstrap):
            topics = [kafka_topic(partitions=3), kafka_topic(retention_ms=5)]
            assert sorted(kafka.topics) == sorted(topics) and len({*topics, kafka_group(), kafka_group()}) == 4
            assert all("test_names_are_unique" in name for name in topics)
            assert kafka.topic(topics[1]).describe().configs == {"retention.ms": "5"}
            assert kafka_bootstrap == kafka.bootstrap

        async def test_coroutines(kafka_async, kafka):
            await kafka_async.produce("orders", [b"a"])
            assert kafka.topics == ["orders"]

        def test_coroutines_in_a_plain_test(kafka_async):
            asyncio.run(kafka_async.produce("orders", [b"a"]))

        def test_session_broker_is_the_same(ottla, kafka):
            assert ottla.bootstrap == kafka.bootstrap

        @pytest.mark.kafka(topics={"orders": 3}, settings={"num.partitions": 2})
        def test_marker(kafka, ottla):
            assert kafka.bootstrap != ottla.bootstrap
            kafka.produce("other", [b"a"])
            assert [len(kafka.topic(name).partitions) for name in ("orders", "other")] == [3, 2]
        """
    )

    run(suite).assert_outcomes(passed=5)


def test_header_says_what_holds_and_the_end_lists_it(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_isolation = fresh")
    suite.makepyfile("def test_it(kafka): pass")

    plain, verbose = run(suite, "--ottla-seed=7"), run(suite, "-v")

    count = len(TEST_SETTINGS)
    header = f"ottla: isolation fresh, profile test ({count} settings differ from Kafka's), --ottla-seed=7"
    assert header in plain.stdout.lines
    lines = [f"  {name}={value}" for name, value in TEST_SETTINGS.items()]
    assert set(lines) <= set(verbose.stdout.lines)
    assert not set(lines) & set(plain.stdout.lines)


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("kafka(broker=3)", "the marker kafka has no argument 'broker', only brokers, settings"),
        ("kafka(3)", "arguments of the marker kafka have names"),
    ],
)
def test_wrong_marker_fails_the_collection(suite: pytest.Pytester, mark: str, sentence: str) -> None:
    suite.makepyfile(f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(kafka): pass\n")

    result = run(suite)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in result.stderr.str()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ottla_isolation = none", "ottla_isolation='none': expected one of reset, snapshot, names, fresh"),
        ("ottla_settings = num.partitions", "ottla_settings: 'num.partitions' is not NAME=VALUE"),
        ("ottla_settings = num.partition=3", "did you mean"),
        ("ottla_profile = fast", "profile='fast': expected one of test, kafka"),
        ("ottla_data = /nowhere", "expected a directory that exists, or auto"),
    ],
)
def test_wrong_setting_is_one_sentence(suite: pytest.Pytester, line: str, sentence: str) -> None:
    ini(suite, line)
    suite.makepyfile("def test_it(kafka): pass")

    result = run(suite)

    result.assert_outcomes(errors=1)
    assert sentence in result.stdout.str()


def test_ini_settings_reach_the_broker_and_the_environment(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_settings = num.partitions=4", "ottla_env = KAFKA_BOOTSTRAP_SERVERS", "ottla_deadline = 0.1")
    suite.makepyfile(
        """
        import os, time
        import pytest
        from ottla.testing import DeadlineExceeded

        def test_it(kafka):
            assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == kafka.bootstrap
            kafka.produce("orders", [b"a"])
            assert len(kafka.topic("orders").partitions) == 4
            with pytest.raises(DeadlineExceeded, match="within 0.1 s"):
                kafka.wait_for_records("orders", 2)
        """
    )

    run(suite).assert_outcomes(passed=1)


LEAK = """
from confluent_kafka import Consumer

left = []

def test_leaks(kafka):
    kafka.create_topic("orders", partitions=1)
    consumer = Consumer(kafka.client_config("consumer") | {"group.id": "shop", "log_level": 0})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.02)
    left.append(consumer)

def test_next(kafka):
    kafka.create_topic("orders", partitions=1)
    assert kafka.group("shop").history == []

def test_ends(): left.pop().close()
"""


@pytest.mark.parametrize(("leaks", "outcomes"), [("warn", {"passed": 3}), ("error", {"passed": 3, "errors": 1})])
def test_connection_left_open_is_named(suite: pytest.Pytester, leaks: str, outcomes: dict[str, int]) -> None:
    ini(suite, f"ottla_leaks = {leaks}")
    suite.makepyfile(LEAK)

    result = run(suite, "-k", "leaks or ends")

    result.assert_outcomes(**(outcomes | {"passed": 2}), warnings=None, deselected=1)
    assert re.search(r"consumer rdkafka#\d+ \(group shop\) of test_leaks was not closed", result.stdout.str())


def test_fresh_broker_shuts_the_leak_out(suite: pytest.Pytester) -> None:
    """The consumer that was left open belongs to a port that nothing listens on any more."""
    suite.makepyfile(LEAK)

    result = run(suite, "--ottla-isolation=fresh")

    result.assert_outcomes(passed=3)
    assert "(group shop) of test_leaks was not closed" in result.stdout.str()


def test_group_with_members_is_named_where_nothing_is_emptied(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from confluent_kafka import Consumer

        left = []

        def test_leaks(kafka, kafka_topic, kafka_group):
            consumer = Consumer(kafka.client_config("consumer") | {"group.id": kafka_group(), "log_level": 0})
            consumer.subscribe([kafka_topic()])
            while not consumer.assignment():
                consumer.poll(0.02)
            left.append(consumer)

        def test_next(kafka):
            assert len(kafka.topics) == 1
            left.pop().close()
        """
    )

    result = run(suite, "--ottla-isolation=names")

    result.assert_outcomes(passed=2)
    assert re.search(r"group test_leaks-[0-9a-f]{8}-group1 still has 1 members", result.stdout.str())


FAILING = """
from confluent_kafka import Consumer, Producer

def test_it(kafka):
    kafka.create_topic("orders", partitions=1, configs={"max.message.bytes": 100})
    producer = Producer(kafka.client_config("producer") | {"log_level": 0})
    producer.produce("orders", b"secret" * 50)
    producer.flush(20)
    first = Consumer(kafka.client_config("consumer") | {"group.id": "shop", "client.id": "first", "log_level": 0})
    first.subscribe(["orders"])
    first.poll(0.1)
    kafka.group("shop").wait_until_stable(members=1, within=20)
    try:
        kafka.wait_for_records("orders", 1, within=0.1)
    finally:
        first.close()
"""


def test_failing_test_shows_hints_groups_and_wire(suite: pytest.Pytester) -> None:
    suite.makepyfile(FAILING)

    result = run(suite)

    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    hint = r"-+ ottla: why it may have failed -+\nProduce of rdkafka#\d+ was answered MESSAGE_TOO_LARGE once"
    assert re.search(hint, shown)
    story = r"-+ ottla: groups -+\nshop: \w+, generation \d+, \d members\n  \+0 ms  generation \d+: member joined"
    assert re.search(story, shown)
    wire = shown.partition("ottla: wire, last")[2].partition("\n")[2].partition("\n=")[0]
    assert re.search(r"rdkafka#\d+  Produce v\d+ orders  MESSAGE_TOO_LARGE \d+\.\d ms", wire)
    assert re.search(r"first#\d+  JoinGroup v\d+ shop member first-\S+  ok", wire)
    assert len(wire.splitlines()) <= 60
    assert "secret" not in wire
    # The frames of the kit are not what its reader looks for.
    assert "worker.py" not in shown
    assert "concurrent/futures" not in shown


def test_report_can_be_off(suite: pytest.Pytester) -> None:
    suite.makepyfile(FAILING)

    assert "ottla: wire" not in run(suite, "--ottla-report=off").stdout.str()


def test_given_test_is_sent_to_the_fixture_for_worlds(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from hypothesis import HealthCheck, given, settings, strategies as st

        @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.binary())
        def test_refused(kafka, value):
            pass

        @settings(max_examples=50, deadline=None)
        @given(st.binary())
        def test_clean(kafka_world, value):
            with kafka_world() as kafka:
                assert kafka.topics == []
                kafka.produce("orders", [value])
                assert [record.value for record in kafka.records("orders")] == [value]
        """
    )

    result = run(suite)

    result.assert_outcomes(passed=1, errors=1)
    assert "take the fixture kafka_world" in result.stdout.str()


def test_workers_have_a_broker_each(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(20))
        def test_it(kafka, kafka_topic, number, worker_id):
            topic = kafka_topic()
            assert worker_id in topic
            kafka.produce(topic, [b"a"])
            assert kafka.topics == [topic]
        """
    )

    run(suite, "-n", "2").assert_outcomes(passed=20)


def test_cluster_of_three_survives_its_leader(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        def test_kill(kafka_cluster):
            kafka = kafka_cluster
            kafka.create_topic("orders", partitions=1)
            kafka.produce("orders", [b"before"])
            leader = kafka.topic("orders").partitions[0].leader
            kafka.brokers[leader].kill()
            kafka.wait_until_leader("orders", 0, within=20)
            kafka.produce("orders", [b"after"])
            assert [record.value for record in kafka.records("orders")] == [b"before", b"after"]

        def test_whole_again(kafka_cluster):
            assert (kafka_cluster.node_ids, kafka_cluster.topics) == ([0, 1, 2], [])
        """
    )

    run(suite).assert_outcomes(passed=2)


def test_factory_makes_a_fixture_of_its_own(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from ottla.testing import broker_fixture

        orders_kafka = broker_fixture("orders_kafka", topics={"orders": 3})

        def test_first(orders_kafka, kafka):
            assert orders_kafka.bootstrap != kafka.bootstrap
            orders_kafka.produce("orders", [b"a"])

        def test_second(orders_kafka):
            assert len(orders_kafka.records("orders")) == 1
            assert len(orders_kafka.topic("orders").partitions) == 3
        """
    )

    run(suite).assert_outcomes(passed=2)
