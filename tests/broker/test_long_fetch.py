"""A fetch of hundreds of partitions reads and watches some of them in each step of the loop, and misses nothing."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers import fetch as handler
from ottla.broker.replicas import long_fetch
from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.broker.runtime import ITEMS_PER_SLICE, next_step
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.storage.files import OsFile
from tests.broker.test_long_requests import CallsInStep
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

COUNT = 5
"""Partitions of the topic, in slices of two."""
VERSION = 11


@pytest.fixture
def slices_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "ITEMS_PER_SLICE", 2)
    monkeypatch.setattr(handler, "ONE_SLICE_BYTES", 0)
    monkeypatch.setattr(long_fetch, "ITEMS_PER_SLICE", 2)


def long_request(**fields: int) -> FetchRequest:
    request = fetch_request("t", **fields)
    request.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10_000) for index in range(COUNT)
    ]
    return request


def found_in(response: FetchResponse) -> dict[int, list[bytes | None]]:
    """The values of partitions that have records."""
    partitions = response.responses[0].partitions
    return {each.partition_index: values_of(each.records) for each in partitions if each.records}


async def test_long_fetch_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * ITEMS_PER_SLICE + 1
    named = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(count)]
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)
        await produce(client, "t", b"a", index=1)
        calls = CallsInStep(monkeypatch, DelayedFetch, "_read")

        response = await client.call(FetchRequest(topics=[FetchTopic(topic="t", partitions=named)]), FetchResponse, 11)

    assert 0 < calls.most <= ITEMS_PER_SLICE
    partitions = response.responses[0].partitions
    assert [each.partition_index for each in partitions] == list(range(count))
    assert [each.error_code for each in partitions] == [0, 0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (count - 2)
    assert found_in(response) == {1: [b"a"]}


@pytest.mark.usefixtures("slices_of_two")
async def test_long_fetch_of_a_session_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that names nothing is short, and the session has hundreds of partitions."""
    monkeypatch.setattr(handler, "ONE_SLICE_BYTES", 4096)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)
        opened = await client.call(long_request(session_epoch=0), FetchResponse, VERSION)
        await produce(client, "t", b"a", index=3)
        calls = CallsInStep(monkeypatch, DelayedFetch, "_read")
        again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1)

        response = await client.call(again, FetchResponse, VERSION)

    assert 0 < calls.most <= 2
    assert len(opened.responses[0].partitions) == COUNT
    assert [each.partition_index for each in response.responses[0].partitions] == [3]
    assert found_in(response) == {3: [b"a"]}


@pytest.mark.usefixtures("slices_of_two")
@pytest.mark.parametrize("index", range(COUNT))
async def test_long_fetch_waits_for_records_of_any_partition(tmp_path: Path, index: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t", COUNT)
        size = len(batch(b"a"))
        reader.send(long_request(max_wait_ms=60_000, min_bytes=2 * size), VERSION)
        await until(broker, lambda: broker.replicas.delayed_fetch.watched == COUNT)

        await produce(writer, "t", b"a", index=0)
        assert len(broker.replicas.delayed_fetch) == 1
        await produce(writer, "t", b"b", index=index)
        response = await reader.receive(FetchResponse, VERSION)

    assert found_in(response) == ({0: [b"a", b"b"]} if index == 0 else {0: [b"a"], index: [b"b"]})
    assert len(broker.replicas.delayed_fetch) == broker.replicas.delayed_fetch.watched == 0


@pytest.mark.usefixtures("slices_of_two")
@pytest.mark.parametrize("step", range(6))
async def test_append_between_two_slices_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whether the partition that gets a record has been read by then, and is watched, or not."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)
        between_slices(monkeypatch, step, lambda: append(broker, 0))

        response = await client.call(long_request(max_wait_ms=60_000), FetchResponse, VERSION)

    assert found_in(response) == {0: [b"a"]}


@pytest.mark.usefixtures("slices_of_two")
async def test_long_fetch_ends_with_max_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)

        response = await client.call(long_request(max_wait_ms=20), FetchResponse, VERSION)

    assert [each.error_code for each in response.responses[0].partitions] == [0] * COUNT


@pytest.mark.usefixtures("slices_of_two")
async def test_long_fetch_of_a_client_that_goes_is_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t", COUNT)
            client.send(long_request(max_wait_ms=60_000, session_epoch=0), VERSION)
            await parked_fetch(broker)

        await until(broker, lambda: not broker.server.connections)
        await until(broker, lambda: not [each for each in broker.runtime._spawned if each.get_name() == "Fetch"])

        assert len(broker.replicas.delayed_fetch) == broker.replicas.delayed_fetch.watched == 0
        assert len(broker.fetch_sessions) == 0
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, DelayedFetch)]


@pytest.mark.usefixtures("slices_of_two")
async def test_long_fetch_reads_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)
        for index in (1, 4):
            await produce(client, "t", b"%d" % index, index=index)
        with monkeypatch.context() as context:
            context.setattr(OsFile, "readinto_nowait", not_in_memory)
            response = await client.call(long_request(max_wait_ms=60_000), FetchResponse, VERSION)

    assert found_in(response) == {1: [b"1"], 4: [b"4"]}


@pytest.mark.usefixtures("slices_of_two")
async def test_next_request_does_not_overtake_a_long_fetch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)
        client.send(long_request(), VERSION)
        client.send(fetch_request("t", index=2), VERSION)

        first = await client.receive(FetchResponse, VERSION)
        second = await client.receive(FetchResponse, VERSION)

    assert [len(each.responses[0].partitions) for each in (first, second)] == [COUNT, 1]


@pytest.mark.usefixtures("slices_of_two")
async def test_records_of_a_slice_count_as_held_until_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many such fetches at once would take what no limit knows of."""
    held: list[int] = []
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", COUNT)
        await produce(client, "t", bytes(300_000), index=0)
        between_slices(monkeypatch, 0, lambda: held.append(broker.server.memory.held_bytes))

        response = await client.call(long_request(), FetchResponse, VERSION)

        assert held[0] >= 300_000
        assert found_in(response) == {0: [bytes(300_000)]}
        await until(broker, lambda: broker.server.memory.held_bytes == 0)


def not_in_memory(*_: object) -> int:
    raise BlockingIOError


def append(broker: Broker, index: int) -> None:
    broker.replicas.append_records("t", index, memoryview(bytearray(batch(b"a"))), lambda *_: None)


def between_slices(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]) -> None:
    """Runs `action` when the fetch has come to that step."""
    steps = iter(range(100))

    async def step() -> None:
        await next_step()
        if next(steps) == number:
            action()

    monkeypatch.setattr(long_fetch, "next_step", step)
