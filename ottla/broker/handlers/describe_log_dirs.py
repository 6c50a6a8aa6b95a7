"""DescribeLogDirs: how much room the data directory takes and has."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.replication.partition import Partition
from ottla.storage.log_directory import LogDirectory

_UNKNOWN_BYTES = -1


async def handle(
    replicas: ReplicaManager,
    log_directory: LogDirectory,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse:
    path = log_directory.path
    # Of a volume on a network that has gone away, the kernel says nothing for minutes.
    total_bytes, usable_bytes = await runtime.in_thread(partial(_room, path))
    result = DescribeLogDirsResult(
        log_dir=log_directory.name,
        topics=_topics(_asked(replicas, request)),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _room(path: Path) -> tuple[int, int]:
    """Size of the volume and what is free of it; -1 where that is unknown, as in memory."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def _asked(replicas: ReplicaManager, request: DescribeLogDirsRequest) -> Iterable[Partition]:
    """Null asks for everything; partitions that are not here are left out."""
    if request.topics is None:
        return iter(replicas)
    found = (replicas.find(topic.topic, index) for topic in request.topics for index in topic.partitions)
    return (partition for partition in found if partition is not None)


def _topics(partitions: Iterable[Partition]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in partitions:
        log = partition.log
        topics.setdefault(partition.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=log.size_bytes,
                offset_lag=max(partition.high_watermark - log.log_end_offset, 0),
            )
        )
    return [DescribeLogDirsTopic(name=name, partitions=entries) for name, entries in topics.items()]
