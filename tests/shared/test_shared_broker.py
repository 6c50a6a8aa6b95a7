"""`--ottla-shared`: two workers, one broker, and the findings and counts of a serial run."""

import json

import pytest

from tests.shared.suites import CLIENTS, MIXED, audit_line, exercised, ini, plain, run, shared

pytest_plugins = ("pytester",)
pytest.importorskip("xdist")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    ini(pytester)
    return pytester


def test_workers_have_one_broker_and_names_of_their_own(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(kafka, ottla, kafka_topic, kafka_group, worker_id, number):
            topic = kafka_topic(partitions=2)
            assert topic.startswith(f"{worker_id}-test_it-") and kafka_group().startswith(f"{worker_id}-")
            assert kafka.prefix == f"{worker_id}-"
            kafka.produce(topic, [(b"k", b"a"), b"b"], partition=1)
            assert [(each.key, each.value) for each in kafka.records(topic)] == [(b"k", b"a"), (None, b"b")]
            assert all(name.startswith(worker_id) for name in kafka.topics)
            assert ottla.bootstrap == kafka.bootstrap
            with open("brokers.txt", "a") as file:
                file.write(f"{worker_id} {kafka.bootstrap} {kafka.cluster_id}\\n")
        """
    )

    result = shared(suite)

    result.assert_outcomes(passed=8)
    lines = set((suite.path / "brokers.txt").read_text().splitlines())
    assert {line.split()[0] for line in lines} == {"gw0", "gw1"}
    assert len({line.split(" ", 1)[1] for line in lines}) == 1
    result.stdout.fnmatch_lines(["ottla: the workers shared a broker, with isolation names"])


def test_totals_are_those_of_a_serial_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(MIXED)

    serial = run(suite, "--ottla-isolation=names", "--ottla-coverage=serial.json", "-p", "no:xdist")
    together = shared(suite, "--ottla-coverage=shared.json")

    serial.assert_outcomes(passed=18)
    together.assert_outcomes(passed=18)
    assert audit_line(together) == audit_line(serial) == "ottla: audit: 6 P1, 6 P4 in 12 tests"
    counted = [json.loads((suite.path / name).read_text()) for name in ("serial.json", "shared.json")]
    assert exercised(counted[0]) == exercised(counted[1])
    assert counted[1]["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 6}
    together.stdout.fnmatch_lines(["ottla: profile test, *", "ottla: fault rules, --ottla-seed=*"])


@pytest.mark.parametrize(("mode", "errors"), [("errors", 0), ("all", 1)])
def test_finding_fails_the_test_that_it_is_of(suite: pytest.Pytester, mode: str, errors: int) -> None:
    suite.makepyfile(
        CLIENTS
        + """
@pytest.mark.parametrize("number", range(4))
def test_careful(kafka, kafka_topic, number):
    send(kafka, kafka_topic(), b"book")

def test_careless(kafka, kafka_topic, kafka_group):
    topic, group = kafka_topic(partitions=1), kafka_group()
    send(kafka, topic, b"book")
    for name in ("first", "second"):
        consume(kafka, topic, group, topic + name)
"""
    )

    result = shared(suite, f"--ottla-audit={mode}", "-v")

    result.assert_outcomes(passed=5, errors=errors)
    names = "gw?-test_careless-????????-group2 gw?-test_careless-????????-topic1-0"
    result.stdout.fnmatch_lines([f"  *::test_careless: P4 {names}: *"])


def test_rule_never_hit_is_an_error_of_its_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_other(kafka, kafka_topic, number):
            kafka.produce(kafka_topic(), [b"a"])
            assert len(kafka.faults) == 0

        def test_unused(kafka, kafka_topic):
            kafka.fault(api="Produce", topic=kafka_topic(), do={"drop": "response"})
        """
    )

    result = shared(suite)

    result.assert_outcomes(passed=5, errors=1)
    rule = "topic: gw?-test_unused-????????-topic1} → drop)"
    result.stdout.fnmatch_lines([f"*{rule} never hit: no Produce request came*"])


REFUSED = {
    "clock": ("kafka.clock.advance('8d')", "the clock is that of all workers that share the broker"),
    "reset": ("kafka.reset()", "a reset empties what all workers share"),
    "snapshot": ("kafka.snapshot('s')", "a snapshot is of what all workers share"),
    "seed": ("kafka.load({'topics': {'t': 1}})", "a seed has what all workers share"),
    "broker": ("kafka.brokers[0].pause()", "faults of brokers hit all workers"),
    "disk": ("kafka.disk(0).stall()", "faults of disks hit all workers"),
    "links": ("kafka.links.heal()", "faults of links hit all workers"),
    "script": ("kafka.script([{'do': {'pause': 0}}])", "scripts break the brokers of all workers"),
    "topic": ("kafka.create_topic('orders')", "the topic 'orders' may be another worker's"),
    "produce": ("kafka.produce('gw9-orders', [b'a'])", "the topic 'gw9-orders' may be another worker's"),
    "any rule": ("kafka.fault(api='Produce', do={'delay': 1})", "names a topic, a group or a client_id"),
    "rule": ("kafka.fault(topic=[kafka.prefix + 'a', 'b'], do={'delay': 1})", "names a topic, a group or a client_id"),
    "rule of followers": ("kafka.fault(topic=kafka.prefix, peer='broker', do={'delay': 1})", "peer: other workers"),
    "function": ("kafka.fault(topic=kafka.prefix, when=bool, do={'delay': 1})", "when: a function is Python only"),
}


