"""A broker with an authorizer and two topics, and what it has logged."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.broker.authorization.world import Secured, with_topics
from tests.broker.wire import RecordingLog


@pytest.fixture
def log() -> RecordingLog:
    return RecordingLog()


@pytest_asyncio.fixture
async def world(tmp_path: Path, log: RecordingLog) -> AsyncIterator[Secured]:
    async with with_topics(tmp_path, log=log) as made:
        yield made
