"""Replication quotas of whole brokers: KIP-73, by the configs that `kafka-reassign-partitions --throttle` sets."""

import time
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.replication.replication_quota import UNLIMITED
from tests.broker.clusters import ask, create_topic, running_cluster, state_of, until
from tests.broker.test_alter_partition_reassignments import move
from tests.broker.wire import batch

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
RECORD_BYTES = 100_000


async def alter(broker: Broker, kind: int, name: str, **values: str | None) -> None:
    """None deletes; underscores stand for dots."""
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in response.responses] == [ErrorCode.NONE], response.responses


async def test_configs_of_kafkas_tools_set_and_clear_the_quotas(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        broker, other = cluster.brokers[0], cluster.brokers[1]
        await create_topic(broker, "t", [0, 1], [1, 0])
        quotas, quotas_of_other = broker.replicas.throttles, other.replicas.throttles

        await alter(broker, BROKER, "0", leader_replication_throttled_rate="7", follower_replication_throttled_rate="8")
        await alter(broker, TOPIC, "t", leader_replication_throttled_replicas="0:0,1:1")
        await alter(broker, TOPIC, "t", follower_replication_throttled_replicas="*")
        await until(lambda: quotas.follower.is_active and quotas_of_other.follower.is_active)

        assert (quotas.leader.bytes_per_s, quotas.follower.bytes_per_s) == (7, 8)
        assert [quotas.leader.is_throttled("t", index) for index in (0, 1)] == [True, False]
        assert [quotas_of_other.leader.is_throttled("t", index) for index in (0, 1)] == [False, True]
        assert [quotas.follower.is_throttled("t", index) for index in (0, 1)] == [True, True]
        assert quotas_of_other.leader.bytes_per_s == UNLIMITED

        await alter(
            broker,
            BROKER,
            "0",
            leader_replication_throttled_rate=None,
            follower_replication_throttled_rate=None,
            replica_alter_log_dirs_io_max_bytes_per_second=None,
        )
        await alter(
            broker, TOPIC, "t", leader_replication_throttled_replicas=None, follower_replication_throttled_replicas=None
        )
        await until(lambda: not quotas.leader.is_active and not quotas.follower.is_active)

        assert (quotas.leader.bytes_per_s, quotas.follower.bytes_per_s) == (UNLIMITED, UNLIMITED)


async def test_new_replica_gets_nothing_while_the_quota_is_exceeded(tmp_path: Path) -> None:
    """And everything when the throttle is gone. The quota's window outlasts the test."""
    async with running_cluster(tmp_path, brokers=2, replication_quota_window_size_seconds=1000) as cluster:
        leader, follower = cluster.brokers[0], cluster.brokers[1]
        await create_topic(leader, "t", [0])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])
        await ask(leader, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 12)
        await alter(leader, BROKER, "0", leader_replication_throttled_rate="0")
        await alter(leader, TOPIC, "t", leader_replication_throttled_replicas="0:0")
        quota = leader.replicas.throttles.leader
        await until(lambda: quota.is_active)
        quota.record(1, leader.runtime.clock.now_ms())

        await ask(leader, move([0, 1]))
        await until(lambda: is_parked_without_records(leader, 1))
        assert follower.replicas.partition("t", 0).log.log_end_offset == 0

        await alter(leader, TOPIC, "t", leader_replication_throttled_replicas=None)
        await until(lambda: state_of(leader).isr == (0, 1))
        assert follower.replicas.partition("t", 0).log.log_end_offset == 1


@pytest.mark.slow
async def test_new_replica_is_throttled_and_those_in_sync_are_not(tmp_path: Path) -> None:
    """SEC27: three megabytes at half a megabyte per second."""
    size, rate = 3_000_000, 500_000
    async with running_cluster(tmp_path, brokers=3, min_insync_replicas=2, replica_fetch_max_bytes=100_000) as cluster:
        leader = cluster.brokers[0]
        await create_topic(leader, "t", [0, 2])
        for _ in range(size // RECORD_BYTES):
            assert await produced(leader, bytes(RECORD_BYTES)) == 0
        rates = dict.fromkeys(("leader_replication_throttled_rate", "follower_replication_throttled_rate"), str(rate))
        for node_id in (0, 1):
            await alter(cluster.brokers[node_id], BROKER, str(node_id), **rates)
        both = dict.fromkeys(("leader_replication_throttled_replicas", "follower_replication_throttled_replicas"), "*")
        await alter(leader, TOPIC, "t", **both)
        await until(lambda: leader.replicas.throttles.leader.is_active)
        began_s = time.monotonic()
        await ask(leader, move([0, 2, 1]))
        waits = []
        while 1 not in state_of(leader).isr:
            asked_s = time.monotonic()
            assert await produced(leader, b"x") == 0
            waits.append(time.monotonic() - asked_s)
            assert time.monotonic() - began_s < 4 * size / rate, "it is copied too slowly"
        took_s = time.monotonic() - began_s

    assert took_s > 0.8 * size / rate
    # The replica in sync, which acknowledgements wait for, has no throttle.
    assert sorted(waits)[len(waits) // 2] < 0.1


async def produced(leader: Broker, value: bytes) -> int:
    """With acks=all; the error."""
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(value))])
    answer = await ask(leader, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 12)
    return int(answer.responses[0].partition_responses[0].error_code)


def is_parked_without_records(leader: Broker, follower_id: int) -> bool:
    """Whether the leader has noted a fetch from the beginning of the log, and lets it wait."""
    leadership = leader.replicas.partition("t", 0).leadership
    progress = None if leadership is None else leadership.followers.get(follower_id)
    return progress is not None and progress.log_end_offset == 0 and len(leader.replicas.delayed_fetch) > 0
