"""A counter that falls is taken for one that began again, and what is left of it for news: who leaves a sum leaves
behind what it had counted (docs/operators.md §4.6, §6.2)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.admin.metrics.group_labels import GroupLabels
from ottla.broker.admin.metrics.group_source import GroupSource
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import OffsetsCommitted, StateChanged
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.admin import test_kafka_names as kafka_names
from tests.broker.admin.test_metrics import observed, scraped, value
from tests.broker.clusters import ask, create_topic, until
from tests.broker.wire import client_of, produce


async def written(broker: Broker, topic: str, *values: bytes) -> None:
    await create_topic(broker, topic, [0])
    async with client_of(broker) as client:
        await produce(client, topic, *values)


async def delete(broker: Broker, topic: str) -> None:
    await ask(broker, DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
    await until(lambda: topic not in broker.replicas.traffic)


async def test_sum_of_all_topics_keeps_what_a_deleted_one_had(tmp_path: Path) -> None:
    async with observed(tmp_path) as broker:
        await written(broker, "a", b"one", b"two", b"three")
        await written(broker, "b", b"one", b"two")
        before = await kafka_names.scraped(broker.admin_url)
        await delete(broker, "a")
        after = await kafka_names.scraped(broker.admin_url)

    total = "kafka_server_brokertopicmetrics_{}_total"
    assert before[total.format("messagesin"), frozenset()] == 5
    for name in ("messagesin", "bytesin", "bytesout"):
        assert after[total.format(name), frozenset()] == before[total.format(name), frozenset()]
    assert after[total.format("messagesin"), frozenset({("topic", "b")})] == 2
    assert (total.format("messagesin"), frozenset({("topic", "a")})) not in after


async def test_other_topics_keep_what_those_that_left_had(tmp_path: Path) -> None:
    """One gets series of its own in place of a deleted one; another is deleted, and comes again."""

    async def others(broker: Broker) -> float | None:
        return value(await scraped(broker.admin_url), "topic_records_in_total", topic="_other")

    async with observed(tmp_path, ottla_metrics_topics_max=1) as broker:
        await written(broker, "a", b"one")
        await written(broker, "b", b"one", b"two")
        await written(broker, "c", b"one", b"two", b"three")
        assert await others(broker) == 2 + 3
        await delete(broker, "a")
        assert await others(broker) == 2 + 3
        assert await others(broker) == 2 + 3
        assert value(await scraped(broker.admin_url), "topic_records_in_total", topic="b") == 2
        await delete(broker, "c")
        assert await others(broker) == 2 + 3
        await written(broker, "c", b"one")
        assert await others(broker) == 2 + 3 + 1


class Coordinated:
    """A source with room for one group, and the groups that its coordinator has."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        shard = SimpleNamespace(groups=self.groups)
        runtime: Any = SimpleNamespace(
            config=ServerConfig({"ottla.metrics.groups.max": "1"}),
            log=LazyLog(),
            broker_clock=SimpleNamespace(now_ms=lambda: 0),
            schedule=lambda _wait_ms, _action: None,
        )
        coordinators: Any = SimpleNamespace(loaded_shards=lambda: [shard])
        self.source = GroupSource(runtime, None, coordinators, GroupLabels())  # type: ignore[arg-type]

    def commit(self, group: str, times: int) -> None:
        state = GroupState.EMPTY
        self.groups[group] = SimpleNamespace(
            group_id=group, state=state, protocol_type=None, parked_joins=0, members={}
        )
        for _ in range(times):
            self.source.observe(OffsetsCommitted(group_id=group, member_id="", partitions=1), 0)

    def remove(self, group: str) -> None:
        del self.groups[group]
        self.source.observe(
            StateChanged(
                group_id=group, generation=1, from_state=GroupState.EMPTY, to_state=GroupState.DEAD, reason=""
            ),
            0,
        )

    def commits(self) -> dict[str, float]:
        for _ in self.source.prepare():
            pass
        return dict(filter(None, self.source.families["ottla_group_commits_total"]()))  # type: ignore[arg-type]


def test_other_groups_keep_what_those_that_left_had() -> None:
    coordinated = Coordinated()
    coordinated.commit("a", 1)
    coordinated.commit("b", 2)
    coordinated.commit("c", 3)
    assert coordinated.commits() == {'group="a"': 1, 'group="_other"': 2 + 3}
    coordinated.remove("a")
    assert coordinated.commits() == {'group="_other"': 2 + 3}
    assert coordinated.commits() == {'group="b"': 2, 'group="_other"': 2 + 3}
    coordinated.remove("c")
    assert coordinated.commits() == {'group="b"': 2, 'group="_other"': 2 + 3}
    coordinated.commit("c", 1)
    assert coordinated.commits() == {'group="b"': 2, 'group="_other"': 2 + 3 + 1}


def test_group_that_is_gone_is_forgotten_without_a_scrape() -> None:
    """Groups with names of one use come and go; perhaps metrics are never asked for."""
    coordinated = Coordinated()
    for number in range(1000):
        coordinated.commit(f"g{number}", 1)
        coordinated.remove(f"g{number}")
    assert len(coordinated.source._counts) == 0
