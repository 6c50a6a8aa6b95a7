"""`--ottla-faults-matrix`, by pytest's own pytester."""

import json
from typing import Any

import pytest

from tests.audit.suites import ini, run

pytest_plugins = ("pytester",)

HEAD = """
import pytest
from confluent_kafka import Consumer, Producer

def send(kafka, **config):
    producer = Producer(kafka.client_config("producer") | {"log_level": 0} | config)
    producer.produce("orders", b"book")
    assert producer.flush(20) == 0
"""
NAIVE = f"""{HEAD}
def test_naive(kafka):
    kafka.create_topic("orders", 1)
    send(kafka, **{{"enable.idempotence": False}})
"""
CAREFUL = f"""{HEAD}
def test_careful(kafka):
    kafka.create_topic("orders", 1)
    send(kafka, **{{"enable.idempotence": True}})
    assert len(kafka.records("orders")) == 1
"""
MATRIX = "--ottla-faults-matrix"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    choose(pytester, "produce-answer-lost", "produce-not-leader")
    return pytester


def choose(suite: pytest.Pytester, *lines: str, **more: str) -> None:
    """The faults that the suite is run under."""
    faults = [f"    {line}" for line in lines]
    ini(suite, "ottla_faults_matrix =", *faults, *(f"{name} = {value}" for name, value in more.items()))


def outcomes(suite: pytest.Pytester, file: str = "ottla-faults-matrix.json") -> dict[tuple[str, str], str]:
    return {(row["test"].split("::")[-1], row["fault"]): row["outcome"] for row in rows(suite, file)}


def rows(suite: pytest.Pytester, file: str = "ottla-faults-matrix.json") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((suite.path / file).read_text())["runs"]
    return found


def test_the_matrix_says_what_tests_survive(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_naive=NAIVE, test_careful=CAREFUL, test_other="def test_other(): pass")

    result = run(suite, MATRIX)

    result.assert_outcomes(passed=3)
    assert outcomes(suite) == {
        ("test_naive", "produce-answer-lost"): "duplicated",
        ("test_naive", "produce-not-leader"): "survived",
        ("test_careful", "produce-answer-lost"): "survived",
        ("test_careful", "produce-not-leader"): "survived",
    }
    result.stdout.fnmatch_lines(["ottla: faults matrix: 2 tests with a broker run again, *2 faults concern*"])
    result.stdout.fnmatch_lines(
        [
            "ottla: faults matrix: 2 tests, 4 runs under faults, * s",
            "  fault                survived  duplicated",
            "  produce-answer-lost         1           1",
            "  produce-not-leader          2           -",
            "  test_naive.py::test_naive under produce-answer-lost: duplicated, though the test passed: P1 orders-0: *",
        ]
    )


def test_without_the_option_nothing_is_run_again(suite: pytest.Pytester) -> None:
    suite.makepyfile(NAIVE)

    assert "faults matrix" not in run(suite).stdout.str()
    assert not (suite.path / "ottla-faults-matrix.json").exists()


def test_each_run_has_fixtures_of_its_own(suite: pytest.Pytester) -> None:
    fixtures = """
@pytest.fixture(scope="module")
def of_module():
    print("module begins")
    yield
    print("module ends")

@pytest.fixture
def own(tmp_path):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.kafka(topics={"orders": 1})
def test_it(kafka, own, of_module, number):
    assert kafka.records("orders") == []
    send(kafka, **{"enable.idempotence": True})
"""
    suite.makepyfile(HEAD + fixtures)

    result = run(suite, MATRIX, "-s")

    result.assert_outcomes(passed=2)
    assert [row["outcome"] for row in rows(suite)] == ["survived"] * 4
    # Once for all runs of the first test, and of the second as it is the last of its module.
    assert result.stdout.str().count("module begins") == result.stdout.str().count("module ends") == 2


