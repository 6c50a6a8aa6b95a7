"""A follower of a topic that syncs acknowledges records to its leader when they are on its disk (§16.2.4)."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ottla.broker.replicas.delayed_produce import ProducePartitionStatus
from ottla.broker.replicas.disk_sync import DiskSync
from ottla.protocol.errors import ErrorCode
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import batch


class Answer:
    error_code = 0
    error_message: str | None = None
    base_offset = 0


SETTINGS = {"min_insync_replicas": "2", "auto_leader_rebalance_enable": "false"}


class HeldDisk:
    """Syncs of a broker's logs that do not end before `release`."""

    def __init__(self, node: Node) -> None:
        self._flusher = node.broker.replicas._disk_sync._flusher
        self._submit = self._flusher._submit
        self._held: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._flusher._submit = lambda work, done: self._held.append((work, done))

    def release(self) -> None:
        self._flusher._submit = self._submit
        for work, done in self._held:
            self._submit(work, done)


class Story:
    """Two brokers and topic `t`, which syncs, with topics that do not; all are led by the same one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def begin(self) -> None:
        nodes = await self.cluster.started(1, 2, **SETTINGS)
        await self.cluster.create(nodes[0], "t", 1, 2, flush_messages="1")
        await self.cluster.create(nodes[0], "other", 2, 2)
        await self.cluster.until(lambda: all(node.broker.image.topic("other") for node in nodes))
        self.leader = next(node for node in nodes if node.partition("t", 0).leader == node.node_id)
        self.follower = next(node for node in nodes if node is not self.leader)
        self.other = next(
            index for index in range(2) if self.leader.partition("other", index).leader == self.leader.node_id
        )
        await asyncio.sleep(1)

    async def produce(self, topic: str, index: int) -> ProducePartitionStatus:
        def act(done: Callable[[ProducePartitionStatus], None]) -> None:
            replicas = self.leader.broker.replicas
            partition, answer = replicas.partition(topic, index), Answer()
            info = replicas.append(partition, batch("x", timestamp=self.cluster.clock.wall_ms()), -1, answer)
            replicas.flush_and_notify()
            done(ProducePartitionStatus(partition, info, answer, partition.leader_epoch, needs_replicas=True))

        awaited: ProducePartitionStatus = await self.cluster.call(self.leader, act)
        return awaited

    async def acknowledged(self, awaited: ProducePartitionStatus, within_ms: int) -> None:
        await self.cluster.until(lambda: awaited.outcome() is ErrorCode.NONE, within_ms)


@pytest.fixture
def story() -> Iterator[Story]:
    cluster = Cluster()
    yield Story(cluster)
    cluster.loop.close()


def test_acknowledgement_waits_for_the_sync_of_the_follower(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        disk = HeldDisk(story.follower)
        awaited = await story.produce("t", 0)
        await asyncio.sleep(2)
        log = story.follower.broker.replicas.partition("t", 0).log
        assert (log.log_end_offset, log.flushed_offset, awaited.outcome()) == (1, 0, None)

        disk.release()
        await story.acknowledged(awaited, within_ms=100)
        assert log.flushed_offset == 1

    story.cluster.run(act())


def test_other_partitions_do_not_wait_for_a_slow_sync(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        HeldDisk(story.follower)
        await story.produce("t", 0)
        for _ in range(3):
            awaited = await story.produce("other", story.other)
            await story.acknowledged(awaited, within_ms=60)

    story.cluster.run(act())


def test_idle_partitions_do_not_delay_an_acknowledged_sync(story: Story) -> None:
    """The fetch that waits at the leader for them would be half a second under way."""

    async def act() -> None:
        await story.begin()
        for _ in range(5):
            awaited = await story.produce("t", 0)
            await story.acknowledged(awaited, within_ms=60)

    story.cluster.run(act())


def test_replica_whose_sync_fails_leaves_the_isr(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        story.follower.disk.fail("fsync", OSError(errno.EIO, "the disk is broken"))
        awaited = await story.produce("t", 0)
        await story.cluster.until(lambda: story.leader.partition("t", 0).isr == (story.leader.node_id,))
        await asyncio.sleep(5)

        assert awaited.outcome() is None
        assert story.follower.broker.replicas.partition("t", 0).log.failure is not None
        assert "replica failed, fetching stopped" in story.follower.events()

    story.cluster.run(act())


class HeldDisks:
    """No sync of any broker's logs ends before `release`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._held: list[Callable[[], None]] = []
        self._patch = patch
        offload = DiskSync._offload
        patch.setattr(DiskSync, "_offload", lambda *sync: self._held.append(partial(offload, *sync)))

    def release(self) -> None:
        self._patch.undo()
        for sync in self._held:
            sync()

    def forget(self) -> None:
        """Those of a broker that was killed."""
        self._held.clear()


def test_what_a_killed_leader_did_not_sync_is_not_committed(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the memory of the machine: a loss of power would take it from those who have read it."""

    async def act() -> None:
        cluster = story.cluster
        (story.leader,) = await cluster.started(1)
        await cluster.create(story.leader, "t", 1, 1, flush_messages="1")
        disks = HeldDisks(monkeypatch)
        await story.produce("t", 0)
        cluster.kill(story.leader)
        disks.forget()
        await asyncio.sleep(15)
        again = cluster.boot(1, story.leader.disk, host="again")
        await again.started
        await cluster.until(lambda: again.partition("t", 0).leader == 1)
        await asyncio.sleep(5)
        partition = again.broker.replicas.partition("t", 0)
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)

        disks.release()
        await cluster.until(lambda: partition.high_watermark == 1, within_ms=1000)

    story.cluster.run(act())


def test_what_a_killed_follower_did_not_sync_does_not_count(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        cluster = story.cluster
        await story.begin()
        HeldDisk(story.follower)
        awaited = await story.produce("t", 0)
        await asyncio.sleep(2)
        cluster.kill(story.follower)
        await asyncio.sleep(15)
        disks = HeldDisks(monkeypatch)
        again = cluster.boot(story.follower.node_id, story.follower.disk, host="again", **SETTINGS)
        await again.started
        await asyncio.sleep(10)
        assert again.broker.replicas.partition("t", 0).log.log_end_offset == 1
        assert awaited.outcome() is None

        disks.release()
        await story.acknowledged(awaited, within_ms=2000)

    story.cluster.run(act())
