"""Before the first line of a test: the address that `ottla_env` gives it, and set-ups that fail, by pytester."""

import pytest

from tests.kit.test_plugin import ini, run, suite

__all__ = ["suite"]

pytest_plugins = ("pytester",)

ENVIRONMENT = """
import os
import pytest
from ottla.testing import broker_fixture

seen = []

def address():
    return os.environ.get("KAFKA_ADDRESS")

def test_before():
    assert address() == "of-the-machine"

def test_first(kafka):
    assert address() == kafka.bootstrap
    seen.append(kafka.bootstrap)

@pytest.mark.kafka(settings={"message.max.bytes": 2000})
def test_settings(kafka):
    assert address() == kafka.bootstrap != seen[0]

def test_between():
    assert address() == seen[0]

def test_again(kafka):
    assert address() == kafka.bootstrap == seen[0]

@pytest.mark.kafka(isolation="fresh")
def test_fresh(kafka):
    assert address() == kafka.bootstrap != seen[0]

def test_after_a_broker_that_has_gone():
    assert address() == seen[0]

def test_cluster(kafka, kafka_cluster):
    assert address() == kafka_cluster.bootstrap != kafka.bootstrap

def test_world(kafka_world):
    with kafka_world() as kafka:
        assert address() == kafka.bootstrap
"""


@pytest.mark.parametrize("where", ["thread", "process"])
def test_address_is_of_the_broker_that_the_test_has(
    suite: pytest.Pytester, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ADDRESS", "of-the-machine")
    ini(suite, "ottla_env = KAFKA_ADDRESS", f"ottla_where = {where}")
    suite.makepyfile(ENVIRONMENT)
    suite.makeconftest(
        """
        import atexit, os
        atexit.register(lambda: print("at the end:", os.environ["KAFKA_ADDRESS"]))
        """
    )

    result = run(suite, "-s")

    result.assert_outcomes(passed=9)
    assert "at the end: of-the-machine" in result.stdout.lines


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("topics=['orders']", "topics=['orders']): expected topics with their partitions, as in {\"orders\": 3}"),
        ("settings=['a=b']", "settings=['a=b']): expected server properties, as in"),
        ("faults=[{'drop': 'response'}]", "expected the name of a file with rules; a test makes rules of its own by"),
        ("seed={'topics': {}}", "seed={'topics': {}}): expected the name of a file"),
        ("brokers='3'", "brokers='3'): expected a whole number"),
        ("clock='later'", "clock='later': expected one of real, frozen, or a datetime"),
        ("settings={'num.partition': 3}", "num.partition"),
    ],
)
@pytest.mark.parametrize("fixture", ["kafka", "kafka_cluster"])
def test_wrong_marker_is_one_sentence(suite: pytest.Pytester, argument: str, sentence: str, fixture: str) -> None:
    suite.makepyfile(f"import pytest\n\n@pytest.mark.kafka({argument})\ndef test_it({fixture}): pass\n")

    result = run(suite)

    result.assert_outcomes(errors=1)
    assert sentence in result.stdout.str()
    assert "fixtures.py" not in result.stdout.str()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ottla_brokers = x", "ottla_brokers='x': expected a whole number"),
        ("ottla_deadline = 5s", "ottla_deadline='5s': expected seconds, as a number"),
    ],
)
def test_wrong_number_names_its_option(suite: pytest.Pytester, line: str, sentence: str) -> None:
    ini(suite, line)
    suite.makepyfile("def test_it(kafka): pass")

    assert sentence in run(suite).stdout.str()


BROKEN = """
import json
import os
import pathlib
import threading

import pytest

data = pathlib.Path(DATA)

@pytest.mark.kafka(isolation="fresh", topics={"bad name!": 1})
def test_topics(kafka): pass

@pytest.mark.kafka(isolation="fresh", faults="nothere.json")
def test_faults(kafka): pass

@pytest.mark.kafka(isolation="fresh", seed="nothere.json")
def test_seed(kafka): pass

def test_nothing_runs():
    assert [each.name for each in threading.enumerate() if "ottla" in each.name] == []
    assert list(data.iterdir()) == []
    assert children() == []

def children():
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
"""


