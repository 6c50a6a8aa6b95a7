"""The network in front of the real one: plain connections without faults, and what a way does to bytes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.testing.surroundings.link_network import LinkMap
from ottla.testing.surroundings.link_protocol import LinkProtocol
from ottla.testing.surroundings.ways import CLIENTS, Ways

ONE, TWO = 1, 2
WITHIN_S = 20


class End(asyncio.BufferedProtocol):
    """One end of a connection, which remembers what has come."""

    def __init__(self, arrived: "asyncio.Queue[End] | None" = None) -> None:
        """`arrived` gets it when it is connected."""
        self._arrived = arrived
        self.received = bytearray()
        self.transport: Any = None
        self.is_lost = False
        # Smaller than what is sent at once.
        self._buffer = bytearray(3)
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self._arrived is not None:
            self._arrived.put_nowait(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self._news.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._news.set()

    async def has(self, data: bytes) -> None:
        await self._until(lambda: bytes(self.received) == data)

    async def lost(self) -> None:
        await self._until(lambda: self.is_lost)

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._news.clear()
                await self._news.wait()


class World:
    """Broker 2 listens; broker 1 and clients connect to it."""

    def __init__(self) -> None:
        self.ways = Ways()
        self.map = LinkMap(self.ways)
        self.one, self.two = self.map.network_of(ONE), self.map.network_of(TWO)
        self.arrived: asyncio.Queue[End] = asyncio.Queue()
        self._connections: dict[Any, None] = {}
        parts = SimpleNamespace(runtime=SimpleNamespace(node_id=TWO), server=SimpleNamespace(connections={}))
        self._server = parts.server
        self.map.attach(cast("Any", parts))

    async def listen(self) -> None:
        self.listener = await self.two.listen(self._accept, "127.0.0.1", 0, backlog=5)

    def _accept(self) -> End:
        end = End(self.arrived)
        self._server.connections[end] = None
        return end

    async def connect(self) -> tuple[End, End]:
        """Broker 1's end and broker 2's."""
        near = End()
        await self.one.connect(lambda: near, "127.0.0.1", self.listener.port)
        return near, await self._newest()

    async def connect_client(self) -> tuple[End, End]:
        near = End()
        loop = asyncio.get_running_loop()
        await loop.create_connection(cast("Any", lambda: near), "127.0.0.1", self.listener.port)
        return near, await self._newest()

    async def _newest(self) -> End:
        async with asyncio.timeout(WITHIN_S):
            return await self.arrived.get()

    def set(self, source: Any, target: Any, **fields: Any) -> None:
        way = self.ways.altered(source, target)
        for name, value in fields.items():
            setattr(way, name, value)
        self.ways.changed()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.listen()
    yield made
    made.listener.close()


async def test_protocols_are_the_plain_ones_before_and_after(world: World) -> None:
    near, far = await world.connect()
    assert near.transport.get_protocol() is near
    assert far.transport.get_protocol() is far

    world.set(ONE, TWO, is_paused=True)
    assert isinstance(far.transport.get_protocol(), LinkProtocol)
    near.transport.write(b"abcdefgh")
    world.ways.heal()
    await far.has(b"abcdefgh")

    assert near.transport.get_protocol() is near
    assert far.transport.get_protocol() is far


async def test_cut_way_swallows_and_the_other_does_not(world: World) -> None:
    near, far = await world.connect()
    world.set(ONE, TWO, is_cut=True)
    near.transport.write(b"lost")
    far.transport.write(b"seen")

    await near.has(b"seen")
    assert not far.received
    assert not far.is_lost


async def test_connection_that_has_lost_bytes_breaks_when_healed(world: World) -> None:
    near, far = await world.connect()
    intact, _ = await world.connect()
    world.set(ONE, TWO, is_cut=True)
    swallowed = cast("LinkProtocol", far.transport.get_protocol())
    near.transport.write(b"lost")
    # What comes by another way, after it, shows that it has come.
    client, served = await world.connect_client()
    client.transport.write(b"later")
    await served.has(b"later")
    assert swallowed.has_lost

    world.ways.heal(ONE, TWO)

    await near.lost()
    assert not intact.is_lost


async def test_cut_with_reset_breaks_and_refuses(world: World) -> None:
    near, far = await world.connect()
    client, _ = await world.connect_client()
    world.set(ONE, TWO, is_cut=True, resets=True)

    await near.lost()
    await far.lost()
    with pytest.raises(ConnectionRefusedError, match="between 1 and 2 is cut"):
        await world.connect()
    assert not client.is_lost


async def test_connecting_waits_for_a_link_to_heal(world: World) -> None:
    world.set(TWO, ONE, is_cut=True)
    connecting = asyncio.ensure_future(world.connect())
    await asyncio.sleep(0)
    assert not connecting.done()

    world.ways.heal()

    near, far = await connecting
    near.transport.write(b"a")
    await far.has(b"a")


async def test_late_bytes_come_in_order(world: World) -> None:
    near, far = await world.connect()
    loop = asyncio.get_running_loop()
    world.set(ONE, TWO, delay_ms=30)
    near.transport.write(b"ab")
    world.set(ONE, TWO, delay_ms=1)
    near.transport.write(b"cd")

    await far.has(b"abcd")

    world.set(ONE, TWO, bytes_per_s=1000, delay_ms=0)
    near.transport.write(b"e" * 40)
    began = loop.time()
    await far.has(b"abcd" + b"e" * 40)
    assert loop.time() - began >= 0.03


async def test_clients_are_held_apart_from_brokers(world: World) -> None:
    near, far = await world.connect()
    client, served = await world.connect_client()
    world.set(CLIENTS, TWO, is_paused=True)
    client.transport.write(b"waits")
    near.transport.write(b"comes")

    await far.has(b"comes")
    assert not served.received
    world.ways.heal(CLIENTS)
    await served.has(b"waits")


async def test_connection_made_during_a_fault_is_known(world: World) -> None:
    world.set(ONE, TWO, is_paused=True)
    # Connecting waits too.
    connecting = asyncio.ensure_future(world.connect())
    world.set(ONE, TWO, is_paused=False, delay_ms=1)
    near, far = await connecting
    near.transport.write(b"a")
    near.transport.write_eof()

    await far.has(b"a")
    await far.lost()


async def test_stopped_process_reads_when_it_goes_on(world: World) -> None:
    near, far = await world.connect()
    world.ways.stop(TWO)
    near.transport.write(b"later")
    far.transport.write(b"before")
    await near.has(b"before")
    assert not far.received

    world.ways.go_on(TWO)

    await far.has(b"later")
