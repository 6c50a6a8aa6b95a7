"""Fetches that ask for more than a step of the loop may read wait for their turn."""

from pathlib import Path

import pytest

from ottla.broker.replicas import delayed_fetch
from ottla.broker.server import turns as turns_module
from ottla.broker.server.turns import (
    PARTITION_COST_BYTES,
    READ_BYTES_PER_STEP,
    READ_COST_BYTES,
    ReadTurns,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.test_connection import feed
from tests.broker.test_turns import Steps, connected
from tests.broker.wire import (
    batch,
    client_of,
    create_topic,
    produce,
    produce_request,
    running_broker,
    turn,
    until,
    values_of,
)
from tests.fakes.frames import build_request_frame


def test_each_step_begins_with_room_to_read() -> None:
    steps = Steps()
    turns = ReadTurns(steps.soon, steps.now_ns)

    turns.count_read(1, READ_BYTES_PER_STEP - READ_COST_BYTES - PARTITION_COST_BYTES - 1)
    assert turns.may_read
    turns.count_read(1, 0)
    assert not turns.may_read
    steps.step()

    assert turns.may_read


@pytest.mark.parametrize(("partitions", "fetches"), [(1, 52), (8, 22), (64, 4)])
def test_fetches_that_read_nothing_fill_a_step_too(partitions: int, fetches: int) -> None:
    """Some two milliseconds' worth of them, however many partitions each is about."""
    steps, read = Steps(), 0
    turns = ReadTurns(steps.soon, steps.now_ns)

    while turns.may_read:
        turns.count_read(partitions, 0)
        read += 1

    steps.step()
    assert (read, turns.may_read) == (fetches, True)


def test_no_fetch_reads_before_those_that_wait() -> None:
    steps = Steps()
    turns = ReadTurns(steps.soon, steps.now_ns)

    turns.wait(lambda: None)
    assert not turns.may_read
    steps.step()

    assert turns.may_read


def allow_one_read_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "READ_BYTES_PER_STEP", 1)
    monkeypatch.setattr(turns_module, "LITTLE_READ_BYTES", 1)


def fetch_all(partitions: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    return FetchRequest(max_bytes=1 << 30, topics=[FetchTopic(topic="t", partitions=wanted)])


async def test_fetches_beyond_what_a_step_may_read_wait_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_one_read_in_a_step(monkeypatch)
    async with running_broker(tmp_path) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t")
            await produce(client, "t", b"a")
        peers = [connected(broker) for _ in range(3)]
        await turn(broker)

        for connection, _ in peers:
            feed(connection, build_request_frame(fetch_all(1), 11, 1, "c"))

        assert [bool(transport.frames) for _, transport in peers] == [True, False, False]
        peers[1][0].connection_lost(None)
        await until(broker, lambda: bool(peers[2][1].frames))
        assert not len(broker.parts.read_turns)
        assert peers[1][1].frames == []
        for connection, _ in (peers[0], peers[2]):
            connection.connection_lost(None)


async def test_fetch_with_too_little_parks_after_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = fetch_all(1)
        request.max_wait_ms, request.min_bytes = 60_000, 1
        monkeypatch.setattr(type(broker.parts.read_turns), "may_read", False)
        async with client_of(broker) as reader:
            reader.send(request, 11)
            await until(broker, lambda: len(broker.replicas.delayed_fetch) == 1)

            await produce(client, "t", b"a")
            answer = await reader.receive(FetchResponse, 11)

    assert values_of(answer.responses[0].partitions[0].records) == [b"a"]


async def test_fetches_that_an_append_ends_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = fetch_all(1)
        request.max_wait_ms, request.min_bytes = 60_000, 1
        monkeypatch.setattr(turns_module, "LITTLE_READ_BYTES", 1)
        peers = [connected(broker) for _ in range(5)]
        for connection, _ in peers:
            feed(connection, build_request_frame(request, 11, 1, "c"))
        assert len(broker.replicas.delayed_fetch) == 5
        await turn(broker)
        monkeypatch.setattr(turns_module, "READ_BYTES_PER_STEP", 1)
        answered: list[int] = []
        writer, _ = connected(broker)

        feed(writer, build_request_frame(produce_request("t", batch(b"a")), 9, 1, "c"))
        answered.append(sum(bool(transport.frames) for _, transport in peers))
        peers[3][0].connection_lost(None)
        await until(broker, lambda: not len(broker.parts.read_turns))

        assert answered == [1]
        assert [bool(transport.frames) for _, transport in peers] == [True, True, True, False, True]
        for connection, _ in (*peers[:3], peers[4]):
            connection.connection_lost(None)
        writer.connection_lost(None)


async def test_a_response_to_a_consumer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "FETCH_BYTES_MAX", 1000)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 4)
        for index in range(4):
            await produce(client, "t", bytes(400), index=index)

        answer = await client.call(fetch_all(4), FetchResponse, 11)

    lengths = [len(bytes(each.records)) for each in answer.responses[0].partitions]
    assert [bool(length) for length in lengths] == [True, True, False, False]
