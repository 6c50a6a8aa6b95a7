"""Logs that a broker cannot create: only its own replicas are offline, until its disk works."""

import errno
from pathlib import Path

import pytest

from ottla.broker.metadata.topic_plans import MorePartitions
from ottla.cluster.image import PartitionInfo
from ottla.protocol.errors import KafkaStorageError
from tests.broker.virtual_cluster import Cluster, Node

MANY = 40


class FullDisk:
    """A disk of a node on which no directory can be made, while it `is_full`."""

    def __init__(self, node: Node) -> None:
        self.is_full = True
        make_directory = node.disk.make_directory

        def make(path: Path) -> None:
            if self.is_full and not node.disk.exists(path):
                raise OSError(errno.ENOSPC, "no space left on device")
            make_directory(path)

        node.disk.make_directory = make


def states(node: Node, topic: str) -> tuple[PartitionInfo, ...]:
    return node.broker.image.topics[topic].partitions


def test_partitions_stay_when_one_broker_cannot_create_its_logs() -> None:
    """Another broker may have acknowledged records in them before the first one fails."""
    cluster = Cluster()

    async def story() -> None:
        one, two, three = await cluster.started(1, 2, 3, auto_leader_rebalance_enable="false")
        await cluster.create(one, "t", 1, 2)
        disk = FullDisk(one)
        growth = [MorePartitions("t", MANY, None)]
        (outcome,) = await cluster.spawn(one, one.broker.topics.create_partitions(growth))
        assert not isinstance(outcome, Exception)
        await cluster.until(lambda: len(states(two, "t")) == len(states(three, "t")) == MANY)
        # At once, not when replica.lag.time.max.ms are over.
        await cluster.until(lambda: all(1 not in state.isr for state in states(two, "t")[1:]), within_ms=1000)
        assert all(state.leader in (2, 3) for state in states(two, "t")[1:])
        assert one.events().count("a replica is offline, its log could not be created") == 1

        disk.is_full = False
        await cluster.until(lambda: all(set(state.isr) == set(state.replicas) for state in states(two, "t")))
        assert "no replica of a topic is offline any more" in one.events()
        await cluster.stop_all(one, two, three)

    cluster.run(story())


def test_replica_without_log_returns_storage_error_until_mended() -> None:
    cluster = Cluster()

    async def story() -> None:
        (node,) = await cluster.started(1)
        disk = FullDisk(node)
        topic = await cluster.create(node, "t", 2, 1)
        assert states(node, "t") == topic.partitions
        with pytest.raises(KafkaStorageError, match="no space is left"):
            node.broker.replicas.partition("t", 1)

        disk.is_full = False
        await cluster.until(lambda: node.broker.replicas.find("t", 1) is not None)
        assert node.broker.replicas.partition("t", 0).is_leader
        await cluster.stop(node)

    cluster.run(story())


def test_a_topic_deleted_while_its_log_fails_is_not_tried_again() -> None:
    cluster = Cluster()

    async def story() -> None:
        (node,) = await cluster.started(1)
        disk = FullDisk(node)
        await cluster.create(node, "t", 1, 1)
        await cluster.delete(node, "t")
        disk.is_full = False
        await cluster.create(node, "other", 1, 1)
        await cluster.until(lambda: cluster.clock.now_ms() > 10_000)
        assert list(node.broker.log_directory.logs) == [("other", 0)]
        await cluster.stop(node)

    cluster.run(story())


def test_broker_that_starts_with_a_full_disk_serves_its_logs() -> None:
    cluster = Cluster()

    async def story() -> None:
        one, two = await cluster.started(1, 2)
        await cluster.create(one, "old", 1, 2)
        cluster.kill(one)
        await cluster.until(lambda: states(two, "old")[0].isr == (2,))
        await cluster.create(two, "new", 1, 2)
        again = cluster.boot(1, one.disk)
        disk = FullDisk(again)
        await again.started
        await cluster.until(lambda: set(states(two, "old")[0].isr) == {1, 2})
        assert states(two, "new")[0].isr == (2,)

        disk.is_full = False
        await cluster.until(lambda: set(states(two, "new")[0].isr) == {1, 2})
        await cluster.stop_all(again, two)

    cluster.run(story())
