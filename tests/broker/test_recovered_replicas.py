"""What a broker that was killed may lead, by what recovery found in its logs: whole brokers in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import CorruptMessage
from ottla.storage.checkpoints import RECOVERY_POINTS, parse_offsets
from tests.broker.virtual_cluster import Cluster, Node
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import keyed

DATA = Path("/data")
NO_REBALANCE = {"auto_leader_rebalance_enable": "false"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


class Answer:
    error_code = 0
    error_message = None
    base_offset = 0


async def produce(cluster: Cluster, node: Node, *pairs: tuple[str, str]) -> None:
    def action(done: Any) -> None:
        partition = node.broker.replicas.partition("c", 0)
        for pair in pairs:
            node.broker.replicas.append(partition, keyed(pair, timestamp=cluster.clock.wall_ms()), -1, Answer())
            node.broker.replicas.flush_and_notify()
        done(None)

    await cluster.call(node, action)


async def compacted_leader(cluster: Cluster, *, first_key: str = "first", **configs: str) -> tuple[Node, Node]:
    """The leader of a topic of which compaction has left little, and its follower. All other keys are `k`."""
    nodes = {node.node_id: node for node in await cluster.started(1, 2, **NO_REBALANCE)}
    await cluster.create(nodes[1], "c", 1, 2, segment_bytes="1000", min_cleanable_dirty_ratio="0.01", **configs)
    await cluster.until(lambda: len(nodes[1].partition("c", 0).isr) == 2)
    leader = nodes[nodes[1].partition("c", 0).leader]
    await produce(cluster, leader, (first_key, "stays or goes"))
    for _ in range(30):
        await produce(cluster, leader, ("k", "x" * 50))
        await asyncio.sleep(0.02)
    log = leader.broker.replicas.partition("c", 0).log
    await cluster.until(lambda: log.cleaned_offset > 0, 120_000)
    return leader, nodes[3 - leader.node_id]


async def copied_again(cluster: Cluster, leader: Node, follower: Node) -> Node:
    """The follower on an empty disk, when it is in the ISR again."""
    cluster.kill(follower)
    await asyncio.sleep(15)
    copy = cluster.boot(follower.node_id, FakeDisk(), host="copy", **NO_REBALANCE)
    await copy.started
    await cluster.until(lambda: len(leader.partition("c", 0).isr) == 2)
    return copy


async def killed_and_back(cluster: Cluster, node: Node) -> Node:
    cluster.kill(node)
    await asyncio.sleep(15)
    again = cluster.boot(node.node_id, node.disk, host=f"{node.host}-again", **NO_REBALANCE)
    await again.started
    return again


def end_of(node: Node) -> int:
    return node.broker.replicas.partition("c", 0).log.log_end_offset


async def acknowledged_by_both(cluster: Cluster, leader: Node, copy: Node) -> int:
    await produce(cluster, leader, *[(f"order-{n}", "acknowledged") for n in range(10)])
    leading = leader.broker.replicas.partition("c", 0)
    await cluster.until(lambda: leading.high_watermark == end_of(leader) == end_of(copy))
    return leading.high_watermark


async def stop_compacting(cluster: Cluster, node: Node) -> None:
    configs = {"cleanup.policy": "delete", "min.insync.replicas": "2"}
    await cluster.spawn(node, node.broker.config_admin.alter_topic("c", lambda: configs))


async def compact_by_default(cluster: Cluster, node: Node) -> None:
    """By a dynamic default, which logs do not know when they open."""
    config_admin = node.broker.config_admin
    everywhere = {"log.cleanup.policy": "compact", "min.insync.replicas": "2"}
    await cluster.spawn(node, config_admin.alter_broker(lambda: everywhere, of_all_brokers=True))
    await cluster.spawn(node, config_admin.alter_topic("c", dict))


@pytest.mark.parametrize("change_policy", [stop_compacting, compact_by_default])
def test_copy_with_gaps_keeps_acknowledged_records_after_kill(
    cluster: Cluster, change_policy: Callable[[Cluster, Node], Awaitable[None]]
) -> None:
    async def story() -> None:
        leader, follower = await compacted_leader(cluster, cleanup_policy="compact", min_insync_replicas="2")
        await change_policy(cluster, leader)
        copy = await copied_again(cluster, leader, follower)
        acknowledged = await acknowledged_by_both(cluster, leader, copy)

        # The copy leaves the ISR for the ELR, and is elected from there.
        cluster.kill(copy)
        await cluster.until(lambda: len(leader.partition("c", 0).isr) == 1)
        assert leader.partition("c", 0).elr == (copy.node_id,)
        cluster.kill(leader)
        copy = await killed_and_back(cluster, copy)
        await cluster.until(lambda: copy.broker.replicas.partition("c", 0).is_leader)

        assert end_of(copy) == acknowledged
        assert "recovery" not in copy.events()

    cluster.run(story())


def test_rebuilt_compacted_copy_starts_at_its_leaders_start(cluster: Cluster) -> None:
    """Offsets that groups have committed stay in range after a fail-over."""

    async def story() -> None:
        leader, follower = await compacted_leader(cluster, cleanup_policy="compact", first_key="k")
        copy = await copied_again(cluster, leader, follower)
        replica = copy.broker.replicas.partition("c", 0)
        cluster.kill(leader)
        await cluster.until(lambda: replica.is_leader)

        assert replica.log.log_start_offset == 0
        assert replica.log.segments[0].size > 0
        replica.reads.check_readable(10)

    cluster.run(story())


def test_replica_that_recovery_has_cut_is_not_elected(cluster: Cluster) -> None:
    """The machine has not been restarted, and yet records are gone."""

    async def story() -> None:
        leader, follower = await compacted_leader(cluster, cleanup_policy="compact", min_insync_replicas="2")
        acknowledged = await acknowledged_by_both(cluster, leader, follower)
        cluster.kill(follower)
        await cluster.until(lambda: len(leader.partition("c", 0).isr) == 1)
        cluster.kill(leader)
        active = follower.broker.replicas.partition("c", 0).log.segments.active
        follower.disk.flip_bit(active.path(".log"), 8 * 70)

        # It is killed once more before it can say what has happened, and then finds its logs whole.
        cut = cluster.boot(follower.node_id, follower.disk, host="cut", **NO_REBALANCE)
        await cluster.until(lambda: "recovery" in cut.events(), 15_000)
        cut.started.cancel()
        cut = await killed_and_back(cluster, cut)
        await asyncio.sleep(30)
        assert not cut.broker.replicas.partition("c", 0).is_leader

        whole = cluster.boot(leader.node_id, leader.disk, host="whole", **NO_REBALANCE)
        await whole.started
        await cluster.until(lambda: len(whole.partition("c", 0).isr) == 2)
        assert end_of(whole) == end_of(cut) == acknowledged

    cluster.run(story())


@pytest.mark.parametrize("damaged_segment", [0, 1])
def test_truncated_damage_is_durable_before_it_is_refetched(cluster: Cluster, damaged_segment: int) -> None:
    """A power failure must not bring the damage back below a recovery point, where recovery does not look."""

    async def story() -> None:
        nodes = {node.node_id: node for node in await cluster.started(1, 2, **NO_REBALANCE)}
        await cluster.create(nodes[1], "c", 1, 2, segment_bytes="500")
        await cluster.until(lambda: len(nodes[1].partition("c", 0).isr) == 2)
        leader = nodes[nodes[1].partition("c", 0).leader]
        follower = nodes[3 - leader.node_id]
        acknowledged = await acknowledged_by_both(cluster, leader, follower)
        await asyncio.sleep(80)
        partition = follower.broker.replicas.partition("c", 0)
        base_offset = partition.log.segments[damaged_segment].base_offset
        assert durable(follower)[0] > base_offset

        def read(done: Any) -> None:
            follower.broker.replicas.failed.read_failed(partition, base_offset, CorruptMessage("damaged"))
            done(None)

        await cluster.call(follower, read)
        await cluster.until(lambda: partition.log.log_end_offset <= base_offset)
        cut_bytes = partition.log.size_bytes
        await cluster.until(lambda: partition.log.log_end_offset == acknowledged)

        recovery_point, log_bytes = durable(follower)
        assert recovery_point == base_offset - (damaged_segment > 0)
        assert log_bytes == cut_bytes
        await cluster.until(lambda: len(leader.partition("c", 0).isr) == 2)

    cluster.run(story())


def durable(node: Node) -> tuple[int, int]:
    """The recovery point and the size of the log, as a power failure would leave them."""
    disk = FakeDisk.after(node.disk.journal, Loss.UNSYNCED)
    recovery_points = parse_offsets(disk.read_bytes(DATA / RECOVERY_POINTS))
    names = [name for name in disk.list_directory(DATA / "c-0") if name.endswith(".log")]
    return recovery_points["c", 0], sum(disk.size(DATA / "c-0" / name) for name in names)
