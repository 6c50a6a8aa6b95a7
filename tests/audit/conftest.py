"""A broker for the tests of a module, and suites of users for tests of the plugin."""

from collections.abc import Iterator

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.audit.suites import ini


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=20, settings={"log.retention.check.interval.ms": 50})
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture
def handle(shared_bed: Testbed) -> Iterator[Kafka]:
    yield Kafka(shared_bed)
    shared_bed.run(shared_bed.reset())


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    ini(pytester)
    return pytester