def test_what_others_would_feel_is_refused_by_name(suite: pytest.Pytester) -> None:
    tests = [f"def test_{number}(kafka): {code}" for number, (code, _) in enumerate(REFUSED.values())]
    suite.makepyfile("\n".join(tests))

    result = shared(suite)

    result.assert_outcomes(failed=len(REFUSED))
    shown = plain(result.stdout.str())
    assert [name for name, (_, sentence) in REFUSED.items() if sentence not in shown] == []


def test_fixtures_and_markers_refuse_too(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        def test_clock(kafka_clock): pass

        @pytest.mark.kafka(clock="frozen")
        def test_frozen(kafka): pass

        @pytest.mark.kafka(isolation="reset")
        def test_reset(kafka): pass

        @pytest.mark.kafka(topics={"orders": 1})
        def test_topics(kafka): pass
        """
    )

    result = shared(suite)

    result.assert_outcomes(errors=4)
    shown = plain(result.stdout.str())
    assert "the clock is that of all workers that share the broker (--ottla-shared): a test that needs it" in shown
    assert "clock='frozen' moves the clock of brokers that workers share (--ottla-shared): take isolation=" in shown
    assert "isolation='reset' empties brokers that workers share" in shown
    assert "the marker's topics orders have no worker's prefix" in shown


def test_own_brokers_are_the_workers_own(suite: pytest.Pytester) -> None:
    """Of tests that ask for settings, for a fresh broker, for a cluster or for worlds."""
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(isolation="fresh", clock="frozen", topics={"orders": 1})
        def test_fresh(kafka, ottla):
            assert kafka.bootstrap != ottla.bootstrap and kafka.topics == ["orders"] and kafka.prefix == ""
            kafka.clock.advance("8d")

        @pytest.mark.kafka(settings={"num.partitions": 3})
        def test_settings(kafka, ottla):
            assert kafka.bootstrap != ottla.bootstrap
            kafka.create_topic("orders")
            assert len(kafka.topic("orders").partitions) == 3

        def test_world(kafka_world):
            with kafka_world() as kafka:
                kafka.create_topic("orders")

        def test_cluster(kafka_cluster):
            assert kafka_cluster.node_ids == [0, 1, 2]
        """
    )

    shared(suite).assert_outcomes(passed=4)


def test_failing_test_shows_its_own_requests(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        CLIENTS
        + """
@pytest.mark.parametrize("number", range(6))
def test_other(kafka, kafka_topic, number):
    send(kafka, kafka_topic(), b"book")

def test_fails(kafka, kafka_topic):
    topic = kafka_topic(partitions=1)
    kafka.fault(api="Produce", topic=topic, do={"error": "NOT_ENOUGH_REPLICAS"})
    send(kafka, topic, b"book")
    kafka.wait_for_records(topic, 5, within=0.1)
"""
    )

    result = shared(suite)

    result.assert_outcomes(passed=6, failed=1)
    shown = result.stdout.str()
    wire = shown.partition("ottla: wire, last")[2].partition("\n=")[0]
    assert "NOT_ENOUGH_REPLICAS" in wire
    assert "test_other" not in wire
    assert "DeadlineExceeded: topic 'gw" in shown
    assert "missing  4 records of 5" in shown


def test_topics_of_no_worker_are_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(CLIENTS + "def test_it(kafka): send(kafka, 'orders', b'book')\n")

    result = shared(suite)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ottla: 1 topics have no worker's prefix, so workers may meet there, *: orders"])


def test_crashed_worker_is_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os, signal
        def test_dies(kafka): os.kill(os.getpid(), signal.SIGKILL)
        def test_lives(kafka, kafka_topic): kafka.produce(kafka_topic(), [b"a"])
        """
    )

    result = shared(suite)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["ottla: worker gw? has crashed: what it had found and counted is missing"])


def test_coroutines_ask_in_threads(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import asyncio
        from ottla.testing import Record

        def test_it(kafka_async, kafka_topic, kafka_group):
            async def works():
                topic, group = kafka_topic(partitions=1), kafka_async.group(kafka_group())
                await kafka_async.produce(topic, [Record(value=b"a", headers=[("h", b"1")])])
                await asyncio.gather(kafka_async.wait_for_records(topic, 1), group.wait_until_empty())
                (record,) = await kafka_async.records(topic)
                assert (record.value, record.headers) == (b"a", [("h", b"1")])
                assert (await kafka_async.topic(topic)).name == topic
                assert (await group.describe()).exists is False and await group.lag(topic) == {0: 1}
                await kafka_async.delete_topic(topic)
                assert await kafka_async.topic(topic) is None

            asyncio.run(works())
        """
    )

    shared(suite).assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["--ottla-artifacts=left", "--ottla-faults-matrix"])
def test_options_of_a_broker_for_one_test_are_refused(suite: pytest.Pytester, option: str) -> None:
    suite.makepyfile("def test_it(kafka): pass")

    result = shared(suite, option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "needs brokers in the process of the test: not with --ottla-shared" in result.stderr.str()


def test_wrong_setting_is_one_sentence(suite: pytest.Pytester) -> None:
    ini(suite, "ottla_settings = num.partition=3")
    suite.makepyfile("def test_it(kafka): pass")

    result = shared(suite)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--ottla-shared: " in result.stderr.str()
    assert "did you mean" in result.stderr.str()


def test_without_workers_it_changes_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_it(kafka_clock, kafka): kafka.create_topic('orders')")

    run(suite, "--ottla-shared", "-p", "no:xdist").assert_outcomes(passed=1)
