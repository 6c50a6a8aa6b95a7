"""Links that are cut, slow or held up, and brokers that are killed, stopped or paused: each once, with what is seen."""

import socket
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from ottla.protocol.errors import KafkaError
from ottla.testing import LinkError
from ottla.testing.testbed import Testbed
from ottla.testing.worker import NotRunningError
from tests.kit.clusters import Replicated, outcome


def protocols(bed: Testbed) -> set[str]:
    """What the transports of all connections call."""

    def look() -> set[str]:
        every = [each for parts in bed.hosted.parts().values() for each in parts.server.connections]
        found = [each.transport.get_protocol() for each in every if each.transport is not None]
        assert all(
            protocol is each for protocol, each in zip(found, every, strict=True) if type(protocol) is type(each)
        )
        return {type(protocol).__name__ for protocol in found}

    return bed.call(look)


# Links.


def test_connections_are_the_plain_ones_without_faults(cluster: Replicated, shared_cluster: Testbed) -> None:
    kafka = cluster.kafka
    assert protocols(shared_cluster) == {"Connection"}

    kafka.links.delay(*cluster.followers, ms=1)
    assert protocols(shared_cluster) == {"LinkProtocol"}
    kafka.links.heal()

    kafka.wait(lambda _: protocols(shared_cluster) == {"Connection"}, describe="the plain protocols are back")


def test_cut_with_reset_breaks_connections_at_once(cluster: Replicated) -> None:
    kafka, follower = cluster.kafka, cluster.followers[0]
    kafka.links.cut(cluster.leader, follower, reset=True)
    kafka.produce("orders", [b"a"], acks=1)
    cluster.wait_for_isr(cluster.leader, cluster.followers[1])

    kafka.links.heal(follower)

    kafka.wait_until_in_sync("orders")


def test_paused_link_loses_nothing(cluster: Replicated) -> None:
    kafka, follower = cluster.kafka, cluster.followers[0]
    kafka.links.lossless_pause(cluster.leader, follower)
    kafka.produce("orders", [b"a"], acks=1)
    cluster.wait_for_isr(cluster.leader, cluster.followers[1])

    kafka.links.heal()

    kafka.wait_until_in_sync("orders")


def test_narrow_link_makes_a_follower_late(cluster: Replicated) -> None:
    kafka, follower = cluster.kafka, cluster.followers[0]
    kafka.links.bandwidth(cluster.leader, to=follower, bytes_per_s=1000)
    kafka.produce("orders", [b"a" * 20_000], acks=1)

    cluster.wait_for_isr(cluster.leader, cluster.followers[1])

    kafka.links.heal()
    kafka.wait_until_in_sync("orders")


