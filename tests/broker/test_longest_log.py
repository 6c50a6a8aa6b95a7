"""All machines of a cluster lose power at once: who leads when they are back, and what is left of the records."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.replicas.log_end_reports import EPOCHS_MAX, epochs_with_records
from tests.broker.virtual_cluster import Cluster, Node
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import append, batch, new_log

SETTINGS = {"min_insync_replicas": "2", "auto_leader_rebalance_enable": "false"}
BACK_MS = 30_000
NO_LEADER = -1


def test_epochs_are_reported_of_which_there_are_records() -> None:
    """The newest of them."""
    log = new_log(FakeDisk())
    log.maybe_assign_leader_epoch(0)
    assert epochs_with_records(log) == ()

    for epoch in range(EPOCHS_MAX + 2):
        log.maybe_assign_leader_epoch(epoch)
        append(log, batch("x", "y"), leader_epoch=epoch)
    log.maybe_assign_leader_epoch(EPOCHS_MAX + 2)

    assert epochs_with_records(log) == tuple((epoch, 2 * epoch) for epoch in range(2, EPOCHS_MAX + 2))


class Answer:
    error_code = 0
    error_message: str | None = None
    base_offset = 0


class Story:
    """Three brokers with topic `t` of one partition, and how often each machine has been restarted."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes: dict[int, Node] = {}
        self._boots = 0

    async def begin(self) -> None:
        self.nodes = {node.node_id: node for node in await self.cluster.started(1, 2, 3, **SETTINGS)}
        await self.cluster.create(self.nodes[1], "t", 1, 3)
        await self.cluster.until(lambda: all(node.broker.image.topic("t") for node in self.nodes.values()))

    async def produce(self, count: int, acks: int = -1) -> None:
        await self.produce_at(self.nodes[1].partition("t", 0).leader, count, acks)

    async def produce_at(self, node_id: int, count: int, acks: int = 1) -> None:
        leader = self.nodes[node_id]

        def act(done: Callable[[Any], None]) -> None:
            replicas = leader.broker.replicas
            for _ in range(count):
                records = batch("x", timestamp=self.cluster.clock.wall_ms())
                replicas.append(replicas.partition("t", 0), records, acks, Answer())
                replicas.flush_and_notify()
            done(None)

        await self.cluster.call(leader, act)
        await asyncio.sleep(1)

    def fail_power(self, *node_ids: int, losing: tuple[int, ...] = ()) -> None:
        """What `losing` had not synced is gone; the others' kernels had written it just in time."""
        for node_id in node_ids:
            node = self.nodes[node_id]
            self.cluster.kill(node)
            if node_id in losing:
                node.disk._lose(Loss.UNSYNCED, random.Random(0))

    async def come_back(self, *node_ids: int) -> None:
        self._boots += 1
        for node_id in node_ids:
            old = self.nodes[node_id]
            self.nodes[node_id] = self.cluster.boot(
                node_id, old.disk, boot=f"boot {self._boots}", host=f"broker-{node_id}-{self._boots}", **SETTINGS
            )
        for node_id in node_ids:
            await self.nodes[node_id].started

    async def led(self) -> int:
        """Until everybody is in sync again; gives who was elected first."""
        some = next(iter(self.nodes.values()))
        await self.cluster.until(lambda: some.partition("t", 0).leader != NO_LEADER, BACK_MS)
        leader = some.partition("t", 0).leader
        await self.cluster.until(lambda: len(some.partition("t", 0).isr) == 3, BACK_MS)
        return leader

    def log_ends(self) -> set[int]:
        return {node.broker.replicas.partition("t", 0).log.log_end_offset for node in self.nodes.values()}


@pytest.fixture
def story() -> Iterator[Story]:
    cluster = Cluster()
    yield Story(cluster)
    cluster.loop.close()


