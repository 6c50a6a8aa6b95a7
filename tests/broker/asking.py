"""A broker on the test's own loop, and a client that speaks single messages with it over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.protocol.client import SIZE_BYTES, WireClient

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "internal.segment.bytes.min": "1",
}


class Client:
    """One connection: requests are answered in order, `send` without waiting and `ask` with."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = WireClient("tester")

    async def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return await self.answer()

    def send(self, request: Any, version: int) -> None:
        self._writer.write(self._wire.send(request, version))

    async def answer(self) -> Any:
        size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
        return self._wire.receive(await self._reader.readexactly(size))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Asking:
    """A running broker and how to talk to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[Client] = []
        if broker.parts.group_loader.topic_exists:
            # After a restart tests ask for what is stored without looking for its coordinator first.
            assert broker.groups, "it is imported now"

    @property
    def groups(self) -> GroupCoordinator:
        return self.broker.groups

    async def client(self) -> Client:
        host, _, port = self.broker.bootstrap.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self._clients.append(client)
        return client

    async def ask(self, request: Any, version: int) -> Any:
        """On a connection of its own."""
        client = await self.client()
        return await client.ask(request, version)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def running(
    data_dir: Path,
    settings: dict[str, str] | None = None,
    *,
    port: int | None = 0,
    crash: bool = False,
    **parts: Any,
) -> AsyncIterator[Asking]:
    """`port=None`: the settings say where it listens. `crash=True` leaves the data as a killed process would: nothing
    is closed cleanly."""
    broker = Broker(ServerConfig({**QUICK, **(settings or {})}), data_dir=data_dir, port=port, node_id=1, **parts)
    await broker.start()
    asking = Asking(broker)
    try:
        yield asking
    finally:
        await asking.close()
        if crash:
            close_nothing_cleanly(broker)
        await broker.stop()


def close_nothing_cleanly(broker: Broker) -> None:
    """When it stops, the broker is to leave its data as a killed process would."""

    async def close_data() -> bool:
        broker.log_directory.close(clean=False)
        return False

    broker._close_data = close_data


def messages(module: str) -> Any:
    return import_module(f"ottla.protocol.messages.{module}")
