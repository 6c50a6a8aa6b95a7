"""A broker in virtual time, and clients of it by their client ids. Users are ANONYMOUS, for the listener is plain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.broker.server.connection import Connection
from ottla.cluster.client_quotas import QuotaAlteration, QuotaOp, names_of
from ottla.protocol.client import SIZE_BYTES, WireClient
from ottla.security.quotas import QuotaEntity
from tests.broker.virtual_cluster import Cluster, Node

PORT = 9092


class VirtualClient(asyncio.Protocol):
    """One connection; answers come in order."""

    def __init__(self, loop: Any, client_id: str | None) -> None:
        self._loop = loop
        self._client_id = client_id
        self._wire = WireClient(client_id)
        self._received = b""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: Any = None
        self.is_closed = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def data_received(self, data: bytes | bytearray | memoryview) -> None:
        self._received += bytes(data)
        while len(self._received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES], "big")
            if len(self._received) < end:
                return
            frame, self._received = self._received[SIZE_BYTES:end], self._received[end:]
            self._waiting.popleft().set_result(self._wire.receive(frame))

    def send(self, request: Any, version: int, *, is_answered: bool = True) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._loop.create_future()
        if is_answered:
            self._waiting.append(answer)
        wire = self._wire if is_answered else WireClient(self._client_id)
        self._transport.write(wire.send(request, version))
        return answer

    async def ask(self, request: Any, version: int) -> Any:
        return await self.send(request, version)

    def close(self) -> None:
        self._transport.close()


class World:
    def __init__(self, **settings: object) -> None:
        self.cluster = Cluster()
        self.clock = self.cluster.clock
        self._settings = settings
        self.node: Node

    def run(self, story: Callable[["World"], Awaitable[None]]) -> None:
        async def play() -> None:
            (self.node,) = await self.cluster.started(0, offsets_topic_replication_factor=1, **self._settings)
            await story(self)
            await self.cluster.stop(self.node)

        self.cluster.run(play())

    @property
    def broker(self) -> Any:
        return self.node.broker

    async def client(self, client_id: str | None = "app", port: int = PORT) -> VirtualClient:
        made: list[VirtualClient] = []

        def make() -> VirtualClient:
            made.append(VirtualClient(self.cluster.loop, client_id))
            return made[0]

        await self.cluster.network.connect(make, self.node.host, port)
        return made[0]

    async def set_quota(self, entity: QuotaEntity, **values: float | None) -> None:
        """None takes one away."""
        ops = tuple(QuotaOp(key, value or 0.0, value is None) for key, value in values.items())
        alteration = QuotaAlteration(tuple(names_of(entity)), ops)
        outcome = await self.cluster.spawn(
            self.node, self.broker.parts.client_quotas.alter([alteration], validate_only=False)
        )
        assert outcome == [None]

    def connections(self) -> list[Connection]:
        return list(self.broker.server.connections)

    @contextmanager
    def takes(self, at_least_ms: int, at_most_ms: int) -> Iterator[None]:
        began_ms = self.clock.now_ms()
        yield
        took_ms = self.clock.now_ms() - began_ms
        assert at_least_ms <= took_ms <= at_most_ms, took_ms
