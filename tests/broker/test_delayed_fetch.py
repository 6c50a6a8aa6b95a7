"""What a parked fetch waits for, and what an append costs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.timer.purgatory import Purgatory
from tests.broker.wire import (
    batch,
    client_of,
    create_topic,
    fetch_request,
    parked_fetch,
    produce,
    running_broker,
    until,
    values_of,
)

BATCH_BYTES = len(batch(b"a"))
ENDLESS_MS = 600_000


def fetch_many(partitions: int, *, min_bytes: int, offset: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=ENDLESS_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetched(response: FetchResponse) -> list[list[bytes | None]]:
    return [values_of(partition.records) for topic in response.responses for partition in topic.partitions]


@contextmanager
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    looks: list[int] = []
    look = DelayedFetch._must_end

    def counting(self: DelayedFetch, partition: object, watch: object) -> bool:
        looks.append(getattr(partition, "index", -1))
        return look(self, partition, watch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(DelayedFetch, "_must_end", counting)
        yield looks


async def test_an_append_is_one_look_for_each_parked_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t", partitions=50)
        reader.send(fetch_many(50, min_bytes=3 * BATCH_BYTES), 11)
        await parked_fetch(broker)

        with counted_looks(monkeypatch) as looks:
            await produce(writer, "t", b"a", index=7)
            await produce(writer, "t", b"b", index=31)

        assert looks == [7, 31]


async def test_bytes_of_all_partitions_count_towards_min_bytes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t", partitions=3)
        await produce(writer, "t", b"a", index=2)
        reader.send(fetch_many(3, min_bytes=4 * BATCH_BYTES), 11)
        await parked_fetch(broker)

        for value in (b"b", b"c"):
            await produce(writer, "t", value, index=0)
            assert len(broker.replicas.delayed_fetch) == 1, "what was counted is not counted again"
        await produce(writer, "t", b"d", index=2)
        response = await reader.receive(FetchResponse, 11)

    assert fetched(response) == [[b"b", b"c"], [], [b"a", b"d"]]


async def test_a_lagging_reader_does_not_wait_beyond_a_roll(tmp_path: Path) -> None:
    value = bytes(600_000)
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t", segment_bytes=1 << 20)
        await produce(writer, "t", value)
        reader.send(fetch_many(1, min_bytes=1 << 30), 11)
        await parked_fetch(broker)

        await produce(writer, "t", value)
        response = await reader.receive(FetchResponse, 11)

    assert fetched(response) == [[value]]


async def test_fetch_whose_bytes_cannot_be_counted_waits_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index could not be read. What is wrong says the response."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client, client_of(broker) as producer:
        await create_topic(client, "t")
        client.send(fetch_request("t", min_bytes=1_000_000, max_wait_ms=30_000), 11)
        await until(broker, lambda: len(broker.replicas.delayed_fetch) == 1)

        def refuse(*_: int) -> int:
            raise KafkaStorageError("too many files are open")

        monkeypatch.setattr(broker.replicas.partition("t", 0).log, "bytes_between", refuse)
        await produce(producer, "t", b"a")
        response = await client.receive(FetchResponse, 11)

    assert values_of(response.responses[0].partitions[0].records) == [b"a"]


async def test_too_many_parked_partitions_end_the_oldest_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        _bound_parked_partitions(broker, 100)
        async with client_of(broker) as first, client_of(broker) as second, client_of(broker) as third:
            await create_topic(first, "t", partitions=50)
            for number, client in enumerate((first, second), start=1):
                client.send(fetch_many(50, min_bytes=1), 11)
                await until(broker, lambda number=number: len(broker.replicas.delayed_fetch) == number)  # type: ignore[misc]
            third.send(fetch_many(1, min_bytes=1), 11)

            assert fetched(await first.receive(FetchResponse, 11)) == [[]] * 50
            assert broker.replicas.delayed_fetch.watched == 51
            await produce(first, "t", b"a", index=0)
            assert fetched(await third.receive(FetchResponse, 11)) == [[b"a"]]


async def test_more_partitions_than_may_be_parked_are_answered_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        _bound_parked_partitions(broker, 49)
        await create_topic(client, "t", partitions=50)

        response = await client.call(fetch_many(50, min_bytes=1), FetchResponse, 11)

        assert fetched(response) == [[]] * 50
        assert (len(broker.replicas.delayed_fetch), broker.replicas.delayed_fetch.watched) == (0, 0)


@pytest.mark.parametrize("version", [11, 13])
async def test_what_is_unknown_lets_the_rest_of_a_fetch_wait(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t")
        topic_id = broker.replicas.partition("t", 0).topic_id
        known = FetchTopic(topic="t", topic_id=topic_id, partitions=[_whole(0), _whole(9)])
        unknown = FetchTopic(topic="nowhere", topic_id=b"\1" * 16, partitions=[_whole(0)])
        reader.send(FetchRequest(max_wait_ms=ENDLESS_MS, min_bytes=1, topics=[unknown, known]), version)
        await parked_fetch(broker)

        await produce(writer, "t", b"a")
        response = await reader.receive(FetchResponse, version)

    codes = [partition.error_code for topic in response.responses for partition in topic.partitions]
    no_topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 11 else ErrorCode.UNKNOWN_TOPIC_ID
    assert codes == [no_topic, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetched(response) == [[], [b"a"], []]


async def test_fetch_of_nothing_but_unknown_partitions_does_not_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        request = FetchRequest(
            max_wait_ms=ENDLESS_MS, min_bytes=1, topics=[FetchTopic(topic="nowhere", partitions=[_whole(0)])]
        )

        response = await client.call(request, FetchResponse, 11)

    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _whole(index: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)


def _bound_parked_partitions(broker: Broker, watched_max: int) -> None:
    broker.replicas.delayed_fetch = broker.replicas._appends.delayed_fetch = Purgatory(
        "fetch", broker.runtime.wheel, watched_max=watched_max
    )
