"""A broker's answers to awkward requests, reduced to error codes, in ascending order: Kafka's order within an answer is
that of a hash map.

`python -m tests.broker.awkward_answers HOST:PORT` asks a fresh broker with node id 1 and prints what it answers, as
recorded in `tests/golden/kafka_4_1/answers.json` from Apache Kafka 4.1.0 with `group.initial.rebalance.delay.ms=0` and
`offsets.topic.replication.factor=1`.
"""

import asyncio
import json
import sys
from typing import Any

from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment
from tests.broker.asking import Client
from tests.broker.awkward_requests import Asked, Busy, World, awkward_requests
from tests.broker.requests import commit, fetch, join, metadata, produce, sync, topic

ANSWERS_WITHIN_S = 5


async def answers(bootstrap: str) -> dict[str, Any]:
    """What the broker answers to each request: its error codes, "closed" for the connection, or "silence"."""
    world = await _prepare(bootstrap)
    found: dict[str, Any] = {}
    for asked in awkward_requests(world):
        assert asked.what not in found, f"two requests are called {asked.what!r}"
        found[asked.what] = await _codes(bootstrap, asked)
    return found


async def _codes(bootstrap: str, asked: Asked) -> list[int] | str:
    try:
        return sorted(_codes_in(await _ask(bootstrap, asked.request, asked.version)))
    except TimeoutError:
        return "silence"
    except asyncio.IncompleteReadError:
        return "closed"


def _codes_in(message: Any) -> list[int]:
    if isinstance(message, list):
        return [code for each in message for code in _codes_in(each)]
    codes: list[int] = []
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        codes += [value] if name == "error_code" else _codes_in(value)
    return codes


async def _ask(bootstrap: str, request: Any, version: int) -> Any:
    host, _, port = bootstrap.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            return await client.ask(request, version)
    finally:
        await client.close()


# The world


async def _prepare(bootstrap: str) -> World:
    topics = [topic("orders", 2), topic("table", configs={"cleanup.policy": "compact"})]
    created = await _ask(bootstrap, CreateTopicsRequest(topics=topics), 7)
    assert _codes_in(created) == [0, 0], created
    await _until_ok(bootstrap, metadata("orders", "table"), 12)
    await _until_ok(bootstrap, produce("orders"), 9)
    await _until_ok(bootstrap, FindCoordinatorRequest(coordinator_keys=["busy", "simple"]), 4)
    await _until_ok(bootstrap, commit("simple", "orders"), 8)
    await _until_ok(bootstrap, InitProducerIdRequest(transactional_id=None), 4)
    busy = await _a_busy_group(bootstrap)
    await _until_ok(bootstrap, commit("busy", "orders", busy.generation, busy.member_id), 8)
    fetched = await _ask(bootstrap, fetch("orders", session_epoch=0), 12)
    return World(bootstrap, created.topics[0].topic_id, busy, fetched.session_id)


async def _until_ok(bootstrap: str, request: Any, version: int) -> None:
    """A broker that has just created a topic may need a moment."""
    async with asyncio.timeout(4 * ANSWERS_WITHIN_S):
        while any(_codes_in(await _ask(bootstrap, request, version))):  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(0.1)


async def _a_busy_group(bootstrap: str) -> Busy:
    joined = await _ask(bootstrap, join("busy"), 3)
    assert joined.error_code == 0, joined
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")
    synced = await _ask(bootstrap, sync("busy", joined.member_id, joined.generation_id, [assignment]), 3)
    assert synced.error_code == 0, synced
    return Busy(joined.member_id, joined.generation_id)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(answers(sys.argv[1])), indent=2))
