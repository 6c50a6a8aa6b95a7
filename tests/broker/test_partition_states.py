"""Partitions of one metadata update do not depend on each other: what fails in one is logged there, and tried again."""

import asyncio
import errno
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.partition import Partition, StateChange
from tests.broker.virtual_cluster import Cluster, Node
from tests.fakes.disk import FakeFile
from tests.simulation.links import Cut
from tests.storage.support import batch

PARTITIONS = 6
FAILURE = "the state of a partition could not be applied"


class Answer:
    error_code = 0
    error_message: str | None = None
    base_offset = 0


async def produce(cluster: Cluster, node: Node, index: int, count: int) -> None:
    def action(done: Callable[[Any], None]) -> None:
        replicas = node.broker.replicas
        for _ in range(count):
            records = batch("x" * 300, timestamp=cluster.clock.wall_ms())
            replicas.append(replicas.partition("t", index), records, 1, Answer())
            replicas.flush_and_notify()
        done(None)

    await cluster.call(node, action)


def behind(node: Node) -> list[int]:
    """The partitions whose replica on this broker is not in the state that its metadata says."""

    def is_behind(index: int) -> bool:
        replica, state = node.broker.replicas.partition("t", index), node.partition("t", index)
        return (replica.leader_id, replica.leader_epoch) != (state.leader, state.leader_epoch)

    return [index for index in range(PARTITIONS) if is_behind(index)]


async def killed(cluster: Cluster, node: Node, survivor: Node) -> None:
    """Returns when every partition has another leader."""
    cluster.kill(node)
    await cluster.until(
        lambda: all(survivor.partition("t", n).leader not in (node.node_id, -1) for n in range(PARTITIONS))
    )


def test_error_in_one_partition_spares_others_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    broken: set[int] = set()
    apply_state = Partition.apply_state

    def take(partition: Partition, **state: Any) -> StateChange:
        assert partition.topic != "t" or partition.local_id != 3 or partition.index not in broken, "a bug"
        return apply_state(partition, **state)

    async def story() -> None:
        one, two, three = await cluster.started(1, 2, 3, auto_leader_rebalance_enable="false")
        await cluster.create(one, "t", PARTITIONS)
        await asyncio.sleep(2)
        first_moved = min(n for n in range(PARTITIONS) if three.partition("t", n).leader == 2)
        broken.add(first_moved)

        await killed(cluster, two, survivor=three)
        await asyncio.sleep(1)
        assert behind(three) == [first_moved]
        failures = {(f["topic"], f["partition"]) for event, f in three.log.events if event == FAILURE}
        assert failures == {("t", first_moved)}
        await cluster.until(lambda: one.partition("t", first_moved).isr == (1,))

        broken.clear()
        await cluster.until(lambda: not behind(three) and 3 in one.partition("t", first_moved).isr)
        await cluster.stop_all(one, three)

    monkeypatch.setattr(Partition, "apply_state", take)
    cluster.run(story())


def test_follower_whose_roll_failed_recovers_and_is_elected() -> None:
    cluster = Cluster()

    async def story() -> None:
        one, two, three = await cluster.started(1, 2, 3, auto_leader_rebalance_enable="false")
        await cluster.create(one, "t", PARTITIONS, segment_bytes="2000")
        await asyncio.sleep(2)
        index = min(n for n in range(PARTITIONS) if three.partition("t", n).leader == 2)
        cuts = Cut.both_ways(["broker-3"], ["broker-1", "broker-2"])
        cluster.links.cut(*cuts)
        await produce(cluster, two, index, 20)
        make_segment, is_full = three.disk.open, True

        def open_unless_full(path: str | Path, *, create: bool = True) -> FakeFile:
            if is_full and fnmatch(str(path), f"*/t-{index}/*.log") and not three.disk.exists(path):
                raise OSError(errno.ENOSPC, "full", str(path))
            return make_segment(path, create=create)

        three.disk.open = open_unless_full  # type: ignore[method-assign]
        cluster.links.heal(*cuts)
        await cluster.until(lambda: "replica failed, fetching stopped" in three.events())
        is_full = False

        replica = three.broker.replicas.partition("t", index)
        await cluster.until(lambda: replica.log.log_end_offset == 20 and 3 in one.partition("t", index).isr)
        await killed(cluster, two, survivor=three)
        await cluster.until(lambda: not behind(three))
        await cluster.stop_all(one, three)

    cluster.run(story())
