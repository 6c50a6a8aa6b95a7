"""Frames, order, holds and limits of connections."""

import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server import turns
from ottla.broker.server.connection import Connection
from ottla.broker.server.receive_buffers import KEPT_WHILE_HELD
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceResponse
from tests.broker.wire import (
    Client,
    auto_created,
    batch,
    client_of,
    create_topic,
    fetch,
    fetch_request,
    parked_fetch,
    produce,
    produce_request,
    running_broker,
    turn,
    values_of,
)
from tests.fakes.frames import build_request_frame

ASK = ApiVersionsRequest()


@pytest.fixture(autouse=True)
def endless_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a connection handles in an event is here what it has received, however slow the machine is."""
    monkeypatch.setattr(turns, "TURN_NS", 1 << 30)


async def test_frames_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]

        for byte in build_request_frame(ASK, 0, 1, "c") * 3:
            feed(connection, bytes([byte]))
        connection.connection_lost(None)

    assert len(transport.frames) == 3


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 13, 14, 15, 20])
async def test_frames_may_be_cut_and_joined_anywhere(tmp_path: Path, cut: int) -> None:
    async with running_broker(tmp_path) as broker:
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        data = b"".join(build_request_frame(ASK, 0, number, "c") for number in range(5))

        feed(connection, data[:cut])
        feed(connection, data[cut:])
        connection.connection_lost(None)

    assert [struct.unpack_from(">i", frame, 4)[0] for frame in transport.frames] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("api", "version"), [(18, 0), (18, 2), (18, 99), (16, 0), (16, 2)])
async def test_client_id_reaches_no_bytes_behind_its_frame(tmp_path: Path, api: int, version: int) -> None:
    """They are what another connection has sent: requests without a body would be served with them as client id."""
    async with running_broker(tmp_path, ottla_request_log_sample=1) as broker:
        other, connection = (Connection(broker.server, "PLAINTEXT") for _ in range(2))
        transport = FakeTransport()
        other.connection_made(FakeTransport())  # type: ignore[arg-type]
        connection.connection_made(transport)  # type: ignore[arg-type]

        feed(other, build_request_frame(ASK, 0, 1, "the password of somebody else"))
        feed(connection, struct.pack(">ihhih", 10, api, version, 2, 200))

        is_closed = connection.is_closed
        for each in (other, connection):
            each.connection_lost(None)

    log: Any = broker.runtime.log
    logged = [fields["client_id"] for event, fields in log.events if event == "request"]
    assert is_closed
    assert (connection.client, transport.frames, logged) == (None, [], ["the password of somebody else"])


async def test_a_parked_request_holds_back_those_behind_it(tmp_path: Path) -> None:
    """§1.4: answers keep the order, and nothing is handled while one waits."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client, client_of(broker) as other:
        await create_topic(client, "t")
        waiting = client.send(fetch_request("t", max_wait_ms=5_000), 11)
        behind = client.send(ASK, 0)
        await parked_fetch(broker)

        await produce(other, "t", b"a")

        assert (await client.receive_frame())[0] == waiting
        assert (await client.receive_frame())[0] == behind


async def test_pipelined_bytes_behind_a_parked_request_are_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await auto_created(broker, "t")
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        feed(connection, build_request_frame(fetch_request("t", max_wait_ms=60_000), 11, 1, "c"))

        frames = build_request_frame(ASK, 0, 2, "c") * 1000
        taken = 0
        while not transport.reading_paused:
            taken += feed(connection, frames)

        assert taken <= 8 * KEPT_WHILE_HELD
        assert transport.frames == []
        connection.connection_lost(None)
        assert len(broker.replicas.delayed_fetch) == 0, "the wait ends with the connection"


async def test_a_client_that_does_not_read_is_not_served_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", bytes(900_000))
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport(high_water=100_000)
        connection.connection_made(transport)  # type: ignore[arg-type]
        transport.protocol = connection

        frame = build_request_frame(fetch_request("t"), 11, 1, "c")
        feed(connection, frame * 100)

        assert transport.written_bytes < 4_000_000, "two answers at most, not a hundred"
        answered = transport.answers
        while transport.answers < 100:
            transport.drain()
            await turn(broker)
        assert 0 < answered < 4
        connection.connection_lost(None)