def test_clients_that_are_cut_off_get_no_answer(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.links.cut("clients", to=cluster.leader)
    config: dict[str, Any] = {"message.timeout.ms": 800, "socket.timeout.ms": 500}

    assert outcome(kafka, **config) == "_MSG_TIMED_OUT"

    kafka.links.heal("clients")
    assert outcome(kafka) == "ok"
    assert cluster.values() == [b"first", b"book"]


def test_broker_that_loses_the_store_is_fenced(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.links.cut(cluster.leader, to="store")

    assert cluster.wait_for_another_leader() in cluster.followers

    kafka.links.heal()
    kafka.wait_until_in_sync("orders")


def test_slow_store_is_waited_for(cluster: Replicated) -> None:
    kafka = cluster.kafka
    for node_id in kafka.brokers:
        kafka.links.delay(node_id, "store", ms=20)

    kafka.create_topic("later", 2)

    kafka.wait_until_in_sync("later")


@pytest.mark.parametrize(
    ("ends", "to", "why"),
    [
        ((0, 7), None, "there is no broker 7, only 0, 1, 2, 'store' and 'clients'"),
        ((0,), None, "expected .0, OTHER. for both ways, or .0, to=OTHER. for one"),
        ((0, 1), 2, "expected .0, OTHER."),
        ((0,), "clients", "drops and delays answers"),
        ((1, 1), None, "there is no link from 1 to 1"),
        (("store",), "clients", "not held here"),
    ],
)
def test_links_that_there_are_not(cluster: Replicated, ends: tuple[int, ...], to: int | None, why: str) -> None:
    with pytest.raises(LinkError, match=why):
        cluster.kafka.links.cut(*ends, to=to)
    with pytest.raises(LinkError, match="no bandwidth"):
        cluster.kafka.links.bandwidth(0, to="store", bytes_per_s=9)
    with pytest.raises(LinkError, match="more than 0"):
        cluster.kafka.links.bandwidth(0, to=1, bytes_per_s=0)
    with pytest.raises(LinkError, match="two ends"):
        cluster.kafka.links.heal(0, 1, 2)


# Brokers.


def test_isolated_leader_acknowledges_what_will_be_lost(cluster: Replicated) -> None:
    """With acks=1. It learns of its successor when it is healed, and gives up what it alone has."""
    kafka = cluster.kafka
    kafka.brokers[cluster.leader].isolate()
    cut_off: dict[str, Any] = {"bootstrap.servers": cluster.address(cluster.leader)}
    assert outcome(kafka, b"lost", acks=1, **cut_off) == "ok"
    assert cluster.wait_for_another_leader() in cluster.followers
    kafka.produce("orders", [b"kept"])

    kafka.links.heal()

    kafka.wait_until_in_sync("orders")
    assert cluster.values() == [b"first", b"kept"]


def test_paused_broker_accepts_and_does_not_answer(cluster: Replicated) -> None:
    kafka = cluster.kafka
    host, _, port = cluster.address(cluster.leader).rpartition(":")
    kafka.brokers[cluster.leader].pause()

    assert kafka.brokers[cluster.leader].is_running
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        # ApiVersions, version 0.
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        assert cluster.wait_for_another_leader() in cluster.followers
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(4)
        kafka.brokers[cluster.leader].resume()
        connection.settimeout(20)
        assert len(connection.recv(4)) == 4

    kafka.wait_until_in_sync("orders")
    assert outcome(kafka) == "ok"


def test_killed_broker_starts_again_later(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.brokers[cluster.leader].kill()
    assert not kafka.brokers[cluster.leader].is_running
    kafka.brokers[cluster.leader].restart(after=0.05)

    assert cluster.wait_for_another_leader() in cluster.followers
    kafka.wait_until_in_sync("orders")
    assert kafka.brokers[cluster.leader].is_running


def test_all_brokers_are_killed_and_start_again(cluster: Replicated) -> None:
    kafka = cluster.kafka
    for each in kafka.brokers.values():
        each.kill()
    assert not any(each.is_running for each in kafka.brokers.values())

    for each in kafka.brokers.values():
        each.restart()

    kafka.wait_until_in_sync("orders")


def test_stopped_broker_hands_over_what_it_leads(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.brokers[cluster.leader].stop()

    assert cluster.partition.leader in cluster.followers

    kafka.brokers[cluster.leader].restart()
    kafka.wait_until_in_sync("orders")


def test_a_broker_that_is_none_of_the_clusters_is_named(cluster: Replicated) -> None:
    assert list(cluster.kafka.brokers) == [0, 1, 2]
    assert len(cluster.kafka.brokers) == 3
    with pytest.raises(NotRunningError, match="no broker 7 is part of the cluster, only 0, 1, 2"):
        cluster.kafka.brokers[7]
    with pytest.raises(NotRunningError, match="no broker 7"):
        cluster.kafka.disk(7)


# Leaders, ISRs, coordinators.


def test_leader_moves_to_any_replica(cluster: Replicated) -> None:
    for node_id in cluster.followers:
        cluster.partition.move_leader(to=node_id)
        assert cluster.partition.leader == node_id
        assert outcome(cluster.kafka) == "ok"


def test_leader_moves_to_a_broker_without_replica(cluster: Replicated) -> None:
    kafka = cluster.kafka
    kafka.create_topic("single", 1, replication_factor=1)
    kafka.produce("single", [b"a"], acks=1)
    partition = kafka.partition("single", 0)
    target = next(node_id for node_id in kafka.brokers if node_id != partition.leader)

    partition.move_leader(to=target)

    assert partition.describe().replicas == (target,)
    assert [record.value for record in kafka.records("single")] == [b"a"]
    with pytest.raises(KafkaError, match="there is no broker 9"):
        partition.move_leader(to=9)


def test_isr_shrinks_by_the_rule_and_at_once(cluster: Replicated) -> None:
    kafka, (one, other) = cluster.kafka, cluster.followers
    with cluster.partition.shrink_isr(one, now=True):
        assert set(cluster.partition.isr) == {cluster.leader, other}
        with cluster.partition.shrink_isr(other):
            kafka.produce("orders", [b"late"], acks=1)
            cluster.wait_for_isr(cluster.leader)
            assert outcome(kafka) == "NOT_ENOUGH_REPLICAS"

    kafka.wait_until_in_sync("orders")


def test_unclean_election_loses_what_the_leader_alone_had(cluster: Replicated) -> None:
    kafka = cluster.kafka
    # With more in sync, replicas that left the ISR may still be elected cleanly (KIP-966).
    kafka.create_topic("risky", 1, configs={"min.insync.replicas": 1})
    kafka.produce("risky", [b"kept"])
    partition = kafka.partition("risky", 0)
    partition.move_leader(to=cluster.leader)
    for node_id in cluster.followers:
        partition.shrink_isr(node_id, now=True)
    kafka.produce("risky", [b"lost"])
    kafka.brokers[cluster.leader].kill()
    kafka.wait(lambda _: partition.leader is None, describe="no broker leads")

    partition.unclean_election()

    assert partition.leader in cluster.followers
    assert [record.value for record in kafka.records("risky")] == [b"kept"]
    with pytest.raises(KafkaError, match="has leader"):
        partition.unclean_election()


def test_group_moves_to_another_coordinator(cluster: Replicated) -> None:
    """Not of librdkafka, which may take longer for its commit than the member's session lasts."""
    kafka = cluster.kafka
    config = kafka.client_config("consumer", "kafka-python") | {"group_id": "shop", "enable_auto_commit": False}
    made = KafkaConsumer("orders", **config)
    assert next(made).value == b"first"
    for node_id in kafka.brokers:
        kafka.group("shop").move_to(node_id)
        made.commit({KafkaPartition("orders", 0): OffsetAndMetadata(node_id, "", -1)})
    made.close()
    assert kafka.group("shop").offsets == {("orders", 0): 2}
