"""Three brokers under the audit: who dies and comes back loses nothing, and a replica that differs is found."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.testing.audit.findings import Blame
from ottla.testing.handle import Kafka
from ottla.testing.profile import cluster_settings
from ottla.testing.testbed import Testbed
from tests.kit.clusters import three_brokers
from tests.kit.members import consumer, polled, send


@pytest.fixture(scope="module")
def cluster_bed() -> Iterator[Testbed]:
    bed = three_brokers(cluster_settings(3))
    yield bed
    bed.stop()


@pytest.fixture
def cluster(cluster_bed: Testbed) -> Iterator[Kafka]:
    yield Kafka(cluster_bed)
    cluster_bed.run(cluster_bed.reset())


def of_broker(kafka: Kafka) -> list[list[str]]:
    return [each.lines() for each in kafka.audit() if each.kind.blame is Blame.BROKER]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_leader_that_dies_loses_nothing(cluster: Kafka, acks: str) -> None:
    cluster.create_topic("orders", 1)
    idempotent = {"enable.idempotence": True} if acks == "all" else {}
    config = cluster.client_config("producer") | {"log_level": 0, "acks": acks} | idempotent
    producer = Producer(config)
    for number in range(30):
        producer.produce("orders", b"%d" % number)
        if number == 15:
            leader = cluster.topic("orders").partitions[0].leader
            assert leader is not None
            cluster.brokers[leader].kill()
            cluster.wait_until_leader("orders", 0)
            cluster.brokers[leader].restart()
        producer.flush(20 if number != 15 else 0)
    assert producer.flush(30) == 0
    cluster.wait_until_in_sync("orders")
    with consumer(cluster, "shop", "orders") as made:
        polled(made, 30 if acks == "all" else 1)

    assert of_broker(cluster) == []
    del producer


def test_a_replica_with_another_batch_is_found(cluster: Kafka, cluster_bed: Testbed) -> None:
    cluster.create_topic("orders", 1)
    send(cluster, "orders", b"a", b"b", b"c", acks="all")
    cluster.wait_until_in_sync("orders")

    def damage() -> Any:
        """A follower has the leader's batches with another epoch."""
        for parts in cluster_bed.hosted.parts().values():
            follower = parts.replicas.find("orders", 0)
            if follower is not None and not follower.is_leader:
                log = follower.log
                records = bytearray(log.read(0, 1 << 20, log.log_end_offset, wait=True).records)
                records[15] ^= 1
                log.truncate_fully_and_start_at(0)
                log.append_as_follower(memoryview(records), now_wall_ms=0)
                log.write_pending(0)
                return

    cluster_bed.call(damage)

    assert [lines[0].split(":")[0] for lines in of_broker(cluster)] == ["B9 orders-0"]