async def test_request_sees_earlier_produce_on_its_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        latest = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        )
        frames = [
            build_request_frame(produce_request("t", batch(b"a", b"b")), 9, 1, "c"),
            build_request_frame(latest, 2, 2, "c"),
            build_request_frame(fetch_request("t"), 11, 3, "c"),
        ]
        client.writer.write(b"".join(frames))

        await client.receive(ProduceResponse, 9)
        offsets = await client.receive(ListOffsetsResponse, 2)
        fetched = await client.receive(FetchResponse, 11)

    assert offsets.topics[0].partitions[0].offset == 2
    assert values_of(fetched.responses[0].partitions[0].records) == [b"a", b"b"]


async def test_many_produce_requests_in_one_read_event_are_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        await auto_created(broker, "t")
        writes: list[int] = []
        file = broker.replicas.partition("t", 0).log.segments.active.file
        monkeypatch.setattr(type(file), "writev", counting(type(file).writev, writes))
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]

        feed(connection, build_request_frame(produce_request("t", batch(b"a")), 9, 1, "c") * 50)
        connection.connection_lost(None)

        assert writes == [50]
        assert transport.writes == 1
        assert len(transport.frames) == 50


async def test_error_outside_a_handler_flushes_appends_and_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read next takes the place of the records: an append that was left queued would write that."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await auto_created(broker, "t")
        connection = Connection(broker.server, "PLAINTEXT")
        connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        resolve = broker.server.dispatcher.resolve

        def fail(api_and_version: int) -> object:
            if api_and_version >> 16 == 999:
                raise RuntimeError("not an error of a request")
            return resolve(api_and_version)

        monkeypatch.setattr(broker.server.dispatcher, "resolve", fail)
        frame = build_request_frame(produce_request("t", batch(b"a")), 9, 1, "c")
        with suppress(RuntimeError):
            feed(connection, frame + struct.pack(">ihhih", 10, 999, 0, 1, -1))
        is_closed = connection.is_closed
        connection.connection_lost(None)
        other = Connection(broker.server, "PLAINTEXT")
        other.connection_made(FakeTransport())  # type: ignore[arg-type]
        feed(other, build_request_frame(ASK, 0, 1, "c") * 10)
        other.connection_lost(None)
        fetched = await fetch(client, "t")
        events = [event for event, _ in broker.runtime.log.events]  # type: ignore[attr-defined]

    assert is_closed
    assert values_of(fetched.records) == [b"a"]
    assert "unhandled error in a connection" in events


async def test_failed_write_leaves_no_append_of_others_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker:
        await auto_created(broker, "t", "u")
        bad = broker.replicas.partition("t", 0).log
        good = broker.replicas.partition("u", 0).log
        writev = type(bad.segments.active.file).writev

        def fail(self: object, buffers: object) -> object:
            if self is bad.segments.active.file:
                raise RuntimeError("not an error of the disk")
            return writev(self, buffers)  # type: ignore[arg-type]

        monkeypatch.setattr(type(bad.segments.active.file), "writev", fail)
        connection = Connection(broker.server, "PLAINTEXT")
        transport = FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        feed(
            connection,
            b"".join(build_request_frame(produce_request(name, batch(b"a")), 9, 1, "c") for name in ("t", "u")),
        )
        monkeypatch.undo()
        connection.connection_lost(None)

        assert not bad.has_pending_writes
        assert (bad.log_end_offset, good.log_end_offset) == (0, 1)
        assert len(transport.frames) == 2


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    """§1.8."""
    async with running_broker(tmp_path, connections_max_idle_ms=50) as broker, client_of(broker) as client:
        await client.call(ASK, ApiVersionsResponse, 0)

        assert await client.is_closed_by_broker()
        assert broker.log.reasons() == ["idle for 50 ms"]


