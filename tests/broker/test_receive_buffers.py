"""Buffers that go round between the loop and its connections, and those of long frames."""

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server.connection import Connection
from ottla.broker.server.receive_buffers import (
    BUFFER_BYTES,
    BUFFERS_MAX,
    KEPT_WHILE_HELD,
    LENT_MAX,
    ReceiveBuffers,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import batch, client_of, create_topic, fetch, produce, produce_request, running_broker, values_of
from tests.fakes.frames import build_request_frame


def test_a_frame_that_fits_stays_where_it_began() -> None:
    buffers = ReceiveBuffers()
    shared = buffers.shared
    shared[100:105] = b"begin"

    lent = buffers.lend(shared, 100, 105, 200_000)

    assert lent is not None
    assert (bytes(lent[:5]), len(lent)) == (b"begin", 200_000)
    assert lent.obj is shared.obj
    assert buffers.shared.obj is not shared.obj


def test_a_frame_that_does_not_fit_behind_its_beginning_is_moved() -> None:
    buffers = ReceiveBuffers()
    shared = buffers.shared
    shared[-5:] = b"begin"

    lent = buffers.lend(shared, BUFFER_BYTES - 5, BUFFER_BYTES, 200_000)

    assert lent is not None
    assert (bytes(lent[:5]), len(lent)) == (b"begin", 200_000)
    assert buffers.shared is shared


def test_only_so_many_are_lent_and_what_came_back_goes_out_again() -> None:
    """I-27."""
    buffers = ReceiveBuffers()
    lent = [buffers.lend(buffers.shared, 0, 4, 100_000) for _ in range(LENT_MAX)]

    assert buffers.lend(buffers.shared, 0, 4, 100_000) is None
    assert lent[0] is not None
    memory = id(lent[0].obj)
    lent[0] = None
    buffers.give_back()
    lent[0] = buffers.lend(buffers.shared, 0, 4, 100_000)

    assert id(buffers.shared.obj) == memory
    assert len({id(view.obj) for view in [*lent, buffers.shared] if view is not None}) == LENT_MAX + 1


def test_what_is_kept_of_a_read_is_not_read_over() -> None:
    buffers = ReceiveBuffers()
    buffers.shared[:4] = b"kept"
    kept = buffers.shared[:4]

    buffers.renew()
    buffers.shared[:4] = b"next"

    assert bytes(kept) == b"kept"


def test_a_buffer_of_which_nothing_is_kept_stays() -> None:
    buffers = ReceiveBuffers()
    memory = id(buffers.shared.obj)
    kept = buffers.shared[:4]
    buffers.renew()
    assert id(buffers.shared.obj) != memory

    del kept
    buffers.renew()

    assert id(buffers.shared.obj) == memory


def test_there_is_always_a_shared_buffer() -> None:
    buffers = ReceiveBuffers()
    kept = []
    for _ in range(BUFFERS_MAX + 2):
        kept.append(buffers.shared[:1])
        buffers.renew()

    assert len({id(view.obj) for view in [*kept, buffers.shared]}) == BUFFERS_MAX + 3
    assert buffers.lend(buffers.shared, 0, 4, 100_000) is None


def test_a_frame_larger_than_a_buffer_gets_none() -> None:
    buffers = ReceiveBuffers()

    assert buffers.lend(buffers.shared, 0, 4, BUFFER_BYTES + 1) is None


async def test_a_frame_larger_than_the_scratch_buffer_is_put_together(tmp_path: Path) -> None:
    value = bytes(range(256)) * 12_000
    async with running_broker(tmp_path, message_max_bytes=4_000_000) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        answer = await produce(client, "t", value)
        fetched = await fetch(client, "t", max_bytes=4_000_000)

    assert answer.error_code == 0
    assert values_of(fetched.records) == [value]


async def test_memory_follows_what_arrived_and_not_what_was_announced(tmp_path: Path) -> None:
    """I-27."""
    async with running_broker(tmp_path) as broker:
        connection = Connection(broker.server, "PLAINTEXT")
        connection.connection_made(FakeTransport())  # type: ignore[arg-type]

        feed(connection, struct.pack(">i", 100 << 20) + bytes(10))

        assert connection.get_buffer(-1).nbytes <= 4096
        for _ in range(10):
            connection.buffer_updated(connection.get_buffer(-1).nbytes)
        received = 10 * 4096
        assert connection.get_buffer(-1).nbytes <= 4 * 1024 * received
        connection.connection_lost(None)


async def test_a_very_long_frame_is_received_where_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I-27, and that nothing is lost where the buffer becomes longer."""
    members = [SyncGroupRequestAssignment(member_id=str(n), assignment=bytes([n]) * 1_000_000) for n in range(9)]
    frame = build_request_frame(SyncGroupRequest(group_id="g", assignments=members), 3, 1, "c")
    requests: list[Any] = []

    def serve(_connection: Connection, _context: object, route: Any, buffer: memoryview, start: int, end: int) -> None:
        requests.append(route.decode(buffer, start, end)[0])

    monkeypatch.setattr(Connection, "_serve", serve)
    async with running_broker(tmp_path) as broker:
        connection, received, most = Connection(broker.server, "PLAINTEXT"), 0, 0.0
        connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        while received < len(frame):
            received += feed(connection, frame[received : received + 100_000])
            most = max(most, broker.server.memory.held_bytes / max(received, KEPT_WHILE_HELD))
        held_at_last = broker.server.memory.held_bytes
        connection.connection_lost(None)

    assert (most <= 4, held_at_last) == (True, 0)
    assert [(each.member_id, bytes(each.assignment)) for each in requests[0].assignments] == [
        (each.member_id, each.assignment) for each in members
    ]


async def test_buffers_of_unfinished_large_frames_are_released(tmp_path: Path) -> None:
    """I-27."""
    async with running_broker(tmp_path) as broker:
        for _ in range(3 * LENT_MAX):
            connection = Connection(broker.server, "PLAINTEXT")
            connection.connection_made(FakeTransport())  # type: ignore[arg-type]
            feed(connection, struct.pack(">i", 1_000_000) + bytes(10))
            assert connection.get_buffer(-1).nbytes == 1_000_000 - 10
            connection.connection_lost(None)


@pytest.mark.parametrize("value_bytes", [70_000, 500_000, 1_000_000])
async def test_large_frames_survive_being_cut_anywhere(tmp_path: Path, value_bytes: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client, client_of(broker) as other:
        await create_topic(client, "t")
        values = [bytes([number]) * value_bytes for number in range(1, 5)]
        for number, value in enumerate(values):
            # Both begin a large frame before either ends it.
            sender = (client, other)[number % 2]
            sender.send(produce_request("t", batch(value)), 9)
        for number in range(len(values)):
            await (client, other)[number % 2].receive_frame()

        fetched = await fetch(client, "t", max_bytes=10_000_000)

    assert sorted(values_of(fetched.records)) == values
