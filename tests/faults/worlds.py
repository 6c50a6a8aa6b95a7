"""A broker on the test's loop with fault rules, and clients that speak bytes to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ottla.broker.broker import Broker
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.faults.faults import Faults
from tests.broker.wire import Client, batch, create_topic, fetch_request, values_of

PRODUCE_VERSION, FETCH_VERSION = 9, 11
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


class World:
    """One broker, two partitions of the topic t, its rules."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        core = broker._core
        assert core is not None
        self.core: Broker = core
        self.faults: Faults = broker.faults

    async def client(self) -> Client:
        return await Client.connect(self.core)

    async def values(self, index: int = 0) -> list[bytes | None]:
        """What is in the log of a partition, by a client of its own."""
        client = await self.client()
        response = await client.call(fetch_request("t", 0, index=index, max_wait_ms=0), FetchResponse, FETCH_VERSION)
        client.close()
        return values_of(response.responses[0].partitions[0].records)


@asynccontextmanager
async def faulty_broker(**options: Any) -> AsyncIterator[World]:
    async with EmbeddedBroker(settings=SETTINGS, **options) as broker:
        world = World(broker)
        client = await world.client()
        await create_topic(client, "t", 2)
        client.close()
        yield world


def produce(value: bytes, *indexes: int, acks: int = -1) -> ProduceRequest:
    """The value to each partition of t."""
    data = [PartitionProduceData(index=index, records=memoryview(batch(value))) for index in indexes or (0,)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])


async def produced(client: Client, value: bytes, *indexes: int) -> dict[int, int]:
    """The error code of each partition."""
    response = await client.call(produce(value, *indexes), ProduceResponse, PRODUCE_VERSION)
    return {each.index: each.error_code for each in response.responses[0].partition_responses}
