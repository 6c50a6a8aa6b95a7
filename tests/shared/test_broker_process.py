"""`--ottla-where=process`: the fixtures with brokers in a process of their own."""

import json
import re

import pytest

from tests.shared.suites import CLIENTS, MIXED, audit_line, exercised, ini, plain, run
from tests.waiting import wait_for

pytest_plugins = ("pytester",)


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    ini(pytester)
    return pytester


def elsewhere(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run(suite, "--ottla-where=process", *arguments)


def test_each_test_meets_an_empty_broker_of_another_process(suite: pytest.Pytester) -> None:
    data = suite.mkdir("data")
    ini(suite, f"ottla_data = {data}", "ottla_where = process", "ottla_settings = num.partitions=4")
    suite.makepyfile(
        f"""
        import threading
        from pathlib import Path
        import pytest
        from ottla.testing import NotServedHere

        @pytest.mark.parametrize("number", range(2))
        def test_it(kafka, ottla, number):
            assert kafka.topics == [] and ottla.bootstrap == kafka.bootstrap and kafka.prefix == ""
            kafka.produce("orders", [b"a"])
            assert len(kafka.topic("orders").partitions) == 4
            assert [each.value for each in kafka.records("orders")] == [b"a"]
            assert len(list(Path("{data}").iterdir())) == 1
            assert not [each for each in threading.enumerate() if "ottla" in each.name]
        """
    )

    run(suite).assert_outcomes(passed=2)

    assert list(data.iterdir()) == []


def test_findings_and_counts_are_those_of_a_thread(suite: pytest.Pytester) -> None:
    suite.makepyfile(MIXED)

    here = run(suite, "--ottla-coverage=thread.json", "-p", "no:xdist")
    there = elsewhere(suite, "--ottla-coverage=process.json", "-p", "no:xdist")

    here.assert_outcomes(passed=18)
    there.assert_outcomes(passed=18)
    assert audit_line(there) == audit_line(here) == "ottla: audit: 6 P1, 6 P4 in 12 tests"
    counted = [json.loads((suite.path / name).read_text()) for name in ("thread.json", "process.json")]
    assert exercised(counted[0]) == exercised(counted[1])
    there.stdout.fnmatch_lines(["ottla: fault rules, --ottla-seed=*"])


@pytest.mark.parametrize("mode", ["reset", "snapshot", "fresh"])
def test_each_test_finds_the_seed(suite: pytest.Pytester, mode: str) -> None:
    suite.path.joinpath("shop.json").write_text(
        '{"topics": {"orders": {"partitions": 2, "records": [{"key": "alice", "value": "book"}]}}, '
        '"groups": {"shop": {"offsets": {"orders": {"0": 0}}}}}'
    )
    ini(suite, "ottla_seed_file = shop.json")
    suite.makepyfile(
        """
        import pytest

        kept = set()

        @pytest.mark.parametrize("number", range(3))
        def test_it(kafka, number):
            assert [each.value for each in kafka.records("orders")] == [b"book"]
            assert kafka.topics == ["orders"] and kafka.groups == ["shop"]
            kafka.produce("orders", [b"mine"])
            kafka.snapshot("mine")
            kafka.create_topic("other")
            kafka.restore("mine")
            assert kafka.topics == ["orders"]
            kept.add(kafka.bootstrap)

        def test_ports(): assert len(kept) == PORTS
        """.replace("PORTS", "3" if mode == "fresh" else "1")
    )

    elsewhere(suite, f"--ottla-isolation={mode}").assert_outcomes(passed=4)


def test_clock_is_moved_from_here(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from datetime import UTC, datetime, timedelta
        import pytest

        def test_clock(kafka, kafka_clock):
            kafka.create_topic("orders", 1, configs={"retention.ms": 1000, "segment.ms": 1000})
            kafka.produce("orders", [b"old"])
            before = kafka_clock.now()
            fired = kafka_clock.advance("8d")
            assert kafka_clock.now() - before == timedelta(days=8) and fired
            assert kafka.records("orders") == []
            kafka_clock.set(datetime(2020, 1, 1, tzinfo=UTC))
            assert kafka_clock.now() == datetime(2020, 1, 1, tzinfo=UTC)

        @pytest.mark.kafka(clock="frozen", topics={"orders": 3})
        def test_marker(kafka):
            assert kafka.clock.now() == kafka.clock.now() and len(kafka.topic("orders").partitions) == 3

        def test_clock_is_real_again(kafka):
            assert abs(kafka.clock.now() - datetime.now(UTC)) < timedelta(hours=1)
        """
    )

    elsewhere(suite).assert_outcomes(passed=3)


def test_brokers_and_rules_are_moved_from_here(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from ottla.testing import NotServedHere

        def test_cluster(kafka_cluster):
            kafka = kafka_cluster
            kafka.create_topic("orders", 1)
            kafka.produce("orders", [b"before"])
            leader = kafka.partition("orders", 0).leader
            kafka.brokers[leader].kill()
            assert not kafka.brokers[leader].is_running
            kafka.wait_until_leader("orders", 0, within=20)
            assert kafka.partition("orders", 0).leader != leader
            kafka.brokers[leader].restart()
            kafka.wait_until_in_sync("orders", within=20)

        def test_rules_of_each_other(kafka):
            rule = kafka.fault(id="first", api="Produce", do={"observe": True}, optional=True)
            then = kafka.fault(id="then", api="Fetch", after="first", do={"error": "UNKNOWN_TOPIC_ID"}, optional=True)
            assert [each.id for each in kafka.faults] == ["first", "then"]
            assert then.rule.match["after"] == "first" and then.near_misses == {} and rule.last is None
            kafka.faults.clear()
            assert len(kafka.faults) == 0 and rule.hits == 0

        def test_world(kafka_world):
            for _ in range(2):
                with kafka_world() as kafka:
                    kafka.create_topic("orders")

        @pytest.mark.parametrize("ask", [
            lambda kafka: kafka.wire, lambda kafka: kafka.transactions, lambda kafka: kafka.clock.ties,
            lambda kafka: kafka.group("g").facts, lambda kafka: kafka.clock.follow(None),
            lambda kafka: kafka.produce("orders", [b"a"], as_producer=(1, 0, 0)),
        ])
        def test_what_is_not_there(kafka, ask):
            with pytest.raises(NotServedHere, match="not of brokers in another process"):
                ask(kafka)
        """
    )

    elsewhere(suite).assert_outcomes(passed=9)


def test_steps_of_scripts_that_never_ran_are_errors(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        RULE = {"id": "late", "match": {"api": "Produce"}, "do": {"delay": 1}, "optional": True}

        def test_too_short(kafka, kafka_clock):
            kafka_clock.freeze()
            kafka.script([{"at": "1m", "do": {"fault": RULE}}, {"do": {"remove": "late"}}])
            kafka_clock.advance("30s")

        def test_next(kafka, kafka_clock):
            kafka_clock.advance("1h")
            assert len(kafka.faults) == 0
        """
    )

    result = elsewhere(suite)

    result.assert_outcomes(passed=2, errors=1)
    # Time is the machine's again when the fixture has ended, and what passes until the verdict counts.
    never = "script step 'step-1' (at 1m: fault *) never ran: broker time went on by 30[ .]*s since the script began"
    result.stdout.fnmatch_lines([f"*{never}"])


def test_large_and_odd_records_come_through(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from ottla.protocol.errors import MessageTooLarge, UnknownTopicOrPartition
        from ottla.testing import DeadlineExceeded, Record
        from ottla.testing.reading import TooManyRecordsError

        def test_it(kafka):
            values = [bytes([n % 256]) * 300_000 for n in range(8)] + [b"\\x00" * 1_000_000]
            places = kafka.produce("orders", values, partition=0, timestamp=5, headers=[("h", b"\\xff")])
            assert places == [(0, n) for n in range(9)]
            records = kafka.records("orders")
            assert [each.value for each in records] == values
            assert {(each.timestamp, tuple(each.headers)) for each in records} == {(5, (("h", b"\\xff"),))}
            with pytest.raises(TooManyRecordsError, match="more than 3 records"):
                kafka.records("orders", limit=3)
            with pytest.raises(MessageTooLarge):
                kafka.create_topic("small", 1, configs={"max.message.bytes": 100})
                kafka.produce("small", [b"x" * 200])
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'other'"):
                kafka.records("other")
            with pytest.raises(DeadlineExceeded, match="within 0.1 s") as late:
                kafka.group("shop").wait_until_stable(members=1, within=0.1)
            assert "there is no group 'shop'" in late.value.state
            with pytest.raises(DeadlineExceeded, match="two topics"):
                kafka.wait(lambda each: len(each.topics) == 9, describe="two topics", within=0.1)
        """
    )

    elsewhere(suite).assert_outcomes(passed=1)


def test_connection_left_open_is_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        CLIENTS
        + """
left = []

def test_leaks(kafka):
    left.append(Producer(kafka.client_config("producer") | {"log_level": 0}))
    left[0].produce("orders", b"a")
    assert left[0].flush(20) == 0

def test_ends(): left.clear()
"""
    )

    result = elsewhere(suite)

    result.assert_outcomes(passed=2)
    assert re.search(r"producer rdkafka#\d+ of test_leaks was not closed", result.stdout.str())


