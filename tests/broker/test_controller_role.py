"""The controller of a cluster, one after another, and what it decides: whole brokers in virtual time."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.cluster.image import BrokerState
from ottla.cluster.partition_state import with_epochs
from ottla.cluster.topic_changes import replace_topics
from tests.broker.virtual_cluster import SESSION_MS, Cluster, Node

FAILOVER_MS = 2 * SESSION_MS


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


async def three(cluster: Cluster, **settings: object) -> list[Node]:
    nodes = await cluster.started(1, 2, 3, **settings)
    await cluster.until(lambda: all(len(node.broker.image.active_brokers) == 3 for node in nodes))
    return nodes


def controller_of(nodes: list[Node]) -> Node:
    (node,) = [node for node in nodes if node.broker.controller.is_controller]
    return node


def leader(node: Node, index: int = 0, name: str = "t") -> int:
    return node.partition(name, index).leader


def isr(node: Node, index: int = 0, name: str = "t") -> set[int]:
    return set(node.partition(name, index).isr)


def test_another_broker_becomes_controller_when_one_dies(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        first = controller_of(nodes)
        epoch = first.broker.image.controller_epoch
        cluster.kill(first)
        others = [node for node in nodes if node is not first]
        await cluster.until(
            lambda: all(node.broker.image.controller_id not in (-1, first.node_id) for node in others), FAILOVER_MS
        )

        assert controller_of(others).broker.image.controller_epoch > epoch
        assert "this broker is the controller" in controller_of(others).events()
        await cluster.stop_all(*others)

    cluster.run(story())


@pytest.mark.parametrize("kills_controller", [False, True])
def test_killed_broker_loses_its_leaderships_and_leaves_the_isr(cluster: Cluster, kills_controller: bool) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        await cluster.create(nodes[0], "t", 6, 3)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        victim = next(node for node in nodes if node.broker.controller.is_controller == kills_controller)
        others = [node for node in nodes if node is not victim]
        before = {index: leader(others[0], index) for index in range(6)}
        cluster.kill(victim)
        took_ms = await cluster.until(
            lambda: all(victim.node_id not in isr(node, index) for node in others for index in range(6)), FAILOVER_MS
        )

        assert took_ms <= SESSION_MS + 1_000
        for node in others:
            assert {leader(node, index) for index in range(6)} == {other.node_id for other in others}
            for index in range(6):
                if before[index] != victim.node_id:
                    assert leader(node, index) == before[index], "who leads goes on leading"
                replica = node.broker.replicas.partition("t", index)
                assert replica.leader_id == leader(node, index)
                assert replica.is_leader == (leader(node, index) == node.node_id)
        assert victim.node_id not in others[0].broker.image.live_brokers
        await cluster.stop_all(*others)

    cluster.run(story())


def test_the_only_replica_of_a_partition_is_waited_for(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        await cluster.create(nodes[0], "t", 3, 1)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        victim = next(node for node in nodes if not node.broker.controller.is_controller)
        others = [node for node in nodes if node is not victim]
        index = next(index for index in range(3) if leader(others[0], index) == victim.node_id)
        cluster.kill(victim)
        await cluster.until(lambda: leader(others[0], index) == -1, FAILOVER_MS)
        assert isr(others[0], index) == {victim.node_id}

        again = cluster.boot(victim.node_id, victim.disk)
        await again.started
        await cluster.until(lambda: all(leader(node, index) == victim.node_id for node in (*others, again)))
        assert again.broker.replicas.partition("t", index).is_leader
        await cluster.stop_all(again, *others)

    cluster.run(story())


def test_a_controller_that_was_cut_off_decides_nothing_any_more(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        old = controller_of(nodes)
        others = [node for node in nodes if node is not old]
        await cluster.create(others[0], "t", 3, 3)
        cuts = cluster.cut_off(old)
        await cluster.until(
            lambda: all(node.broker.image.controller_id in _ids(others) for node in others), FAILOVER_MS
        )
        await cluster.until(lambda: all(old.node_id not in isr(others[0], index) for index in range(3)))
        # It still believes that it is the controller, and sees nothing of what happens.
        assert old.broker.controller.is_controller
        states = {index: others[0].partition("t", index) for index in range(3)}
        cluster.links.heal(*cuts)
        await cluster.until(lambda: others[0].broker.image.brokers[old.node_id].state is BrokerState.ACTIVE)

        assert not old.broker.controller.is_controller
        assert {index: others[0].partition("t", index) for index in range(3)} == states
        await cluster.until(lambda: {index: old.partition("t", index) for index in range(3)} == states)
        await cluster.stop_all(*nodes)

    cluster.run(story())


def _ids(nodes: list[Node]) -> list[int]:
    return [node.node_id for node in nodes]


def test_decisions_that_come_too_late_are_made_again(cluster: Cluster) -> None:
    """Two brokers die at nearly the same moment, while the leaders' own changes compete with the controller's."""

    async def story() -> None:
        nodes = await three(cluster)
        await cluster.create(nodes[0], "t", 100, 3)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        last, *victims = nodes
        cluster.kill(victims[0])
        cluster.machine.conditions.loses_answers = 0.2
        await cluster.until(lambda: leader(last, 99) != victims[0].node_id, 3 * SESSION_MS)
        cluster.kill(victims[1])
        await cluster.until(lambda: all(leader(last, index) == 1 for index in range(100)), 10 * SESSION_MS)

        assert all(isr(last, index) == {1} for index in range(100))
        cluster.machine.conditions.loses_answers = 0.0
        await cluster.stop(last)

    cluster.run(story())


def test_leadership_goes_back_to_preferred_replicas(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster, leader_imbalance_check_interval_seconds=20)
        await cluster.create(nodes[0], "t", 6, 3)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        other = next(node for node in nodes if not node.broker.controller.is_controller)
        state = other.partition("t", 0)
        # As after a fail-over whose victim has come back and caught up.
        moved = state.replicas[1]
        await force_leader(cluster, other, moved)
        took_ms = await cluster.until(lambda: leader(other) == state.replicas[0])

        assert took_ms > 1_000
        assert other.partition("t", 0).leader_epoch == state.leader_epoch + 2
        await cluster.stop_all(*nodes)

    cluster.run(story())


async def force_leader(cluster: Cluster, node: Node, moved: int) -> None:
    topic = node.broker.image.topics["t"]
    before = topic.partitions[0]
    after = with_epochs(before, replace(before, leader=moved))
    changed = replace(topic, partitions=(after, *topic.partitions[1:]))
    transaction = replace_topics(node.broker.image, {"t": changed})
    await cluster.spawn(node, node.broker.metadata.commit(transaction))
    await cluster.until(lambda: leader(node) == moved)


def test_topic_created_on_dying_brokers_gets_leaders(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        victim = next(node for node in nodes if not node.broker.controller.is_controller)
        others = [node for node in nodes if node is not victim]
        cluster.kill(victim)
        # No broker has noticed yet.
        await cluster.create(others[0], "t", 6, 3)
        assert any(leader(others[0], index) == victim.node_id for index in range(6))
        await cluster.until(
            lambda: all(victim.node_id not in isr(node, index) for node in others for index in range(6)), FAILOVER_MS
        )
        assert all(leader(others[0], index) != victim.node_id for index in range(6))
        await cluster.stop_all(*others)

    cluster.run(story())


def test_an_unclean_election_is_a_warning(cluster: Cluster) -> None:
    async def story() -> None:
        nodes = await three(cluster)
        await cluster.create(nodes[0], "t", 1, 2, unclean_leader_election_enable="true")
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        state = nodes[0].partition("t", 0)
        follower, leading = (next(n for n in nodes if n.node_id == each) for each in reversed(state.replicas))
        (third,) = [node for node in nodes if node not in (follower, leading)]
        cluster.kill(follower)
        await cluster.until(lambda: isr(third) == {leading.node_id}, FAILOVER_MS)
        cluster.kill(leading)
        await cluster.until(lambda: leader(third) == -1, 2 * FAILOVER_MS)
        again = cluster.boot(follower.node_id, follower.disk)
        await again.started
        await cluster.until(lambda: leader(third) == follower.node_id)

        await cluster.until(lambda: any("uncleanly" in str(fields.get("reason")) for _, fields in third.log.events))
        await cluster.stop_all(again, third)

    cluster.run(story())
