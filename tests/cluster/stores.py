"""Both metadata stores behind one face, so that one set of tests says what either has to do."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.etcd import EtcdStore
from ottla.cluster.store import (
    Change,
    CommitResult,
    Committed,
    Entry,
    Expect,
    Granted,
    MetadataStore,
    Put,
    Snapshot,
    WatchEvent,
)
from ottla.timer.wheel import TimingWheel
from tests.cluster.etcd_server import EtcdServer

ANSWER_TIMEOUT_S = 20
TTL_MS = 2000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def now_ns(self) -> int:
        return self.now * 1_000_000

    def wall_ms(self) -> int:
        return self.now


class Backend(Protocol):
    def session(self) -> MetadataStore: ...

    async def elapse(self, ms: int) -> None:
        """Let leases expire that are not kept alive for so long."""

    async def interrupt(self) -> None:
        """What a store has to live through: the other side goes and comes back, with all it had committed."""

    async def compact(self) -> None:
        """Forget how the present came about."""

    async def close(self) -> None: ...


class Embedded:
    def __init__(self, path: Path | None) -> None:
        self.clock = Clock()
        self.wheel = TimingWheel()
        self.store = EmbeddedStore(path, clock=self.clock, wheel=self.wheel, history_max=8)

    def session(self) -> MetadataStore:
        return self.store.session()

    async def elapse(self, ms: int) -> None:
        self.clock.now += ms
        self.wheel.advance(self.clock.now)

    async def interrupt(self) -> None:
        """There is nothing between a broker and a store in its own process."""

    async def compact(self) -> None:
        for number in range(8):
            self.store.commit([], [Put("compaction", str(number).encode())], lambda result: None)

    async def close(self) -> None:
        self.store.close()


class Etcd:
    def __init__(self, server: EtcdServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self.sessions: list[EtcdStore] = []

    def session(self) -> MetadataStore:
        endpoints = [("127.0.0.1", self.server.port)]
        store = EtcdStore(endpoints, namespace=self.namespace, timeout_ms=ANSWER_TIMEOUT_S * 1000)
        self.sessions.append(store)
        return store

    async def elapse(self, ms: int) -> None:
        """etcd has a clock of its own: what happens then is waited for."""

    async def interrupt(self) -> None:
        self.server.kill()
        self.server.start()

    async def compact(self) -> None:
        (session, *_) = self.sessions
        revision = (await read(session)).revision
        async with aiohttp.ClientSession() as http:
            url = f"http://127.0.0.1:{self.server.port}/v3/kv/compaction"
            await http.post(url, json={"revision": str(revision), "physical": True})

    async def close(self) -> None:
        for session in self.sessions:
            session.close()
            await session.wait_closed()


async def answer(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What a call answers through its callback."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(future.set_result)
    return await asyncio.wait_for(future, ANSWER_TIMEOUT_S)


async def commit(store: MetadataStore, *changes: Change, expected: Sequence[Expect] = ()) -> CommitResult:
    return await answer(lambda done: store.commit(expected, changes, done))


async def committed(store: MetadataStore, *changes: Change, expected: Sequence[Expect] = ()) -> int:
    result = await commit(store, *changes, expected=expected)
    assert isinstance(result, Committed), result
    return result.revision


async def read(store: MetadataStore, prefix: str = "") -> Snapshot:
    return await answer(lambda done: store.read(prefix, done))


async def entries(store: MetadataStore, prefix: str = "") -> list[Entry]:
    return list((await read(store, prefix)).entries)


async def lease(store: MetadataStore, ttl_ms: int = TTL_MS) -> int:
    granted = await answer(lambda done: store.grant(ttl_ms, done))
    assert isinstance(granted, Granted), granted
    return granted.lease_id


class Seen:
    """What a watch has delivered so far."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._more = asyncio.Event()

    def __call__(self, event: WatchEvent | Snapshot) -> None:
        self.events.append(event)
        self._more.set()

    async def first(self, count: int) -> list[Any]:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while len(self.events) < count:
                self._more.clear()
                await self._more.wait()
        return self.events[:count]
