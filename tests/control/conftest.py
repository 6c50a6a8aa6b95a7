"""A broker with its control address, emptied after each test."""

from collections.abc import Iterator

import pytest

from ottla.testing.control.listener import ControlListener
from ottla.testing.testbed import Testbed
from tests.control.asking import Asker, opened_control


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=20)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture(scope="module")
def control(shared_bed: Testbed) -> Iterator[ControlListener]:
    with opened_control(shared_bed) as control:
        yield control


@pytest.fixture
def bed(shared_bed: Testbed) -> Iterator[Testbed]:
    yield shared_bed
    shared_bed.run(shared_bed.reset())


@pytest.fixture
def asker(bed: Testbed, control: ControlListener) -> Asker:
    return Asker(control.url)