def test_power_failure_of_all_without_loss_elects_leaders(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        await story.produce(3)
        story.fail_power(1, 2, 3)
        await asyncio.sleep(20)
        await story.come_back(1, 2, 3)
        await story.led()

        assert story.log_ends() == {3}
        said = [
            fields["reason"]
            for node in story.nodes.values()
            for event, fields in node.log.events
            if event == "partitions changed"
        ]
        assert any("was elected by its log, the longest of the newest epoch" in reason for reason in said)
        assert all(not node.broker.image.brokers[1].log_ends for node in story.nodes.values())

    story.cluster.run(act())


@pytest.mark.parametrize("keeper", [1, 2, 3])
def test_records_on_one_disk_survive_a_power_failure_of_all(story: Story, keeper: int) -> None:
    async def act() -> None:
        await story.begin()
        await story.produce(3)
        losers = tuple(node_id for node_id in (1, 2, 3) if node_id != keeper)
        story.fail_power(1, 2, 3, losing=losers)
        await asyncio.sleep(20)
        await story.come_back(*losers)
        await asyncio.sleep(60)
        assert story.nodes[losers[0]].partition("t", 0).leader == NO_LEADER, "the one that may have more is missing"
        await story.come_back(keeper)

        assert await story.led() == keeper
        assert story.log_ends() == {3}

    story.cluster.run(act())


def test_newer_epoch_comes_before_a_longer_log(story: Story) -> None:
    """The longer log ends with records that were never acknowledged, and that the newer leader has replaced."""

    async def act() -> None:
        await story.begin()
        await story.produce(1)
        first = story.nodes[1].partition("t", 0).leader
        others = [node_id for node_id in (1, 2, 3) if node_id != first]
        for node_id in others:
            story.nodes[node_id].broker.replicas.stop_fetching()
        await story.produce(5, acks=1)
        story.fail_power(first)
        newer = story.nodes[others[0]]
        await story.cluster.until(lambda: newer.partition("t", 0).leader in others)
        newest = newer.partition("t", 0).leader
        await story.produce_at(newest, 2)
        story.fail_power(*others)
        await asyncio.sleep(20)
        await story.come_back(1, 2, 3)

        assert await story.led() == newest
        assert story.log_ends() == {3}

    story.cluster.run(act())


def test_broker_lost_again_before_the_election_is_awaited(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        await story.produce(3)
        story.fail_power(1, 2, 3, losing=(2, 3))
        await asyncio.sleep(20)
        await story.come_back(1, 2)
        await asyncio.sleep(20)
        story.fail_power(1)
        await asyncio.sleep(20)
        await story.come_back(3)
        await asyncio.sleep(60)
        assert story.nodes[3].partition("t", 0).leader == NO_LEADER, "1's log ends went with its session"
        await story.come_back(1)

        assert await story.led() == 1
        assert story.log_ends() == {3}

    story.cluster.run(act())


def test_next_longest_log_leads_when_the_longest_is_lost(story: Story) -> None:
    async def act() -> None:
        await story.begin()
        await story.produce(3)
        story.fail_power(1, 2, 3, losing=(3,))
        await asyncio.sleep(20)
        await story.come_back(1, 2, 3)
        some = story.nodes[3]
        await story.cluster.until(lambda: some.partition("t", 0).leader != NO_LEADER, BACK_MS)
        elected = some.partition("t", 0)
        assert (elected.isr, set(elected.last_known_elr)) == ((elected.leader,), {1, 2, 3} - {elected.leader})
        # Before anybody has fetched from it; the file is damaged too.
        story.fail_power(1, 2, 3, losing=(elected.leader, 3))
        await asyncio.sleep(20)
        await story.come_back(elected.leader, 3)
        await asyncio.sleep(60)
        assert story.nodes[3].partition("t", 0).leader == NO_LEADER
        await story.come_back(3 - elected.leader)

        assert await story.led() in (1, 2)
        assert story.log_ends() == {3}

    story.cluster.run(act())
