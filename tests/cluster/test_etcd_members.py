"""Three members of etcd, of which one is killed, gives up its leadership or forgets the past, while a store is used.

`OTTLA_STORE_CRASHES` multiplies how often; `make nightly` sets it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from ottla.cluster.etcd import EtcdStore
from ottla.cluster.store import ABSENT, Changes, Committed, Entry, Expect, Put, Snapshot, StoreWatcher, Unavailable
from tests.cluster.etcd_members import EtcdMembers
from tests.cluster.stores import commit, lease, read

ROUNDS = int(os.environ.get("OTTLA_STORE_CRASHES", "1"))
TIMEOUT_S = 60
# Transactions that are committed between two disturbances.
BETWEEN = 15


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdMembers]:
    etcd = EtcdMembers.three(tmp_path)
    etcd.start()
    yield etcd
    etcd.kill()


class Writer:
    """Numbered transactions, each of which makes two keys that no other makes."""

    def __init__(self, store: EtcdStore) -> None:
        self.acknowledged: dict[str, int] = {}
        self.in_doubt: set[str] = set()
        self._store = store
        self._more = asyncio.Event()

    async def run(self) -> None:
        for number in count():
            name = f"{number:05}"
            changes = [Put(f"n/{name}/{part}", name.encode()) for part in "ab"]
            result = await commit(self._store, *changes, expected=[Expect(changes[0].key, ABSENT)])
            if isinstance(result, Committed):
                self.acknowledged[name] = result.revision
                self._more.set()
            else:
                assert isinstance(result, Unavailable), f"{name} was made twice: {result}"
                self.in_doubt.add(name)

    async def commits(self, more: int) -> None:
        enough = len(self.acknowledged) + more
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.acknowledged) < enough:
                self._more.clear()
                await self._more.wait()


class Follower:
    """What a watch of everything has delivered."""

    def __init__(self, store: EtcdStore) -> None:
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        self.seen: dict[int, Changes] = {}
        self.snapshots: list[tuple[int, int]] = []
        self._more = asyncio.Event()
        self._watcher = StoreWatcher(store, "", self._deliver, self._failed)
        self._watcher.start()

    def _deliver(self, event: Snapshot | Changes) -> None:
        if isinstance(event, Snapshot):
            assert event.revision >= self.revision
            self.snapshots.append((self.revision, event.revision))
            self.entries = {entry.key: entry for entry in event.entries}
        else:
            assert event.revision > self.revision, "once, and in order"
            self.seen[event.revision] = event
            self.entries |= {entry.key: entry for entry in event.puts}
            for key in event.deletes:
                del self.entries[key]
        self.revision = event.revision
        self._more.set()

    def _failed(self, why: Unavailable) -> None:
        """A read that none of the members could answer in time is asked again."""
        self._watcher.start()

    def stop(self) -> None:
        self._watcher.stop()

    async def reach(self, revision: int, without: str | None = None) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.revision < revision or without in self.entries:
                self._more.clear()
                await self._more.wait()

    def knows_of(self, revision: int) -> bool:
        """It was delivered, or a read stands for it."""
        return revision in self.seen or any(before < revision <= after for before, after in self.snapshots)


@pytest.fixture
async def stores(etcd: EtcdMembers) -> AsyncIterator[list[EtcdStore]]:
    endpoints = [("127.0.0.1", member.port) for member in etcd.members]
    stores = [EtcdStore(endpoints, namespace="/t/", timeout_ms=TIMEOUT_S * 1000) for _ in range(2)]
    yield stores
    for store in stores:
        store.close()
        await store.wait_closed()


async def disturb(etcd: EtcdMembers, writer: Writer, store: EtcdStore) -> None:
    """A key under a lease that nothing keeps alive, another leader, a leader that dies and comes back, no past."""
    lease_id = await lease(store)
    await commit(store, Put("leased", b"", lease_id))
    await writer.commits(BETWEEN)
    await asyncio.to_thread(etcd.move_leader)
    await writer.commits(BETWEEN)
    killed = await asyncio.to_thread(etcd.leader)
    killed.kill()
    await writer.commits(BETWEEN)
    await asyncio.to_thread(etcd.compact)
    killed.start()
    await writer.commits(BETWEEN)


async def test_nothing_is_lost_while_members_come_and_go(etcd: EtcdMembers, stores: list[EtcdStore]) -> None:
    writing, watching = stores
    writer, follower = Writer(writing), Follower(watching)
    task = asyncio.create_task(writer.run())
    await writer.commits(1)
    for _ in range(ROUNDS):
        await disturb(etcd, writer, writing)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    await follower.reach(writing.gateway.revision_seen, without="leased")
    found = await read(writing)
    await follower.reach(found.revision)
    follower.stop()
    keys = {entry.key: entry for entry in found.entries}
    for name, revision in writer.acknowledged.items():
        assert [keys[f"n/{name}/{part}"].revision for part in "ab"] == [revision, revision]
        assert follower.knows_of(revision)
    assert len({key.split("/")[1] for key in keys}) * 2 == len(keys), "no transaction was made by half"
    assert follower.entries == keys
