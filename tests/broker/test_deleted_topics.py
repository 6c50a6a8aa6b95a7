"""Logs of topics that were deleted, and of partitions that were moved away, while a broker was up or down.

Whole brokers in virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers import alter_partition_reassignments
from ottla.broker.metadata.deleted_topics import TIDY_MS_MAX
from ottla.cluster.image import TopicInfo
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.storage.checkpoints import PARTITION_METADATA
from tests.broker.virtual_cluster import Cluster, Node


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def test_a_deletion_reaches_all_brokers(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        topic = await cluster.create(nodes[0], "t", 3, 3)
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 3 for node in nodes))
        outcome = await cluster.delete(nodes[2], "t")

        assert isinstance(outcome, TopicInfo)
        assert not list(nodes[2].broker.replicas)
        await cluster.until(lambda: not any(list(node.broker.replicas) for node in nodes))
        assert all(node.log_directories == set() for node in nodes)
        assert list(cluster.stored("deleted/")) == [f"deleted/{topic.topic_id.hex()}"]
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_broker_deletes_logs_of_topics_deleted_while_down(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        first, second, absent = nodes
        topic = await cluster.create(first, "t", 1, 3)
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 1 for node in nodes))
        await cluster.stop(absent)
        await cluster.delete(first, "t")
        key = f"deleted/{topic.topic_id.hex()}"
        assert b"[1,2,3]" in cluster.stored()[key]
        await cluster.until(lambda: b"[3]" in cluster.stored()[key], 3 * TIDY_MS_MAX)
        again = await cluster.create(first, "t", 1, 2)
        back = cluster.boot(3, absent.disk)
        await back.started

        assert back.log_directories == set()
        await cluster.until(lambda: key not in cluster.stored(), 3 * TIDY_MS_MAX)
        assert first.broker.image.topics["t"].topic_id == again.topic_id
        assert first.log_directories == {"t-0"}
        await cluster.stop_all(first, second, back)

    cluster.run(story())


@pytest.mark.parametrize("has_lost_its_id", [False, True])
def test_broker_sets_logs_aside_that_were_moved_while_down(cluster: Cluster, has_lost_its_id: bool) -> None:
    """A power failure may take the topic id of a log of which nothing was flushed."""

    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        first, second, absent = nodes
        await cluster.create(first, "moved", 1, 3)
        await cluster.create(first, "stays", 1, 3)
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 2 for node in nodes))
        await cluster.stop(absent)
        await cluster.spawn(first, moves(first, "moved", [1, 2]))
        await cluster.until(lambda: first.partition("moved", 0).replicas == (1, 2))
        if has_lost_its_id:
            absent.disk.remove(Path("/data/moved-0") / PARTITION_METADATA)
        back = cluster.boot(3, absent.disk)
        await back.started

        assert back.log_directories == {"stays-0", "moved-0.1-stray"}
        assert [replica.topic for replica in back.broker.replicas] == ["stays"]
        assert first.log_directories == {"moved-0", "stays-0"}
        await cluster.stop_all(first, second, back)

    cluster.run(story())


def moves(node: Node, topic: str, replicas: list[int]) -> Any:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topics = [ReassignableTopic(name=topic, partitions=[partition])]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=60_000)
    context: Any = None
    return alter_partition_reassignments.handle(node.broker.metadata, node.broker.runtime, context, request)
