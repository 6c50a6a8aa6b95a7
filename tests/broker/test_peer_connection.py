"""A connection to another broker: answers, and everything that can come instead."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server.network import SocketOptions
from ottla.broker.server.peer_connection import (
    KEPT_BUFFER_MAX,
    RECEIVED_AT_ONCE,
    SMALL_ANSWERS_MAX,
    SMALLEST_BUFFER,
    Peer,
    PeerError,
)
from ottla.protocol.address import Address
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tests.broker.wire import running_broker, until
from tests.fakes.frames import response_frame

Answer = Callable[[int], bytes]


def fetch() -> FetchRequest:
    return FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=2))


def answer_of(size: int, correlation_id: int) -> bytes:
    partition = PartitionData(partition_index=0, records=memoryview(b"x" * size))
    topic = FetchableTopicResponse(topic_id=bytes(16), partitions=[partition])
    return response_frame(FetchResponse(responses=[topic]), 17, correlation_id)


def records_of(response: Any) -> bytes:
    return bytes(response.responses[0].partitions[0].records)


@asynccontextmanager
async def peer_that(tmp_path: Path, *answers: Answer, **settings: object) -> AsyncIterator[Peer]:
    """Connected to a server that answers its requests so, one after the other, and then nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            writer.write(answer(int.from_bytes(frame[4:8], "big")))
            await writer.drain()
        await reader.read()
        writer.close()

    async with running_broker(tmp_path, **settings) as broker, serving(serve) as address:
        peer = Peer(broker.runtime, broker.network, address, "broker-1-fetcher-0", SocketOptions(), None)
        await peer.connect()
        try:
            yield peer
        finally:
            peer.close()


@asynccontextmanager
async def serving(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[Address]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield Address(host, port)
    finally:
        server.close()


async def test_answers_of_all_sizes_come_one_after_the_other(tmp_path: Path) -> None:
    sizes = [0, 5, 70_000, 2 * KEPT_BUFFER_MAX, 3, 65_536]
    answers = [lambda number, size=size: answer_of(size, number) for size in sizes]
    async with peer_that(tmp_path, *answers) as peer:
        for size in sizes:
            assert records_of(await peer.ask(fetch())) == b"x" * size


async def test_a_large_buffer_is_let_go_after_many_small_answers(tmp_path: Path) -> None:
    """A follower that has caught up would hold megabytes for each of its fetchers."""
    sizes = [KEPT_BUFFER_MAX // 2, *[5] * (SMALL_ANSWERS_MAX + 2)]
    answers = [lambda number, size=size: answer_of(size, number) for size in sizes]
    async with peer_that(tmp_path, *answers) as peer:
        held = []
        for _ in sizes:
            await peer.ask(fetch())
            held.append(len(peer._buffer))

        assert min(held[:-1]) > KEPT_BUFFER_MAX // 2
        assert held[-1] == SMALLEST_BUFFER


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the loop is woken for every piece")
async def test_the_loop_is_woken_late_only_within_a_long_answer(tmp_path: Path) -> None:
    half_way = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        answer = answer_of(3 * RECEIVED_AT_ONCE, int.from_bytes(frame[4:8], "big"))
        writer.write(answer[: RECEIVED_AT_ONCE // 2])
        await half_way.wait()
        writer.write(answer[RECEIVED_AT_ONCE // 2 :])
        await reader.read()
        writer.close()

    async with running_broker(tmp_path) as broker, serving(serve) as address:
        peer = Peer(broker.runtime, broker.network, address, "broker-1-fetcher-0", SocketOptions(), None)
        await peer.connect()
        assert peer._transport is not None
        tcp = peer._transport.get_extra_info("socket")
        asking = asyncio.ensure_future(peer.ask(fetch()))

        await until(broker, lambda: tcp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == RECEIVED_AT_ONCE)
        half_way.set()

        assert len(records_of(await asking)) == 3 * RECEIVED_AT_ONCE
        assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
        peer.close()


async def test_records_stay_in_receive_buffer_until_next_request(tmp_path: Path) -> None:
    async with peer_that(tmp_path, lambda number: answer_of(100, number)) as peer:
        response = await peer.ask(fetch())

        assert response.responses[0].partitions[0].records.obj is peer._buffer.obj


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda number: answer_of(3, number + 1), "a response to request 2 where 1 was next"),
        (lambda number: answer_of(3, number) + b"x", "bytes came that were not asked for"),
        (lambda number: answer_of(3, number)[:-2] + b"\xff\xff", "malformed response to FetchRequest"),
        (lambda number: b"\x7f\xff\xff\xff", "an answer of 2147483647 bytes"),
        (lambda number: b"\xff\xff\xff\xff", "an answer of -1 bytes"),
    ],
    ids=["another's", "too much", "malformed", "too large", "negative"],
)
async def test_what_is_no_answer_ends_the_connection(tmp_path: Path, answer: Answer, why: str) -> None:
    async with peer_that(tmp_path, answer) as peer:
        with pytest.raises(PeerError, match=why):
            await peer.ask(fetch())
        with pytest.raises(PeerError, match="the connection is closed"):
            await peer.ask(fetch())


async def test_an_answer_is_waited_for_as_long_as_is_configured(tmp_path: Path) -> None:
    settings = {"replica_socket_timeout_ms": 60, "replica_fetch_wait_max_ms": 50}
    async with peer_that(tmp_path, lambda number: answer_of(3, number)[:7], **settings) as peer:
        with pytest.raises(PeerError, match="no answer within 60 ms"):
            await peer.ask(fetch())


async def test_a_connection_that_breaks_ends_the_wait(tmp_path: Path) -> None:
    async with peer_that(tmp_path) as peer:
        asking = asyncio.ensure_future(peer.ask(fetch()))
        await asyncio.sleep(0)
        peer.close()

        with pytest.raises(PeerError, match="the connection was lost"):
            await asking


async def test_address_without_a_listener_is_one_sentence(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        with pytest.raises(PeerError, match="no connection: Connect call failed"):
            await Peer(broker.runtime, broker.network, Address("127.0.0.1", 1), "c", SocketOptions(), None).connect()
