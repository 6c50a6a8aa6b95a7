"""A broker on the test's loop, and a client that speaks bytes to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.protocol.client import parse_response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.record import Record, build_batch, iterate_records
from tests.fakes.frames import build_request_frame

WAIT_S = 10
LOOK_EVERY_MS = 2


class RecordingLog(LazyLog):
    """Keeps events instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def _write(self, level: int, method: str, event: str, fields: dict[str, Any]) -> None:
        self.events.append((event, fields))

    def reasons(self) -> list[str]:
        """Why connections were closed."""
        return [fields["reason"] for event, fields in self.events if event == "connection closed"]


@asynccontextmanager
async def running_broker(data_dir: Path, **settings: object) -> AsyncIterator[Broker]:
    """Settings are Kafka's names with underscores for dots."""
    static = {"group.initial.rebalance.delay.ms": "0", "internal.segment.bytes.min": "1"}
    static |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    broker = Broker(ServerConfig(static), data_dir=data_dir, port=0, log=RecordingLog())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def turn(broker: Broker) -> None:
    """Until the events that the broker has before it now are over."""
    over = broker.runtime.loop.create_future()
    broker.runtime.soon(lambda: over.set_result(None))
    await over


async def until(broker: Broker, condition: Callable[[], bool]) -> None:
    """Until work that the broker does by itself has made the condition true; the broker's own timers look."""
    met = broker.runtime.loop.create_future()

    def look() -> None:
        if condition():
            met.set_result(None)
        elif not met.done():
            broker.runtime.wheel.schedule(broker.runtime.clock.now_ms() + LOOK_EVERY_MS, look)

    look()
    async with asyncio.timeout(WAIT_S):
        await met


async def parked_fetch(broker: Broker) -> None:
    """Until the fetch that was sent waits in the purgatory."""
    await until(broker, lambda: len(broker.replicas.delayed_fetch) == 1)


class Client:
    """One connection. Frames can be sent and received by themselves, or a request and its answer together."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, broker: Broker) -> "Client":
        host, port = broker.bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 24))

    async def call(self, request: Any, response: Any, version: int) -> Any:
        self.send(request, version)
        return await self.receive(response, version)

    def send(self, request: Any, version: int, client_id: str | None = "test") -> int:
        self._correlation_id += 1
        self.writer.write(build_request_frame(request, version, self._correlation_id, client_id))
        return self._correlation_id

    async def receive(self, response: Any, version: int) -> Any:
        payload = await self._receive_payload()
        self.last_correlation_id = int.from_bytes(payload[:4], "big")
        return parse_response(response, version, payload)

    async def receive_frame(self) -> tuple[int, bytes]:
        """Correlation id, and what follows it."""
        payload = await self._receive_payload()
        return int.from_bytes(payload[:4], "big"), payload[4:]

    async def _receive_payload(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream; anything else that arrives is an answer, and False."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[Client]:
    client = await Client.connect(broker)
    try:
        yield client
    finally:
        client.close()


async def create_topic(client: Client, name: str, partitions: int = 1, **configs: object) -> None:
    from ottla.protocol.messages.create_topics import CreatableTopicConfig

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()],
    )
    response = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse, 5)
    assert response.topics[0].error_code == 0, response.topics[0].error_message


async def auto_created(broker: Broker, *names: str) -> dict[str, ErrorCode]:
    """What a client gets that has asked for the metadata of these topics."""
    return dict(await broker.runtime.spawn(broker.auto_topic_creation.create(names), "test"))


def batch(*values: bytes, codec: int = 0, **fields: Any) -> bytes:
    records = [Record(offset=i, timestamp=1_000 + i, key=None, value=value) for i, value in enumerate(values)]
    return bytes(build_batch(records, codec=codec, **fields))


def produce_request(
    topic: str, *records: bytes, acks: int = -1, index: int = 0, timeout_ms: int = 5000
) -> ProduceRequest:
    """One batch per partition, from `index` on."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index + i, records=memoryview(each)) for i, each in enumerate(records)
                ],
            )
        ],
    )


async def produce(client: Client, topic: str, *values: bytes, acks: int = -1, version: int = 9, index: int = 0) -> Any:
    """The answer for the partition."""
    request = produce_request(topic, batch(*values), acks=acks, index=index)
    response = await client.call(request, ProduceResponse, version)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    partition = FetchPartition(
        partition=index, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        **fields,
    )


async def fetch(client: Client, topic: str, offset: int = 0, *, version: int = 11, **fields: Any) -> Any:
    """The answer for the partition."""
    response = await client.call(fetch_request(topic, offset, **fields), FetchResponse, version)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def values_of(records: Any) -> list[bytes | None]:
    """Values of all records in fetched batches."""
    from ottla.protocol.records.batch import iterate_batches

    view = memoryview(bytes(records))
    values: list[bytes | None] = []
    for position, header in iterate_batches(view):
        values += [record.value for record in iterate_records(view[position : position + header.size_bytes])]
    return values
