"""A broker of the kit, and captures of it."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing.handle import Kafka


@pytest.fixture(scope="module")
def shared_kafka() -> Iterator[Kafka]:
    with ottla.testing.broker(deadline=20) as kafka:
        yield kafka


@pytest.fixture
def kafka(shared_kafka: Kafka) -> Iterator[Kafka]:
    """Empty at the end."""
    yield shared_kafka
    shared_kafka.reset()
