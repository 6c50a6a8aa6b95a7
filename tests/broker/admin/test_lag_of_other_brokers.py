"""Lag in partitions that the coordinator of a group has no replica of (docs/operators.md §5.5)."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.replicas.partition_ends import EndsOfPartitions, PartitionEnds, ReadableOffsets
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import ProduceResponse
from tests.broker.admin.test_metrics import scraped, value
from tests.broker.clusters import ask, create_topic, running_cluster, until
from tests.broker.test_transactional_produce import in_transaction
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import client_of, produce

SETTINGS = {"ottla_admin_listener": "127.0.0.1:0", "ottla_events_sample_interval_ms": 100}


def ends_of(cluster: LocalCluster, broker: int) -> EndsOfPartitions:
    return cluster.brokers[broker].parts.ends


def found(ends: EndsOfPartitions, *, is_transactional: bool = False) -> ReadableOffsets | None:
    return ends.find("t", 0, is_transactional=is_transactional)


async def coordinator_of(cluster: LocalCluster) -> int:
    """Of the group `g`."""
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    while True:
        found = (await ask(cluster.brokers[0], request)).coordinators[0]
        if not found.error_code:
            return int(found.node_id)


async def commit(coordinator: Broker, offset: int) -> None:
    """Of the group `g` in `t`-0."""
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])
    while (await ask(coordinator, request, 8)).topics[0].partitions[0].error_code:
        pass


async def test_lag_is_asked_of_the_leader(tmp_path: Path) -> None:
    offsets = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}
    async with running_cluster(tmp_path, **SETTINGS, **offsets) as cluster:
        coordinator = await coordinator_of(cluster)
        leader = cluster.brokers[1 - coordinator]
        await create_topic(leader, "t", [leader.node_id])
        async with client_of(leader) as client:
            await produce(client, "t", *[b"record"] * 7)
        await commit(cluster.brokers[coordinator], 3)

        async def lag() -> float | None:
            labels = {} if coordinator == 0 else {"broker": coordinator}
            found = await scraped(cluster.admin_url)
            return value(found, "group_lag_records", group="g", topic="t", partition=0, **labels)

        while await lag() is None:
            pass
        assert await lag() == 4

        async with client_of(leader) as client:
            await produce(client, "t", b"one more")
        while await lag() == 4:
            pass
        assert await lag() == 5


async def test_start_of_the_log_is_asked_of_the_leader(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **SETTINGS) as cluster:
        await create_topic(cluster.brokers[0], "t", [0])
        async with client_of(cluster.brokers[0]) as client:
            await produce(client, "t", *[b"record"] * 7)
        rows = [DeleteRecordsPartition(partition_index=0, offset=5)]
        topics = [DeleteRecordsTopic(name="t", partitions=rows)]
        await ask(cluster.brokers[0], DeleteRecordsRequest(topics=topics, timeout_ms=5000))
        ends = ends_of(cluster, 1)

        await until(lambda: found(ends) is not None)

        assert found(ends) == ReadableOffsets(5, 7)
        assert ends.of_other_brokers() == {("t", 0): PartitionEnds(5, 7)}
        assert found(ends_of(cluster, 0)) == ReadableOffsets(5, 7)
        assert ends_of(cluster, 0).of_other_brokers() == {}


async def test_last_stable_offset_is_asked_of_the_leader(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **SETTINGS) as cluster:
        await create_topic(cluster.brokers[0], "t", [0])
        producer = TransactionalProducer(dict(cluster.brokers))
        await producer.initialize()
        await producer.add("t", [0])
        async with client_of(cluster.brokers[0]) as client:
            await produce(client, "t", b"record", b"record")
            request = in_transaction(0, producer=producer.producer_id, epoch=producer.producer_epoch)
            await client.call(request, ProduceResponse, 12)
        ends = ends_of(cluster, 1)

        await until(lambda: found(ends, is_transactional=True) is not None)

        assert found(ends, is_transactional=True) == ReadableOffsets(0, 2)
        assert found(ends) == ReadableOffsets(0, 3)
        assert found(ends_of(cluster, 0), is_transactional=True) == ReadableOffsets(0, 2)

        await producer.end(commit=True)
        await until(lambda: found(ends, is_transactional=True) == ReadableOffsets(0, 4))


async def test_end_is_forgotten_when_the_leader_is_gone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **SETTINGS) as cluster:
        await create_topic(cluster.brokers[0], "t", [0])
        ends = ends_of(cluster, 1)
        await until(lambda: found(ends) is not None)

        await cluster.kill_broker(0)

        await until(lambda: found(ends) is None)