@pytest.mark.parametrize(
    ("ending", "outcome", "why"),
    [
        ("assert len(kafka.records('orders')) == 1 + lost.exists()", "failed", "AssertionError: *"),
        ("if lost.exists(): raise KeyError('orders')", "crashed", "KeyError: 'orders'"),
        ("if lost.exists(): kafka.wait_for_records('orders', 9, within=0.1)", "hung", "DeadlineExceeded: *"),
        ("while lost.exists(): pass", "hung", "RunHung: *"),
        ("if lost.exists(): pytest.fail('no')", "failed", "Failed: no"),
        ("if lost.exists(): pytest.skip('no')", "survived", ""),
    ],
)
def test_how_a_run_ends_is_told_apart(suite: pytest.Pytester, ending: str, outcome: str, why: str) -> None:
    choose(suite, "produce-not-leader", ottla_faults_matrix_deadline="1")
    body = f"""
import pathlib

def test_it(kafka):
    lost = pathlib.Path("first-run")
    kafka.create_topic("orders", 1)
    send(kafka)
    {ending}

@pytest.fixture(autouse=True)
def note():
    yield
    pathlib.Path("first-run").write_text("")
"""
    suite.makepyfile(HEAD + body)

    run(suite, MATRIX).assert_outcomes(passed=1)

    (row,) = rows(suite)
    assert row["outcome"] == outcome
    assert row["passed"] == (outcome == "survived")
    assert row["why"] == why or (why.endswith("*") and row["why"].startswith(why[:-1]))


def test_what_follows_a_hung_run_has_a_clean_broker(suite: pytest.Pytester) -> None:
    choose(suite, "produce-*", ottla_faults_matrix_deadline="1")
    body = """
def test_hangs(kafka):
    with kafka.fault(api="Produce", do="observe", optional=True) as produced:
        send(kafka)
    while any(each.id.startswith("matrix") for each in kafka.faults):
        pass

def test_next(kafka):
    assert kafka.topics == []
"""
    suite.makepyfile(HEAD + body)

    run(suite, MATRIX).assert_outcomes(passed=2)

    assert {row["outcome"] for row in rows(suite)} == {"hung"}
    assert len(rows(suite)) == 5


def test_tests_that_do_not_pass_are_not_run_again(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        HEAD
        + """
def test_fails(kafka):
    send(kafka)
    assert False

def test_skipped(kafka):
    send(kafka)
    pytest.skip()

@pytest.mark.xfail
def test_expected(kafka):
    send(kafka)
    assert False

@pytest.mark.xfail
def test_unexpected(kafka):
    send(kafka)
"""
    )

    result = run(suite, MATRIX)

    result.assert_outcomes(failed=1, skipped=1, xfailed=1, xpassed=1)
    assert rows(suite) == []
    result.stdout.fnmatch_lines(["ottla: faults matrix: 0 tests, 0 runs under faults, 0.0 s"])


def test_a_fault_that_does_not_act_is_not_met(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        HEAD
        + """
import pathlib

def test_it(kafka):
    if not pathlib.Path("first-run").exists():
        send(kafka)
    pathlib.Path("first-run").write_text("")
"""
    )

    result = run(suite, MATRIX)

    assert set(outcomes(suite).values()) == {"not met"}
    result.stdout.fnmatch_lines(["ottla: faults matrix: 1 tests, 0 runs under faults, * s"])


def test_rules_and_marks_of_a_test_hold_in_each_run(suite: pytest.Pytester) -> None:
    choose(suite, "produce-not-leader")
    suite.makepyfile(
        HEAD
        + """
@pytest.mark.kafka(audit="off", isolation="fresh", settings={"num.partitions": 2})
def test_it(kafka):
    with kafka.fault(api="Produce", do={"error": "NOT_ENOUGH_REPLICAS"}) as refused:
        send(kafka, **{"enable.idempotence": False})
    assert refused.hits == 1
    assert len(kafka.topic("orders").partitions) == 2
"""
    )

    run(suite, MATRIX).assert_outcomes(passed=1)

    assert set(outcomes(suite).values()) == {"survived"}


