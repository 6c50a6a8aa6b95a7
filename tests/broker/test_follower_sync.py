"""A follower of a topic that syncs acknowledges records to its leader when they are on its disk (§16.2.3)."""

import asyncio
import errno
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.replicas.delayed_produce import ProducePartitionStatus
from ottla.protocol.errors import ErrorCode
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import batch


class Answer:
    error_code = 0
    error_message: str | None = None
    base_offset = 0


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
        nodes = await self.cluster.started(1, 2, min_insync_replicas="2", auto_leader_rebalance_enable="false")
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