def test_failing_test_has_its_sections(suite: pytest.Pytester) -> None:
    suite.makepyfile(CLIENTS + "def test_it(kafka):\n    send(kafka, 'orders', b'book')\n    assert False\n")

    result = elsewhere(suite)

    result.assert_outcomes(failed=1)
    assert re.search(r"rdkafka#\d+  Produce v\d+ orders  ok", result.stdout.str())


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["ottla_settings = num.partition=3"], "did you mean"),
        (["ottla_data = /nowhere"], "expected a directory that exists, or auto"),
        (["ottla_where = moon"], "ottla_where='moon': expected one of thread, process"),
    ],
)
def test_wrong_setting_is_one_sentence(suite: pytest.Pytester, lines: list[str], sentence: str) -> None:
    ini(suite, "ottla_where = process", *lines) if "moon" not in lines[0] else ini(suite, *lines)
    suite.makepyfile("def test_it(kafka): pass")

    result = run(suite)

    result.assert_outcomes(errors=1)
    assert sentence in plain(result.stdout.str())


def test_process_ends_with_a_session_that_is_killed(suite: pytest.Pytester) -> None:
    """And leaves nothing in memory: its standard input has ended."""
    data = suite.mkdir("data")
    ini(suite, f"ottla_data = {data}")
    suite.makepyfile(
        """
        import os, signal
        def test_dies(kafka): os.kill(os.getpid(), signal.SIGKILL)
        """
    )

    elsewhere(suite)

    wait_for(lambda: not list(data.iterdir()), 20, lambda: f"left: {list(data.iterdir())}")


def test_another_broker_takes_the_place_of_one_that_died(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os, signal, subprocess

        def test_kills(kafka):
            for pid in subprocess.check_output(["pgrep", "-P", str(os.getpid())], text=True).split():
                name = open(f"/proc/{pid}/cmdline").read() if os.path.exists(f"/proc/{pid}") else ""
                if "broker_process" in name:
                    os.kill(int(pid), signal.SIGKILL)

        def test_next(kafka):
            assert kafka.topics == []
        """
    )

    result = elsewhere(suite)

    result.assert_outcomes(passed=2, errors=1)
    assert "do not answer" in result.stdout.str()


@pytest.mark.parametrize("option", ["--ottla-artifacts=left", "--ottla-faults-matrix"])
def test_options_that_need_the_process_are_refused(suite: pytest.Pytester, option: str) -> None:
    suite.makepyfile("def test_it(kafka): pass")

    result = elsewhere(suite, option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "needs brokers in the process of the test: not with --ottla-where=process" in result.stderr.str()