@pytest.mark.parametrize("where", ["thread", "process"])
def test_failed_set_up_leaves_no_fresh_broker(suite: pytest.Pytester, where: str) -> None:
    data = suite.mkdir("data")
    ini(suite, f"ottla_data = {data}", f"ottla_where = {where}")
    suite.makepyfile(BROKEN.replace("DATA", repr(str(data))))

    result = run(suite)

    result.assert_outcomes(passed=1, errors=3)
    assert "Invalid" in result.stdout.str()
    assert "nothere.json" in result.stdout.str()


FROZEN = """
import pytest

@pytest.mark.kafka(clock="frozen", topics={"bad name!": 1})
def test_fails(kafka): pass

@pytest.mark.kafka(clock="frozen")
def test_passes(kafka): pass

@pytest.mark.parametrize("number", range(2))
def test_next(kafka, number):
    before = kafka.clock.now()
    while kafka.clock.now() == before:
        pass
"""


@pytest.mark.parametrize("order", ["fails or next", "passes or next"])
@pytest.mark.parametrize("where", ["thread", "process"])
def test_clock_goes_on_behind_a_test_that_froze_it(suite: pytest.Pytester, order: str, where: str) -> None:
    """Also where nothing is emptied."""
    ini(suite, "ottla_isolation = names", f"ottla_where = {where}")
    suite.makepyfile(FROZEN)

    outcomes = {"passed": 2, "errors": 1} if "fails" in order else {"passed": 3}
    run(suite, "-k", order, "-o", "timeout=20").assert_outcomes(**outcomes, deselected=1)


def test_seed_that_is_refused_in_part_is_not_left(suite: pytest.Pytester) -> None:
    suite.path.joinpath("half.json").write_text('{"topics": {"orders": 1, "bad name!": 1}}')
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(seed="half.json")
        def test_refused(kafka): pass

        def test_next(kafka):
            assert kafka.topics == []
        """
    )

    run(suite).assert_outcomes(passed=1, errors=1)


def test_capture_of_a_failed_set_up_ends(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import json, pathlib
        import pytest

        @pytest.mark.kafka(topics={"bad name!": 1})
        def test_fails(kafka): pass

        def test_next(kafka):
            (report,) = pathlib.Path("left").glob("*test_fails/report.json")
            (failure,) = json.loads(report.read_text())["failures"]
            assert failure["phase"] == "setup" and "bad name!" in failure["text"]
        """
    )

    run(suite, "--ottla-artifacts=left").assert_outcomes(passed=1, errors=1)


BESIDE_A_CLUSTER = """
from datetime import timedelta

import pytest

async def test_all_of_the_cluster(
    kafka_cluster, kafka_topic, kafka_group, kafka_clock, kafka_faults, kafka_bootstrap, kafka_async
):
    topic = kafka_topic(partitions=3)
    assert kafka_cluster.topics == [topic] == await kafka_async.topics()
    assert len(kafka_cluster.topic(topic).partitions[0].replicas) == 3
    before = kafka_cluster.clock.now()
    kafka_clock.advance("1d")
    assert kafka_cluster.clock.now() - before == timedelta(days=1)
    assert kafka_bootstrap == kafka_cluster.bootstrap
    rule = kafka_cluster.fault(api="Produce", do={"observe": True}, optional=True)
    assert [each.id for each in kafka_faults] == [rule.id]
    kafka_cluster.group(kafka_group()).set_offsets(topic, {0: 0})

@pytest.fixture
def own(kafka_topic):
    return kafka_topic()

def test_fixture_of_the_project(own, kafka_cluster):
    assert kafka_cluster.topics == [own]

def test_both(own, kafka, kafka_cluster, kafka_bootstrap, kafka_clock):
    assert kafka.topics == [own] and kafka_cluster.topics == []
    assert kafka_bootstrap == kafka.bootstrap != kafka_cluster.bootstrap
    before = kafka.clock.now()
    kafka_clock.advance("1d")
    assert kafka.clock.now() - before == timedelta(days=1)
"""


@pytest.mark.parametrize("where", ["thread", "process"])
def test_fixtures_beside_a_cluster_are_of_the_cluster(suite: pytest.Pytester, where: str) -> None:
    """Unless the test takes `kafka` as well."""
    ini(suite, f"ottla_where = {where}")
    suite.makepyfile(BESIDE_A_CLUSTER)

    run(suite).assert_outcomes(passed=3)