async def test_a_connection_that_waits_for_its_answer_is_not_idle(tmp_path: Path) -> None:
    async with running_broker(tmp_path, connections_max_idle_ms=30) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        client.send(fetch_request("t", max_wait_ms=200), 11)

        assert (await client.receive(FetchResponse, 11)).error_code == 0


async def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_connections=2) as broker:
        async with client_of(broker) as first, client_of(broker) as second:
            await first.call(ASK, ApiVersionsResponse, 0)
            await second.call(ASK, ApiVersionsResponse, 0)
            third = await Client.connect(broker)
            assert await third.is_closed_by_broker()
            first.close()
            assert await first.is_closed_by_broker()
        async with client_of(broker) as fourth:
            assert (await fourth.call(ASK, ApiVersionsResponse, 0)).error_code == 0


async def test_connections_per_ip_are_limited_unless_overridden(tmp_path: Path) -> None:
    settings = {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": "127.0.0.1:1"}
    async with running_broker(tmp_path, **settings) as broker, client_of(broker) as first:
        await first.call(ASK, ApiVersionsResponse, 0)
        second = await Client.connect(broker)

        assert await second.is_closed_by_broker()


async def test_connections_that_come_too_fast_are_served_later(tmp_path: Path) -> None:
    settings = {"quota_window_num": 2, "max_connection_creation_rate": 20}
    async with running_broker(tmp_path, **settings) as broker:
        started_ms = broker.runtime.clock.now_ms()
        clients = [await Client.connect(broker) for _ in range(40)]

        for client in clients:
            assert (await client.call(ASK, ApiVersionsResponse, 0)).error_code == 0
            client.close()

        assert broker.runtime.clock.now_ms() - started_ms >= 900, (
            "a window's worth comes at once, twenty more wait 50 ms each"
        )


async def test_an_idle_connection_costs_little(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        connections = [Connection(broker.server, "PLAINTEXT") for _ in range(200)]
        for connection in connections:
            connection.connection_made(FakeTransport())  # type: ignore[arg-type]
            feed(connection, build_request_frame(MetadataRequest(topics=[]), 5, 1, "c"))
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        for connection in connections:
            connection.connection_lost(None)

    assert used / 200 < 4096
    assert MetadataResponse.API_KEY == 3


class FakeTransport:
    """What the connection writes to; `high_water` bytes of unread answers pause it."""

    def __init__(self, high_water: int | None = None) -> None:
        self.frames: list[bytes] = []
        self.writes = 0
        self.written_bytes = 0
        self.answers = 0
        self.reading_paused = False
        self.protocol: Connection | None = None
        self._high_water = high_water
        self._unread = 0

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def writelines(self, buffers: list[bytes]) -> None:
        self.writes += 1
        # An answer may come as several buffers; each begins with its size.
        self.frames += [bytes(buffer) for buffer in buffers]
        size = sum(map(len, buffers))
        self.written_bytes += size
        self._unread += size
        self.answers += max(size // 900_000, 1)
        if self._high_water is not None and self._unread > self._high_water:
            assert self.protocol is not None
            self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int) -> None:
        """What a test has said counts."""

    def get_write_buffer_size(self) -> int:
        return self._unread

    def drain(self) -> None:
        if self._unread:
            self._unread = 0
            assert self.protocol is not None
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def close(self) -> None:
        self.reading_paused = True

    def abort(self) -> None:
        self.reading_paused = True


def feed(connection: Connection, data: bytes) -> int:
    """As a transport does: into the buffer the connection gives, as much as fits, until all is there or it is paused.

    Returns how many bytes were taken."""
    position = 0
    while position < len(data):
        buffer = connection.get_buffer(-1)
        piece = data[position : position + buffer.nbytes]
        buffer[: len(piece)] = piece
        position += len(piece)
        del buffer
        connection.buffer_updated(len(piece))
        if getattr(connection.transport, "reading_paused", False):
            break
    return position


def counting(function: object, counts: list[int]) -> object:
    def counted(self: object, buffers: list[bytes]) -> object:
        counts.append(len(buffers))
        return function(self, buffers)  # type: ignore[operator]

    return counted
