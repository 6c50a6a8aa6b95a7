"""CVE-2026-83525: in Kafka an empty array in a request ended a process. Here each array of each request of each version
is empty once, at the top and within elements, and the request is answered, or its connection closed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ottla.broker.server.apis import APIS, PRODUCE
from ottla.protocol.schema import Message, fields_of
from tests.broker.authorization.world import Secured, secured
from tests.broker.requests import metadata
from tests.broker.wire import RecordingLog

ANSWERED_WITHIN_S = 20
BUGS = {"a handler failed", "unhandled error in a connection", "an authorization failed unexpectedly"}

of_module = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    data_dir: Path = tmp_path_factory.mktemp("arrays")
    async with secured(data_dir, log=RecordingLog()) as made:
        yield made


def filled(cls: type[Message], version: int, depth: int) -> Message:
    """With one element in each array that is not as deep as `depth`; those below are empty."""
    message: Any = cls()
    for field in fields_of(cls):
        if field.is_array and depth and version in field.versions:
            struct = field.struct
            element: Any = _plain(field.type_name) if struct is None else filled(struct, version, depth - 1)
            setattr(message, field.name, [element])
    return message


def _plain(type_name: str) -> Any:
    return {"string": "", "bytes": b"", "uuid": bytes(16)}.get(type_name, 0)


def requests_of(key: int) -> Iterator[tuple[Message, int]]:
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        for depth in range(4):
            request: Any = filled(api.request_class(), version, depth)
            if key == PRODUCE:
                # By default it wants no answer.
                request.acks = 1
            yield request, version


@of_module
@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
async def test_empty_arrays_end_nothing_but_their_connection(world: Secured, key: int) -> None:
    log = world.broker.runtime.log
    assert isinstance(log, RecordingLog)
    for user in ("admin", "alice"):
        for request, version in requests_of(key):
            client = await world.client(user)
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                try:
                    await client.ask(request, version)
                except (asyncio.IncompleteReadError, ConnectionError):
                    # Closed, where the response has no place for an error.
                    assert world.broker.runtime.is_serving
            await client.close()
    assert [event for event, _ in log.events if event in BUGS] == []
    assert (await (await world.client("admin")).ask(metadata(), 9)).brokers
