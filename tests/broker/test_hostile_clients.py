"""Clients that ask for much and read nothing, on real sockets: what a broker keeps for them is bounded."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.server import socket_server as server
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_memory import ConnectionMemory
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.response_queue import RESPONSE_BYTES_MAX
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.replication.fetch_session_cache import DETACHED_MS, SESSION_BYTES_MAX
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import RecordingLog, client_of, create_topic, produce, running_broker, until
from tests.fakes.frames import build_request_frame

PARTITIONS = 200
ASK_ALL = build_request_frame(MetadataRequest(topics=None), 1, 7, None)
ASK = ApiVersionsRequest()
UNKNOWN_API = struct.pack(">ihhih", 10, 999, 0, 1, -1)
BATCH_BYTES = 900_000


@asynccontextmanager
async def deaf_client(broker: Broker) -> AsyncIterator[socket.socket]:
    """Sends, and reads only what a test reads; the system keeps little for it."""
    host, port = broker.bootstrap.rsplit(":", 1)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    try:
        yield client
    finally:
        client.close()


def unread_bytes(connection: Connection) -> int:
    assert connection.transport is not None
    return connection.transport.get_write_buffer_size()


def only_connection(broker: Broker) -> Connection:
    (connection,) = broker.server.connections
    return connection


def is_held(connection: Connection) -> bool:
    return unread_bytes(connection) > 0


async def test_pipelined_responses_that_are_not_read_are_not_built(tmp_path: Path) -> None:
    requests = 10_000
    async with running_broker(tmp_path) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "wide", PARTITIONS)
        await until(broker, lambda: not broker.server.connections)
        async with deaf_client(broker) as hostile:
            loop = asyncio.get_running_loop()
            sending = loop.create_task(loop.sock_sendall(hostile, ASK_ALL * requests))
            await until(broker, lambda: bool(broker.server.connections) and is_held(only_connection(broker)))
            connection = only_connection(broker)

            assert unread_bytes(connection) < 2 * RESPONSE_BYTES_MAX

            received, left = await loop.sock_recv(hostile, 65536), requests
            most = 0
            while left:
                while len(received) >= 4 and len(received) >= (end := 4 + struct.unpack_from(">i", received)[0]):
                    received, left = received[end:], left - 1
                if left:
                    received += await loop.sock_recv(hostile, 1 << 20)
                    most = max(most, unread_bytes(connection))
            await sending

    assert most < 2 * RESPONSE_BYTES_MAX, "nor are they while it reads slowly"


async def test_answers_behind_a_parked_request_are_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "wide", PARTITIONS)
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        parked = _parked_produce(broker, connection)
        answer_bytes = PARTITIONS * 26

        feed(connection, ASK_ALL * 60)

        await until(broker, lambda: connection._responses.waiting_bytes >= RESPONSE_BYTES_MAX)
        kept = connection._responses.waiting_bytes
        assert kept < RESPONSE_BYTES_MAX + 2 * answer_bytes
        assert transport.frames == []
        parked.complete(ProduceResponse())
        await until(broker, lambda: len(transport.frames) == 61)
        assert connection._responses.waiting_bytes == 0
        connection.connection_lost(None)


def _parked_produce(broker: Broker, connection: Connection) -> RequestContext:
    """As one that waits for followers: requests behind it are handled."""
    context = RequestContext(connection)
    route = broker.server.dispatcher.resolve(ProduceRequest.API_KEY << 16 | 9)
    assert route is not None
    context.route = route
    context.park(mutes=False)
    return context


def _fetch_all(topic: str, partitions: int) -> bytes:
    request = FetchRequest(
        max_bytes=1 << 30,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(partitions)
                ],
            )
        ],
    )
    return build_request_frame(request, 4, 1, None)


async def test_fetch_answers_share_a_bounded_memory(tmp_path: Path) -> None:
    room = 4 * BATCH_BYTES
    async with running_broker(tmp_path, socket_send_buffer_bytes=65_536) as broker, client_of(broker) as client:
        broker.server.memory = ConnectionMemory(bytes_max=1 << 30, fetch_room_bytes=room)
        await create_topic(client, "big", 8)
        for index in range(8):
            assert (await produce(client, "big", bytes(BATCH_BYTES), index=index)).error_code == 0
        loop = asyncio.get_running_loop()
        async with deaf_client(broker) as first, deaf_client(broker) as second, deaf_client(broker) as third:
            for number, hostile in enumerate((first, second, third), start=1):
                await loop.sock_sendall(hostile, _fetch_all("big", 8))
                await until(broker, lambda number=number: len(broker.server.memory) == number)  # type: ignore[misc]

            assert broker.server.memory.held_bytes < room + 3 * (BATCH_BYTES + 100_000)
        await until(broker, lambda: broker.server.memory.held_bytes == 0)


async def test_slowest_reader_is_aborted_when_memory_is_full(tmp_path: Path) -> None:
    async with running_broker(tmp_path, socket_send_buffer_bytes=65_536) as broker, client_of(broker) as client:
        broker.server.memory = ConnectionMemory(bytes_max=4 * BATCH_BYTES, fetch_room_bytes=1 << 30)
        await create_topic(client, "big", 3)
        for index in range(3):
            await produce(client, "big", bytes(BATCH_BYTES), index=index)
        loop = asyncio.get_running_loop()
        async with deaf_client(broker) as first, deaf_client(broker) as second:
            await loop.sock_sendall(first, _fetch_all("big", 3))
            await until(broker, lambda: len(broker.server.memory) == 1)
            await loop.sock_sendall(second, _fetch_all("big", 3))
            await until(broker, lambda: len(broker.server.connections) == 2)

            assert isinstance(broker.log, RecordingLog)
            assert broker.log.reasons() == ["its client is too slow while connections hold too much memory"]
            assert 0 < broker.server.memory.held_bytes <= 3 * BATCH_BYTES + 100_000
            assert (await client.call(ASK, ApiVersionsResponse, 0)).error_code == 0


async def _fetch_without_reading(broker: Broker, hostile: socket.socket, *behind: bytes) -> None:
    """Behind the answer, which fits no socket, comes what follows in the same read event."""
    await asyncio.get_running_loop().sock_sendall(hostile, _fetch_all("big", 1) + b"".join(behind))
    await until(broker, lambda: broker.server.memory.held_bytes > 0)


@pytest.mark.parametrize("way", ["idle", "malformed", "half closed"])
async def test_closed_connection_of_a_client_that_reads_nothing_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its memory, its descriptor and its place among `max.connections` are free again."""
    monkeypatch.setattr(server, "CLOSE_TIMEOUT_MS", 20)
    settings = {"socket_send_buffer_bytes": 8192, "max_connections": 1}
    settings |= {"connections_max_idle_ms": 50} if way == "idle" else {}
    async with running_broker(tmp_path, **settings) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "big")
            await produce(client, "big", bytes(240_000))
        await until(broker, lambda: not broker.server.connections)
        async with deaf_client(broker) as hostile:
            await _fetch_without_reading(broker, hostile, *([UNKNOWN_API] if way == "malformed" else []))
            if way == "half closed":
                hostile.shutdown(socket.SHUT_WR)

            await until(broker, lambda: not broker.server.connections)

            assert broker.server.memory.held_bytes == 0
            async with client_of(broker) as other:
                assert (await other.call(ASK, ApiVersionsResponse, 0)).error_code == 0


async def test_fetch_sessions_of_lost_connections_are_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        sessions = broker.fetch_sessions
        for number in range(3):
            async with client_of(broker) as client:
                wanted = [FetchPartition(partition=index, fetch_offset=0) for index in range(30_000 + 20_000 * number)]
                request = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="unknown", partitions=wanted)])
                response = await client.call(request, FetchResponse, 7)
                assert (response.session_id != 0) is (number == 0), "one of too many partitions is not kept"
            await until(broker, lambda: not broker.server.connections)
        assert 0 < sessions.consumers_bytes <= SESSION_BYTES_MAX
        dropped = broker.server._sessions_timer
        assert dropped is not None
        assert dropped.deadline_ms - broker.runtime.clock.now_ms() <= DETACHED_MS

        sessions.drop_detached(dropped.deadline_ms)

        assert (len(sessions), sessions.consumers_bytes) == (0, 0)
    assert len(broker.runtime.wheel) == 0, "a broker that has stopped has no timers"
