"""Requests that rules hold up belong to the world that they came in."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.testing.async_handle import KafkaAsync
from ottla.testing.faults.actions import Action, Bandwidth, Call, Delay, Hold, Slice
from ottla.testing.testbed import Testbed
from tests.broker.wire import Client
from tests.faults.worlds import PRODUCE_VERSION, produce, produced
from tests.kit.clusters import Replicated

WAITS_MS = 300
TOPIC, EMPTY = "t", "empty"


async def connected(bootstrap: str) -> Client:
    host, port = bootstrap.split(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def begin(kafka: KafkaAsync) -> None:
    await kafka.create_topic(TOPIC, 1)
    await kafka.snapshot(EMPTY)


async def reset(kafka: KafkaAsync) -> None:
    await kafka.reset()
    await kafka.create_topic(TOPIC, 1)


async def restore(kafka: KafkaAsync) -> None:
    await kafka.restore(EMPTY)


async def values(kafka: KafkaAsync) -> list[bytes | None]:
    """When all that had to wait for `WAITS_MS` before this call has waited: a later timer is over."""
    kafka.fault(api="Produce", do=Delay(WAITS_MS))
    client = await connected(kafka.bootstrap)
    assert await produced(client, b"new") == {0: 0}
    client.close()
    return [each.value for each in await kafka.records(TOPIC)]


@pytest.mark.parametrize("end", [reset, restore])
@pytest.mark.parametrize(
    "action",
    [Delay(WAITS_MS), Bandwidth(400, direction="request"), Slice(40, WAITS_MS // 5, direction="request"), Hold()],
    ids=lambda action: action.key,
)
async def test_what_waits_ends_with_its_world(
    bed: Testbed, end: Callable[[KafkaAsync], Awaitable[None]], action: Action
) -> None:
    """Its client has not closed its connection: the end of the world does."""
    kafka = KafkaAsync(bed)
    await begin(kafka)
    rule = kafka.fault(api="Produce", do=action, times=1)
    client = await connected(kafka.bootstrap)
    client.send(produce(b"old"), PRODUCE_VERSION)
    await rule.wait_async()

    await end(kafka)
    rule.release()

    assert await values(kafka) == [b"new"]
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_function_of_a_rule_ends_with_its_world(bed: Testbed, is_stubborn: bool) -> None:
    kafka = KafkaAsync(bed)
    await begin(kafka)
    over = bed.call(asyncio.Event)
    ended: list[str] = []

    async def decide(_: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
        try:
            await over.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            if not is_stubborn:
                raise
            await over.wait()
        return await proceed()

    rule = kafka.fault(api="Produce", do=Call(decide))
    client = await connected(kafka.bootstrap)
    client.send(produce(b"old"), PRODUCE_VERSION)
    await rule.wait_async()

    await reset(kafka)
    bed.call(over.set)

    assert await values(kafka) == [b"new"]
    assert ended == ["cancelled"]


def test_requests_of_brokers_go_on_at_a_reset(cluster: Replicated) -> None:
    """Replication does not wait for a delay of the world before."""
    kafka = cluster.kafka
    kafka.create_topic(TOPIC, 3, replication_factor=3)
    rule = kafka.fault(api="Fetch", peer="broker", do=Delay(60_000))
    rule.wait(hits=6)

    kafka.reset()

    kafka.create_topic(TOPIC, 3, replication_factor=3)
    for index in range(3):
        kafka.produce(TOPIC, [b"new"], partition=index)
    kafka.wait_until_in_sync(TOPIC, within=10)
