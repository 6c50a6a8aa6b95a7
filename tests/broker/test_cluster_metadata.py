"""What any broker commits, all brokers see: topics, configs, deletions; whole brokers in virtual time."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ottla.broker.config.server import ConfigSource
from ottla.cluster.image import CONSUMER_OFFSETS, TopicInfo
from ottla.cluster.store import Put, Transaction
from ottla.protocol.errors import ErrorCode, InvalidReplicationFactor, KafkaError
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.virtual_cluster import SESSION_MS, Cluster, Node
from tests.simulation.judge import Judge
from tests.simulation.wire import Wire, connect


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


async def ask(cluster: Cluster, node: Node, request: Any, version: int) -> Any:
    wire = await connect(cluster.network, Judge(cluster.trace), (node.host, 9092), "client", Wire)
    try:
        return await wire.call(request, version, within_ms=10_000)
    finally:
        wire.close()


def test_a_topic_created_through_one_broker_is_on_all(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        topic = await cluster.create(nodes[1], "t", 3, 3, retention_ms="5")
        assert nodes[1].broker.image.topic("t") == topic, "the answer comes when the image has it"
        assert all(nodes[1].broker.replicas.find("t", index) for index in range(3)), "and when its logs are there"
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 3 for node in nodes))

        for node in nodes:
            assert node.broker.image.topic("t") == topic
            assert node.log_directories == {"t-0", "t-1", "t-2"}
            assert node.broker.replicas.partition("t", 0).log.config.retention_ms == 5
            leads = [p.index for p in node.broker.replicas if p.is_leader]
            assert leads == [index for index in range(3) if topic.partitions[index].leader == node.node_id]
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_logs_are_only_where_replicas_are(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        topic = await cluster.create(nodes[0], "t", 6, 1)
        await cluster.until(lambda: sum(len(list(node.broker.replicas)) for node in nodes) == 6)

        for node in nodes:
            own = {f"t-{index}" for index in range(6) if topic.partitions[index].replicas == (node.node_id,)}
            assert node.log_directories == own
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_more_replicas_than_registered_brokers_are_refused(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        outcome = await cluster.try_to_create(nodes[0], "t", 1, 4)

        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.INVALID_REPLICATION_FACTOR
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_replica_on_an_absent_broker_is_created_when_it_joins(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        cluster.kill(nodes[2])
        await cluster.until(lambda: len(nodes[0].broker.image.active_brokers) == 2, 2 * SESSION_MS)
        topic = await cluster.create(nodes[0], "t", 1, 3)
        assert set(topic.partitions[0].replicas) == {1, 2, 3}
        assert set(topic.partitions[0].isr) == {1, 2}
        back = cluster.boot(3, nodes[2].disk)
        await back.started

        assert back.log_directories == {"t-0"}
        await cluster.until(lambda: set(nodes[0].partition("t", 0).isr) == {1, 2, 3})
        await cluster.stop_all(back, *nodes[:2])

    cluster.run(story())


def test_two_brokers_that_create_one_topic_make_one(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        outcomes = await asyncio.gather(*(cluster.try_to_create(node, "t", 2, 3) for node in nodes))
        made = [outcome for outcome in outcomes if isinstance(outcome, TopicInfo)]
        refused = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]

        assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        assert {node.broker.image.topics["t"].topic_id for node in nodes} == {made[0].topic_id}
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_different_commands_at_one_time_all_succeed(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        await cluster.create(nodes[0], "t", 1, 3)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))

        def altered(node: Node, name: str, value: str) -> Any:
            def configs() -> dict[str, str]:
                return {**node.broker.image.topics["t"].configs, name: value}

            return cluster.spawn(node, node.broker.config_admin.alter_topic("t", configs))

        results = await asyncio.gather(
            altered(nodes[0], "retention.ms", "7"),
            altered(nodes[1], "segment.bytes", "2000000"),
            altered(nodes[2], "flush.messages", "3"),
        )

        assert results == [None] * 3
        wanted = {"retention.ms": "7", "segment.bytes": "2000000", "flush.messages": "3"}
        await cluster.until(lambda: all(node.broker.image.topics["t"].configs == wanted for node in nodes))
        for node in nodes:
            config = node.broker.replicas.partition("t", 0).log.config
            assert (config.retention_ms, config.segment_bytes, config.flush_messages) == (7, 2_000_000, 3)
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_configs_of_all_brokers_hold_on_all(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        await cluster.create(nodes[0], "t", 1, 3)
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 1 for node in nodes))
        config_admin = nodes[0].broker.config_admin
        of_all = config_admin.alter_broker(lambda: {"log.retention.ms": "1234"}, of_all_brokers=True)
        await cluster.spawn(nodes[0], of_all)
        of_one = config_admin.alter_broker(lambda: {"log.flush.interval.messages": "9"}, of_all_brokers=False)
        await cluster.spawn(nodes[0], of_one)
        await cluster.until(lambda: all(node.broker.config.log_retention_ms == 1234 for node in nodes))

        configs = [node.broker.replicas.partition("t", 0).log.config for node in nodes]
        assert [config.retention_ms for config in configs] == [1234] * 3
        assert [config.flush_messages == 9 for config in configs] == [True, False, False]
        late = cluster.boot(4)
        await late.started
        assert late.broker.config.log_retention_ms == 1234
        (first, *_) = late.broker.config.values_of(type(late.broker.config).log_retention_ms)
        assert first.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        await cluster.stop_all(late, *nodes)

    cluster.run(story())


def test_controller_reevaluates_partitions_after_min_isr_change(cluster: Cluster) -> None:
    """A smaller `min.insync.replicas` empties the ELR (docs/decisions/0009)."""

    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        await cluster.create(nodes[0], "t", 1, 3, min_insync_replicas="3")
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        victim = next(node for node in nodes if not node.broker.controller.is_controller)
        others = [node for node in nodes if node is not victim]
        cluster.kill(victim)
        await cluster.until(lambda: others[0].partition("t", 0).elr == (victim.node_id,), 2 * SESSION_MS)
        config_admin = others[0].broker.config_admin
        await cluster.spawn(others[0], config_admin.alter_topic("t", lambda: {"min.insync.replicas": "2"}))
        await cluster.until(lambda: others[0].partition("t", 0).elr == ())
        await cluster.stop_all(*others)

    cluster.run(story())


def test_metadata_lists_only_live_brokers_and_leaders(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        await cluster.create(nodes[0], "t", 3, 1)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        before = await ask(cluster, nodes[1], request, 12)
        cluster.kill(nodes[2])
        await cluster.until(lambda: 3 not in nodes[1].broker.image.live_brokers, 2 * SESSION_MS)
        await cluster.until(lambda: any(nodes[1].partition("t", index).leader == -1 for index in range(3)))
        after = await ask(cluster, nodes[1], request, 12)
        described = await ask(cluster, nodes[1], DescribeClusterRequest(include_fenced_brokers=True), 2)

        assert [(each.broker_id, each.is_fenced) for each in described.brokers] == [(1, False), (2, False), (3, True)]
        assert [(each.node_id, each.host, each.port) for each in before.brokers] == [
            (number, f"broker-{number}", 9092) for number in (1, 2, 3)
        ]
        assert {each.leader_id for each in before.topics[0].partitions} == {1, 2, 3}
        assert {each.error_code for each in before.topics[0].partitions} == {0}
        assert [each.node_id for each in after.brokers] == [1, 2]
        assert after.controller_id in (1, 2)
        (dark,) = [each for each in after.topics[0].partitions if each.leader_id == -1]
        assert (dark.error_code, dark.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, 1)
        assert (dark.replica_nodes, dark.isr_nodes, dark.offline_replicas) == ([3], [3], [3])
        await cluster.stop_all(*nodes[:2])

    cluster.run(story())


def test_a_topic_that_comes_by_itself_is_asked_for_again(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3, default_replication_factor=2)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        answer = await ask(cluster, nodes[0], request, 12)
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        again = await ask(cluster, nodes[0], request, 12)

        assert again.topics[0].error_code == 0
        assert len(again.topics[0].partitions[0].replica_nodes) == 2
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_watch_that_missed_a_change_reads_all_again(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2, 3)
        kept, gone = await cluster.create(nodes[0], "kept", 1, 3), await cluster.create(nodes[0], "gone", 1, 3)
        await cluster.until(lambda: all(len(list(node.broker.replicas)) == 2 for node in nodes))
        cluster.machine.conditions.forgets_history = 1.0
        cuts = cluster.cut_off(nodes[2])
        await cluster.delete(nodes[0], "gone")
        new = await cluster.create(nodes[0], "new", 1, 2)
        cluster.links.heal(*cuts)
        await cluster.until(lambda: nodes[2].broker.image.topics.keys() == {"kept", "new"})

        assert nodes[2].broker.image.topic("kept") == kept
        assert nodes[2].broker.image.topic("new") == new
        assert nodes[2].broker.image.topic_by_id(gone.topic_id) is None
        assert "gone-0" not in nodes[2].log_directories
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_damaged_metadata_changes_nothing_and_is_said(cluster: Cluster) -> None:
    async def story() -> None:
        (node,) = await cluster.started(1)
        topic = await cluster.create(node, "t", 1, 1)
        broken = Transaction((), (Put("partitions/t/0", b"{"),))
        await cluster.spawn(node, node.broker.metadata.commit(broken))
        await cluster.until(lambda: "a change of the metadata cannot be understood" in node.events())

        assert node.broker.image.topic("t") == topic
        await cluster.stop(node)

    cluster.run(story())


def test_producer_ids_of_two_brokers_are_different(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await cluster.started(1, 2)
        taken = [await cluster.spawn(node, node.broker.producer_ids.take()) for node in nodes for _ in range(3)]

        assert len(set(taken)) == 6
        await cluster.stop_all(*nodes)

    cluster.run(story())


def test_waiters_for_revisions_are_called_in_revision_order(cluster: Cluster) -> None:
    async def story() -> None:
        (node,) = await cluster.started(1)
        metadata = node.broker.metadata
        applied: list[int] = []
        now = metadata.image.revision

        async def wait(revision: int) -> None:
            await metadata.applied(revision)
            applied.append(revision - now)

        waiting = [cluster.spawn(node, wait(revision)) for revision in (now + 2, now, now + 1, now + 2)]
        await waiting[1]
        assert applied == [0]
        await cluster.create(node, "a", 1, 1)
        await cluster.create(node, "b", 1, 1)
        await asyncio.gather(*waiting)

        assert applied == [0, 1, 2, 2]
        await cluster.stop(node)

    cluster.run(story())


async def two_and_a_third_unknown_to_them(cluster: Cluster) -> list[Node]:
    one, two = await cluster.started(1, 2)
    three = cluster.boot(3)
    while "brokers/3" not in cluster.stored("brokers/"):  # noqa: ASYNC110 - virtual time, in the smallest steps
        await asyncio.sleep(0.0001)
    assert len(one.broker.image.brokers) == 2
    return [one, two, three]


def test_broker_in_store_but_not_in_image_counts_as_existing(cluster: Cluster) -> None:
    """Its `ready` may be known to a client before its registration is known to the broker that the client asks."""

    async def story() -> None:
        one, two, three = await two_and_a_third_unknown_to_them(cluster)

        topic = await cluster.create(one, "t", factor=3)

        assert sorted(topic.partitions[0].replicas) == [1, 2, 3]
        refused = await cluster.try_to_create(one, "u", 1, 4)
        assert isinstance(refused, InvalidReplicationFactor)
        assert str(refused) == "replication factor 4 is more than the 3 brokers"
        await three.started
        await cluster.stop_all(one, two, three)

    cluster.run(story())


def test_offsets_topic_uses_brokers_known_only_to_the_store(cluster: Cluster) -> None:
    async def story() -> None:
        one, two, three = await two_and_a_third_unknown_to_them(cluster)

        ensure = partial(one.broker.auto_topic_creation.ensure_coordinator_topic, CONSUMER_OFFSETS)
        cluster.loop.call_soon(one.broker.runtime._run, ensure, context=one.context)
        await three.started
        await cluster.until(lambda: CONSUMER_OFFSETS in one.broker.image.topics)

        assert sorted(one.partition(CONSUMER_OFFSETS, 0).replicas) == [1, 2, 3]
        assert "topic could not be created" not in one.events()
        await cluster.stop_all(one, two, three)

    cluster.run(story())


def test_a_store_that_does_not_answer_does_not_hold_up_a_refusal(cluster: Cluster) -> None:
    async def story() -> None:
        (one,) = await cluster.started(1)
        cuts = cluster.cut_off(one)

        refused = await cluster.try_to_create(one, "t", 1, 2)

        assert isinstance(refused, InvalidReplicationFactor)
        cluster.links.heal(*cuts)
        await cluster.stop(one)

    cluster.run(story())
