"""DescribeCluster, DescribeLogDirs, DescribeProducers and DeleteRecords over the wire."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Record, build_batch
from tests.broker.asking import Asking, messages, running
from tests.broker.test_topic_admin import creatable, created

cluster = messages("describe_cluster")
log_dirs = messages("describe_log_dirs")
producers = messages("describe_producers")
delete_records = messages("delete_records")
produce = messages("produce")


async def produced(broker: Asking, topic: str, count: int, **batch: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = build_batch((Record(timestamp=now_ms, value=b"v") for _ in range(count)), **batch)
    data = produce.TopicProduceData(name=topic, partition_data=[produce.PartitionProduceData(index=0, records=records)])
    response = await broker.ask(produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, {"broker.rack": "r1"}) as broker:
        response = await broker.ask(cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), version)

        assert (response.error_code, response.cluster_id, response.controller_id) == (0, broker.broker.cluster_id, 1)
        (node,) = response.brokers
        assert (node.broker_id, f"{node.host}:{node.port}", node.rack) == (1, broker.broker.bootstrap, "r1")
        assert response.cluster_authorized_operations == 0b1111110100000 | 1 << 8
        plain = await broker.ask(cluster.DescribeClusterRequest(), version)
        assert plain.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_a_broker_is_no_controllers_endpoint(tmp_path: Path, endpoint_type: int, code: ErrorCode) -> None:
    async with running(tmp_path) as broker:
        response = await broker.ask(cluster.DescribeClusterRequest(endpoint_type=endpoint_type), 1)

        assert (response.error_code, response.brokers) == (code, [])


async def deleted(broker: Asking, offset: int, topic: str = "a", partition: int = 0, version: int = 2) -> Any:
    asked = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [delete_records.DeleteRecordsTopic(name=topic, partitions=[asked])]
    response = await broker.ask(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    (result,) = response.topics[0].partitions
    return result.low_watermark, result.error_code


@pytest.mark.parametrize("version", range(3))
async def test_delete_records_up_to_an_offset_or_high_watermark(tmp_path: Path, version: int) -> None:
    """§15.6."""
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        await produced(broker, "a", 5)

        assert await deleted(broker, 2, version=version) == (2, 0)
        assert await deleted(broker, 1, version=version) == (2, 0)
        assert await deleted(broker, 6, version=version) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert await deleted(broker, -2, version=version) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert await deleted(broker, -1, version=version) == (5, 0)
    async with running(tmp_path) as broker:
        assert broker.broker.replicas.partition("a", 0).log.log_start_offset == 5


async def test_leader_without_a_session_has_no_offset_above_its_mark(tmp_path: Path) -> None:
    """Its successor may have the records that are to be deleted."""
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        await produced(broker, "a", 5)
        registration = broker.broker.parts.lifecycle._registration
        ends_ms, registration._session_ends_ms = registration._session_ends_ms, 0
        beyond, within = await deleted(broker, 6), await deleted(broker, 2)
        registration._session_ends_ms = ends_ms

        assert (beyond, within) == ((-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (2, 0))


async def test_delete_records_of_compacted_or_unknown_topic_fails(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", cleanup_policy="compact"))

        assert await deleted(broker, 0) == (-1, ErrorCode.POLICY_VIOLATION)
        assert await deleted(broker, 0, "b") == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await deleted(broker, 0, "a", 9) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", range(1, 5))
async def test_the_data_directory_is_described(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", 2), creatable("b"))
        await produced(broker, "a", 5)
        (everything,) = (await broker.ask(log_dirs.DescribeLogDirsRequest(topics=None), version)).results
        asked = [log_dirs.DescribableLogDirTopic(topic="a", partitions=[0, 7])]
        (some,) = (await broker.ask(log_dirs.DescribeLogDirsRequest(topics=asked), version)).results

        assert everything.log_dir == str(tmp_path)
        assert [(topic.name, len(topic.partitions)) for topic in everything.topics] == [("a", 2), ("b", 1)]
        ((topic,),) = [some.topics]
        (partition,) = topic.partitions
        assert partition.partition_index == 0
        assert partition.partition_size == (tmp_path / "a-0" / "00000000000000000000.log").stat().st_size
        if version >= 4:
            assert 0 < some.usable_bytes <= some.total_bytes


async def test_idempotent_producers_are_described(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        await produced(broker, "a", 3, producer_id=77, producer_epoch=2, base_sequence=0)
        topics = [
            producers.TopicRequest(name="a", partition_indexes=[0, 9]),
            producers.TopicRequest(name="b", partition_indexes=[0]),
        ]
        response = await broker.ask(producers.DescribeProducersRequest(topics=topics), 0)

        known, absent = response.topics[0].partitions
        (state,) = known.active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (77, 2, 2)
        assert state.current_txn_start_offset == -1
        assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_room_on_the_volume_is_asked_for_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume on a network may take minutes to say."""
    threads: list[threading.Thread] = []
    statvfs = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: (threads.append(threading.current_thread()), statvfs(path))[1])
    async with running(tmp_path) as broker:
        (everything,) = (await broker.ask(log_dirs.DescribeLogDirsRequest(topics=None), 4)).results

    assert everything.total_bytes > 0
    assert len(threads) == 1
    assert threading.main_thread() not in threads
