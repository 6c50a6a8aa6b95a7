"""Brokers of the kit for its own tests."""

from collections.abc import Iterator

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.kit.clusters import Replicated, three_brokers


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=20)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture
def bed(shared_bed: Testbed) -> Iterator[Testbed]:
    """Empty at the begin and at the end."""
    yield shared_bed
    found = shared_bed.call(shared_bed.auditor.findings)
    shared_bed.run(shared_bed.reset())
    assert [each.lines() for each in found if each.is_error("errors")] == []


@pytest.fixture
def handle(bed: Testbed) -> Kafka:
    return Kafka(bed)


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Testbed]:
    bed = three_brokers()
    yield bed
    bed.stop()


@pytest.fixture
def cluster(shared_cluster: Testbed) -> Iterator[Replicated]:
    """Three brokers as at first, at the begin and at the end."""
    yield Replicated(Kafka(shared_cluster))
    shared_cluster.run(shared_cluster.reset())