def test_a_rule_of_the_user_is_a_fault(suite: pytest.Pytester) -> None:
    choose(suite, "too-large: api=Produce,topic=orders,error=MESSAGE_TOO_LARGE", "elsewhere: api=Fetch,delay=1")
    suite.makepyfile(NAIVE)

    run(suite, f"{MATRIX}=own.json").assert_outcomes(passed=1)

    assert outcomes(suite, "own.json") == {("test_naive", "too-large"): "lost"}
    (row,) = rows(suite, "own.json")
    assert row["why"].startswith("P8 ")


@pytest.mark.parametrize(
    ("lines", "more", "says"),
    [
        (["produce-answer"], {}, "there is no fault 'produce-answer'; did you mean 'produce-answer-lost'?"),
        (["mine: api=Produse,delay=1"], {}, "mine: api: 'Produse' is not served; did you mean 'Produce'?"),
        (["mine: api=Produce"], {}, "mine: do: one action in a rule, not 0 ()"),
        ([], {"ottla_faults_matrix_deadline": "0"}, "ottla_faults_matrix_deadline: expected seconds, more than 0"),
        ([], {"ottla_faults_matrix_deadline": "soon"}, "*could not convert string to float: 'soon'"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(
    suite: pytest.Pytester, lines: list[str], more: dict[str, str], says: str
) -> None:
    choose(suite, *lines, **more)
    suite.makepyfile(NAIVE)

    result = run(suite, MATRIX)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{says}"])


def test_a_file_that_cannot_be_written_is_one_line(suite: pytest.Pytester) -> None:
    suite.makepyfile(CAREFUL)

    result = run(suite, f"{MATRIX}=none/matrix.json")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ottla: faults matrix: *none/matrix.json cannot be written: No such file *"])


def test_workers_hand_over_their_runs(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite.makepyfile(test_naive=NAIVE, test_careful=CAREFUL)

    result = run(suite, MATRIX, "-n", "2")

    result.assert_outcomes(passed=2)
    assert len(outcomes(suite)) == 4
    result.stdout.fnmatch_lines(["ottla: faults matrix: 2 tests, 4 runs under faults, * s"])


def test_brokers_of_a_cluster_are_killed_and_restarted(suite: pytest.Pytester) -> None:
    choose(suite, "leader-killed", "broker-restarted")
    suite.makepyfile(
        HEAD
        + """
def test_cluster(kafka_cluster):
    kafka_cluster.create_topic("orders", 1)
    send(kafka_cluster, **{"enable.idempotence": True})
    kafka_cluster.wait_for_records("orders", 1, within=20)

def test_one(kafka):
    send(kafka)
"""
    )

    run(suite, MATRIX).assert_outcomes(passed=2)

    assert outcomes(suite) == {
        ("test_cluster", "leader-killed"): "survived",
        ("test_cluster", "broker-restarted"): "survived",
    }


def test_a_session_that_expires_removes_the_member(suite: pytest.Pytester) -> None:
    choose(suite, "commit-session-expired", "session-expired", "fetch-out-of-range")
    suite.makepyfile(
        HEAD
        + """
from ottla.coordinator.facts import Cause

def test_group(kafka):
    kafka.create_topic("orders", 1)
    kafka.produce("orders", [b"book"])
    own = {"group.id": "shop", "enable.auto.commit": False, "log_level": 0}
    # A member that hears of it by a heartbeat joins again, and commits.
    own |= {"session.timeout.ms": 120_000, "heartbeat.interval.ms": 60_000}
    consumer = Consumer(kafka.client_config("consumer") | own)
    consumer.subscribe(["orders"])
    message = consumer.poll(10)
    try:
        consumer.commit(message, asynchronous=False)
    except Exception as error:
        assert "UNKNOWN_MEMBER_ID" in str(error)
        removed = [each.removed for each in kafka.group("shop").history if each.removed]
        assert Cause.SESSION_EXPIRED in [cause for each in removed for cause in each.values()]
        raise
    finally:
        consumer.close()
"""
    )

    run(suite, MATRIX).assert_outcomes(passed=1)

    assert outcomes(suite) == {
        ("test_group", "commit-session-expired"): "crashed",
        ("test_group", "session-expired"): "crashed",
        ("test_group", "fetch-out-of-range"): "survived",
    }
