"""What is written to a client that reads nothing makes its transport ask for a pause, whatever Python it is."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvloop

from ottla.broker.server.network import JoinedWrites, writing_transport

MUCH = [bytes(1 << 20)] * 16


class Writer(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True


async def connected(deaf: socket.socket, end: socket.socket) -> tuple[asyncio.Transport, Writer]:
    deaf.setblocking(False)
    return await asyncio.get_running_loop().connect_accepted_socket(Writer, end)


@pytest.fixture
async def written() -> AsyncIterator[tuple[asyncio.Transport, Writer]]:
    """A transport of asyncio's own loop whose other side reads nothing."""
    deaf, end = socket.socketpair()
    transport, writer = await connected(deaf, end)
    yield transport, writer
    transport.abort()
    deaf.close()


async def test_too_much_that_is_not_read_pauses(written: tuple[asyncio.Transport, Writer]) -> None:
    transport, writer = written

    writing = writing_transport(transport)
    writing.writelines(MUCH)

    assert writer.is_paused
    assert writing.get_write_buffer_size() > 1 << 20


@pytest.mark.parametrize("version", [(3, 12, 0), (3, 12, 8), (3, 13, 0), (3, 13, 1)])
async def test_pieces_are_joined_where_they_would_not_pause(
    written: tuple[asyncio.Transport, Writer], version: tuple[int, int, int]
) -> None:
    transport, writer = written

    writing = writing_transport(transport, version)
    writing.writelines(MUCH)

    assert isinstance(writing, JoinedWrites)
    assert writer.is_paused
    assert writing.get_write_buffer_size() == transport.get_write_buffer_size() > 1 << 20


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 11, 9), (3, 12, 9), (3, 13, 2), (3, 14, 0)])
async def test_pieces_are_written_as_they_are_elsewhere(
    written: tuple[asyncio.Transport, Writer], version: tuple[int, int, int]
) -> None:
    transport, _ = written

    assert writing_transport(transport, version) is transport


def test_transports_of_uvloop_are_as_they_are() -> None:
    async def written_by_uvloop() -> None:
        deaf, end = socket.socketpair()
        transport, writer = await connected(deaf, end)
        writing = writing_transport(transport, (3, 12, 0))
        writing.writelines(MUCH)
        assert writing is transport
        assert writer.is_paused
        transport.abort()
        deaf.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(written_by_uvloop())
