"""Lines of the brokers' log while their time is moved: the machine's time, and theirs."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from ottla.broker.assembly import Parts
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed
from ottla.timer.clock import TimerKind
from tests.kit.clusters import three_brokers

pytest_plugins = ("pytester",)

NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)
SKEWED = 2


@pytest.fixture(scope="module")
def three() -> Iterator[Testbed]:
    bed = three_brokers(cluster_settings(3))
    yield bed
    bed.stop()


@pytest.fixture
def bed(three: Testbed) -> Iterator[Testbed]:
    yield three
    three.run(three.reset())


def parts_of(bed: Testbed, node_id: int) -> Parts:
    return bed.hosted.parts()[node_id]


def logged(bed: Testbed, node_id: int) -> str:
    """The line of a warning of this broker."""
    bed.call(lambda: parts_of(bed, node_id).runtime.log.storage.warning("happened", what="this"))
    return last(bed, "happened")


def last(bed: Testbed, event: str) -> str:
    return [line for line in bed.hosted.log_lines.since(0) if event in line][-1]


def broker_time(line: str) -> str | None:
    found = re.search(r"broker_time=(\S+)", line)
    return None if found is None else found[1]


def test_lines_have_both_times_while_they_differ(bed: Testbed) -> None:
    clock = Kafka(bed).clock
    assert broker_time(logged(bed, 0)) is None

    clock.freeze(at=NEW_YEAR)

    assert broker_time(logged(bed, 0)) == "2031-01-01T00:00:00.000Z"
    assert all(bed.hosted.log_lines.since(0))
    assert logged(bed, 0).startswith(datetime.now(UTC).strftime("%Y-%m-%dT"))
    clock.advance("1d")
    clock.resume()
    line = broker_time(logged(bed, 1))
    assert line is not None
    assert line.startswith("2031-01-02T00:0")
    Kafka(bed).reset()
    assert broker_time(logged(bed, 0)) is None


def test_each_broker_shows_its_own_wall_clock(bed: Testbed) -> None:
    clock = Kafka(bed).clock
    clock.freeze(at=NEW_YEAR)
    clock.skew(SKEWED, "5s")

    assert broker_time(logged(bed, 0)) == "2031-01-01T00:00:00.000Z"
    assert broker_time(logged(bed, SKEWED)) == "2031-01-01T00:00:05.000Z"
    bed.call(bed.hosted.log.warning, "of them all")
    assert broker_time(last(bed, "of them all")) == "2031-01-01T00:00:00.000Z"


def test_lines_of_a_walk_have_the_time_of_their_stop(bed: Testbed) -> None:
    clock = Kafka(bed).clock
    clock.freeze(at=NEW_YEAR)
    runtime = parts_of(bed, 1).runtime
    bed.call(lambda: runtime.schedule(60_000, lambda: runtime.log.warning("due"), TimerKind.JOIN))

    clock.advance("1h")

    assert broker_time(last(bed, "due")) == "2031-01-01T00:01:00.000Z"


def test_broker_that_starts_again_shows_it_too(bed: Testbed) -> None:
    kafka = Kafka(bed)
    kafka.clock.freeze(at=NEW_YEAR)
    kafka.brokers[1].kill()
    kafka.brokers[1].restart()

    assert broker_time(logged(bed, 1)) == "2031-01-01T00:00:00.000Z"


def test_failure_of_a_test_shows_both(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(
        """
    from datetime import UTC, datetime

    def test_fails(kafka_cluster):
        kafka_cluster.create_topic("orders", 1)
        kafka_cluster.clock.freeze(at=datetime(2031, 1, 1, tzinfo=UTC))
        kafka_cluster.brokers[1].kill()
        kafka_cluster.brokers[1].restart()
        assert False
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"-+ ottla: broker log -+", r"20\d\d-.*broker_time=2031-01-01T00:00:00.000Z"])
