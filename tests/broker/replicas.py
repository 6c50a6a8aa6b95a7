"""Three brokers in one process that copy from each other, and what their replicas hold."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.local_cluster import LocalCluster
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from ottla.replication.partition import Partition
from tests.broker.clusters import running_cluster, state_of, until
from tests.broker.wire import Client, batch, client_of, produce_request

ALL = [0, 1, 2]


@asynccontextmanager
async def three_brokers(tmp_path: Path, **settings: object) -> AsyncIterator[LocalCluster]:
    settings = {"min_insync_replicas": 2, "replica_fetch_wait_max_ms": 100, "replica_fetch_backoff_ms": 50} | settings
    async with running_cluster(tmp_path, 3, **settings) as cluster:
        yield cluster


def replica(broker: Broker, name: str = "t", index: int = 0) -> Partition:
    return broker.replicas.partition(name, index)


def leader_of(cluster: LocalCluster, name: str = "t") -> Broker:
    node_id = cluster.leader_of(name, 0)
    assert node_id is not None, "the partition has no leader"
    return cluster.brokers[node_id]


async def append(client: Client, *values: bytes, acks: int = -1, timeout_ms: int = 10_000) -> ErrorCode:
    request = produce_request("t", batch(*values), acks=acks, timeout_ms=timeout_ms)
    response = await client.call(request, ProduceResponse, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def produced(cluster: LocalCluster, *values: bytes, acks: int = -1) -> ErrorCode:
    async with client_of(leader_of(cluster)) as client:
        return await append(client, *values, acks=acks)


def log_bytes(broker: Broker, upper_bound: int) -> bytes:
    """Everything in the replica's log below an offset."""
    log = replica(broker).log
    chunks: list[bytes] = []
    offset = log.log_start_offset
    while offset < upper_bound:
        read = log.read(offset, 1 << 20, upper_bound=upper_bound, min_one_batch=True, wait=True)
        assert read.end_offset > offset, f"nothing at offset {offset} of broker {broker.node_id}"
        chunks.append(bytes(read.records))
        offset = read.end_offset
    return b"".join(chunks)


async def in_sync(cluster: LocalCluster, *expected: int) -> None:
    await until(lambda: all(set(state_of(broker).isr) == set(expected) for broker in cluster.brokers.values()))


async def same_everywhere(cluster: LocalCluster, end_offset: int) -> None:
    """R12: byte-identical up to the high watermark, on every replica."""
    brokers = list(cluster.brokers.values())
    await until(lambda: all(replica(broker).high_watermark == end_offset for broker in brokers))
    first, *others = (log_bytes(broker, end_offset) for broker in brokers)
    assert all(other == first for other in others)
