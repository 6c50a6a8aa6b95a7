"""What goes wrong with one partition keeps a fetcher from no other one, and not for good from this one."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.storage.log import Log
from tests.broker.virtual_cluster import Cluster, Node
from tests.storage.support import batch

RETRY_MS = 2_500


class Story:
    """Two brokers; one leads the topics `bad` and `good`, the other one copies them by one connection."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def begin(self) -> None:
        nodes = await self.cluster.started(1, 2, min_insync_replicas="1", auto_leader_rebalance_enable="false")
        for name in ("bad", "good"):
            await self.cluster.create(nodes[0], name, 8, 2)
        self.leader, self.follower = nodes
        await self.cluster.until(lambda: all(node.broker.image.topic("good") for node in nodes))
        self.index = next(index for index in range(8) if self.leads(self.leader, index))
        await asyncio.sleep(1)

    def leads(self, node: Node, index: int) -> bool:
        return all(node.partition(name, index).leader == node.node_id for name in ("bad", "good"))

    def log(self, topic: str) -> Log:
        """The follower's."""
        return self.follower.broker.replicas.partition(topic, self.index).log

    async def produce(self) -> None:
        async def act() -> None:
            replicas = self.leader.broker.replicas
            for topic in ("bad", "good"):
                records = batch("x", timestamp=self.cluster.clock.wall_ms())
                replicas.append_records(topic, self.index, records, lambda info, why: None)

        await self.cluster.spawn(self.leader, act())

    async def copied(self, topic: str, end_offset: int, within_ms: int) -> None:
        await self.cluster.until(lambda: self.log(topic).log_end_offset == end_offset, within_ms)

    def errors(self, event: str) -> list[Any]:
        return [fields.get("exc_info") for name, fields in self.follower.log.events if name == event]


@pytest.fixture
def story() -> Iterator[Story]:
    cluster = Cluster()
    yield Story(cluster)
    cluster.loop.close()


def test_bug_in_one_log_keeps_no_other_from_the_response(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        await story.begin()

        def broken(*_: Any, **__: Any) -> int:
            raise RuntimeError("a bug")

        monkeypatch.setattr(story.log("bad"), "append_as_follower", broken)
        await story.produce()

        await story.copied("good", 1, within_ms=400)
        assert isinstance(story.errors("replica failed, fetching stopped")[0], RuntimeError)
        monkeypatch.undo()
        await story.copied("bad", 1, within_ms=RETRY_MS)

    story.cluster.run(act())


def test_bug_in_what_follows_keeps_no_other_from_its_part(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        await story.begin()
        replicas = story.follower.broker.replicas
        followed, noted = replicas.followed, []

        def note(partition: Any, **named: Any) -> None:
            if partition.topic == "bad":
                raise RuntimeError("a bug")
            noted.append(partition.topic)
            followed(partition, **named)

        monkeypatch.setattr(replicas, "followed", note)
        await story.produce()

        await story.copied("good", 1, within_ms=400)
        assert noted[0] == "good"
        assert not story.errors("unhandled error in a fetcher")

    story.cluster.run(act())


@pytest.mark.parametrize("step", ["begin_flush", "finish_flush", "begin_restore"])
def test_truncated_log_that_cannot_be_synced_ends_no_fetcher(
    story: Story, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def act() -> None:
        await story.begin()

        def broken(*_: Any) -> Any:
            raise RuntimeError("a bug")

        monkeypatch.setattr(story.log("bad"), step, broken)
        (task,) = story.follower.broker.replicas._fetching._tasks.values()
        task.truncated.append(story.follower.broker.replicas.partition("bad", story.index))
        await story.produce()
        await asyncio.sleep(10)
        monkeypatch.undo()

        for topic in ("bad", "good"):
            await story.copied(topic, 1, within_ms=RETRY_MS)
        await story.produce()
        await story.copied("good", 2, within_ms=400)

    story.cluster.run(act())
