"""How long writes, syncs and calls of the metadata store take, how far followers and the image are behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.admin.metrics.replica_source import ReplicaSource
from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.disk_sync import DiskSync
from ottla.broker.server.connection import Connection
from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.cluster.encoding import ENTRIES_PER_SLICE
from ottla.cluster.store import Committed, Entry, Snapshot, Transaction
from ottla.replication.replica_progress import ReplicaProgress
from ottla.storage.compaction import plan_compaction
from ottla.timer.wheel import TimingWheel
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import batch, client_of, create_topic, produce, produce_request, running_broker
from tests.fakes.disk import FakeDisk
from tests.fakes.frames import build_request_frame
from tests.storage.support import NOW, append, keyed
from tests.storage.test_compaction import clean, filled

MS = 1_000_000


class World:
    """A runtime whose time a test moves; work in threads is kept until the test runs it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.works: list[tuple[Callable[[], None], Callable[[], None]]] = []
        clock = SimpleNamespace(
            now_ns=lambda: self.now_ns, now_ms=lambda: self.now_ns // MS, wall_ms=lambda: NOW + self.now_ns // MS
        )
        wheel = TimingWheel()
        self.runtime: Any = SimpleNamespace(
            clock=clock,
            broker_clock=clock,
            lag_clock=clock,
            config=ServerConfig(),
            wheel=wheel,
            schedule=lambda wait_ms, action, kind: wheel.schedule(self.now_ns // MS + wait_ms, action, kind),
            offload=lambda work, done, **_: self.works.append((work, done)),
            soon=lambda action: None,
            spawn=lambda coroutine, name: coroutine,
            guard=lambda action, *arguments: action(*arguments),
        )

    def run_work(self) -> None:
        work, done = self.works.pop(0)
        work()
        done()


@pytest.fixture
def world() -> World:
    return World()


async def test_one_write_is_observed_for_each_partition_and_event(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)
        times = broker.replicas.write_times
        before, began_ns = (times.count, times.sum_ns), broker.runtime.clock.now_ns()
        for index in (0, 0, 1):
            await produce(client, "t", b"one", b"two", index=index)
        took_ns = broker.runtime.clock.now_ns() - began_ns
        assert times.count == before[0] + 3
        assert before[1] < times.sum_ns < before[1] + took_ns
        # What arrives together is written together.
        connection, transport = Connection(broker.server, "PLAINTEXT"), FakeTransport()
        # A busy machine would end the turn of a connection between two requests.
        connection._now_ns = lambda: 0
        connection.connection_made(transport)  # type: ignore[arg-type]
        request = produce_request("t", batch(b"three"))
        feed(connection, b"".join(build_request_frame(request, 9, number, "c") for number in range(3)))
        connection.connection_lost(None)
        assert len(transport.frames) == 3
        assert times.count == before[0] + 4


def test_sync_is_observed_as_long_as_it_took_in_its_thread(world: World) -> None:
    log = filled(FakeDisk())
    syncs = DiskSync(world.runtime, lambda _: None, lambda _: None)
    syncs.request(SimpleNamespace(log=log))  # type: ignore[arg-type]
    world.now_ns += 80 * MS
    work, done = world.works.pop()

    def slow() -> None:
        syncing = log.files.sync_directory

        def sync_directory(path: Path) -> None:
            world.now_ns += 30 * MS
            syncing(path)

        log.files.sync_directory = sync_directory  # type: ignore[method-assign]
        work()

    slow()
    took_ns = world.now_ns - 80 * MS
    world.now_ns += 500 * MS
    done()

    assert took_ns >= 30 * MS
    assert (syncs.flush_times.count, syncs.flush_times.sum_ns) == (1, took_ns)


def test_dirty_ratio_is_of_the_bytes_that_no_pass_has_seen() -> None:
    log = filled(FakeDisk())
    clean(log)
    first_dirty = log.swaps.cleaned_offset
    for n in range(10):
        append(log, keyed((f"later {n}", "value")))
    cleaned = sum(segment.size for segment in log.segments.up_to_active() if segment.base_offset < first_dirty)
    more = filled(FakeDisk(), rounds=40)
    ratios: list[float] = []
    for each in (log, more):
        plan_compaction(each, now_wall_ms=NOW, upper_bound=each.log_end_offset, note_dirty_ratio=ratios.append)
    whole = sum(segment.size for segment in log.segments.up_to_active())

    assert 0 < cleaned < whole
    assert ratios[0] == pytest.approx((whole - cleaned) / whole)
    assert ratios[1] == 1


def test_largest_dirty_ratio_is_that_of_the_last_whole_round(world: World) -> None:
    log = filled(FakeDisk())
    partition: Any = SimpleNamespace(log=log, topic="t", index=0, high_watermark=log.log_end_offset)
    cleaner = Cleaner(world.runtime, [partition], lambda: None)
    cleaner.start()
    assert cleaner.dirty_ratio_max is None
    world.now_ns += 60_000 * MS
    world.runtime.wheel.advance(60_000)
    assert cleaner.dirty_ratio_max is None, "its compaction is under way"
    cleaner._next()

    assert cleaner.dirty_ratio_max == 1
    world.runtime.config = ServerConfig({"log.cleaner.enable": "false"})
    cleaner._begin_round()
    assert cleaner.dirty_ratio_max is None


def source(world: World, follower: ReplicaProgress, *, end_offset: int, isr: tuple[int, ...]) -> ReplicaSource:
    probe = SimpleNamespace(metadata=None)
    found = ReplicaSource(world.runtime, SimpleNamespace(write_times=None), None, None, probe)  # type: ignore[arg-type]
    log = SimpleNamespace(log_end_offset=end_offset, log_start_offset=0)
    leadership = SimpleNamespace(followers={2: follower})
    found.rows = [('topic="t",partition="0"', SimpleNamespace(log=log, leadership=leadership, isr=isr))]  # type: ignore[list-item]
    return found


def test_lag_of_a_follower_is_since_it_was_at_the_end(world: World) -> None:
    follower = ReplicaProgress(caught_up_ms=0)
    follower.note_fetch(100, 0, 1, leader_end_offset=100, now_ms=2000)
    # It fetches on, and is never at the end.
    follower.note_fetch(120, 0, 1, leader_end_offset=200, now_ms=5000)
    world.now_ns = 9500 * MS
    series = 'topic="t",partition="0",follower="2"'

    behind = source(world, follower, end_offset=230, isr=(1, 2)).families
    assert [*behind["ottla_follower_lag_seconds"]()] == [(series, 7.5)]
    assert [*behind["ottla_follower_lag_records"]()] == [(series, 110)]
    follower.note_fetch(230, 0, 1, leader_end_offset=230, now_ms=9400)
    assert [*source(world, follower, end_offset=230, isr=(1, 2)).families["ottla_follower_lag_seconds"]()] == [None]
    joins = source(world, follower, end_offset=230, isr=(1,)).families
    assert [*joins["ottla_follower_lag_seconds"]()] == [(series, 0)]
    never = source(world, ReplicaProgress(), end_offset=230, isr=(1,)).families
    assert [*never["ottla_follower_lag_seconds"]()] == [None]


class SlowStore:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.answers: list[Callable[[Any], None]] = []

    def commit(self, expected: object, changes: object, answer: Callable[[Any], None]) -> None:
        self.answers.append(answer)


async def test_calls_of_the_store_are_observed_until_their_answer(world: World) -> None:
    store = SlowStore()
    metadata = ClusterMetadata(world.runtime, store, "c")  # type: ignore[arg-type]
    calls = [asyncio.ensure_future(metadata.commit(Transaction((), ()))) for _ in range(2)]
    await asyncio.sleep(0)
    for answer, duration_ms in zip(store.answers, (3, 40), strict=True):
        world.now_ns += duration_ms * MS
        answer(Committed(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert all(call.done() for call in calls)
    assert (metadata.store_times.count, metadata.store_times.sum_ns) == (2, (3 + 43) * MS)


async def test_apply_lag_is_that_of_the_oldest_change(world: World) -> None:
    metadata = ClusterMetadata(world.runtime, SlowStore(), "c")  # type: ignore[arg-type]
    waits = []
    for revision, at_ms in ((7, 1000), (5, 3000)):
        world.now_ns = at_ms * MS
        waits.append(asyncio.ensure_future(metadata.applied(revision)))
        await asyncio.sleep(0)
    world.now_ns = 4000 * MS
    assert metadata.apply_lag_ms == 3000
    metadata._wake(5)
    assert metadata.apply_lag_ms == 3000
    metadata._wake(7)
    assert metadata.apply_lag_ms == 0
    await asyncio.gather(*waits)
    # A long snapshot is understood in several steps.
    metadata._take(Snapshot([Entry(f"x{n}", b"", 9) for n in range(ENTRIES_PER_SLICE + 1)], 9))
    world.now_ns = 4200 * MS
    assert metadata.apply_lag_ms == 200
    metadata._taking.close()  # type: ignore[union-attr]
