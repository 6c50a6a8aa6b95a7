"""Reading a partition of a coordinator topic back into what it holds, in short slices (§4.4)."""

import asyncio
from collections.abc import Iterator
from typing import Any

from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.runtime import Runtime
from ottla.coordinator.runtime.partition import CoordinatorPartition
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.control import parse_marker
from ottla.protocol.records.record import Record, iterate_records
from ottla.replication.partition import Partition
from ottla.storage.segment_reader import ReadResult, WouldBlock

# At some 10 µs each, a slice is a few milliseconds.
RECORDS_PER_SLICE = 200
# Reading checks every batch, at some 10 ms per MiB of small ones, and does not yield to the loop before its end.
READ_BYTES_MAX = 256 * 1024


async def load(runtime: Runtime, partition: Partition, hosted: HostedPartition[Any], buffer_bytes: int) -> None:
    """Replay everything from the log's start to its end. Raises KafkaError where the log cannot be read.

    Ends early when the partition is unloaded before that.

    It is read to the end and not to the high watermark: the leader's own log is the truth (§4.4.2)."""
    log = partition.log
    offset = log.log_start_offset
    read_bytes = min(buffer_bytes, READ_BYTES_MAX)
    replayed = 0
    while offset < log.log_end_offset and hosted.still_loads():
        chunk = await _read(runtime, partition, offset, read_bytes)
        if chunk.end_offset <= offset:
            break
        for record, header in _records(chunk.records):
            if not hosted.still_loads():
                return
            for _ in _replay(hosted.coordinator, record, header):
                await asyncio.sleep(0)
                if not hosted.still_loads():
                    return
            replayed += 1
            if replayed % RECORDS_PER_SLICE == 0:
                await asyncio.sleep(0)
        offset = hosted.loaded_offset = chunk.end_offset


async def _read(runtime: Runtime, partition: Partition, offset: int, max_bytes: int) -> ReadResult:
    log = partition.log
    try:
        return log.read(offset, max_bytes, upper_bound=log.log_end_offset, min_one_batch=True)
    except WouldBlock as blocked:
        return await _from_disk(runtime, blocked)


async def _from_disk(runtime: Runtime, blocked: WouldBlock) -> ReadResult:
    outcomes: list[ReadResult | KafkaError] = []
    finished = asyncio.get_running_loop().create_future()

    def work() -> None:
        try:
            outcomes.append(blocked.complete())
        except KafkaError as error:
            outcomes.append(error)

    runtime.offload(work, lambda: finished.set_result(None) if not finished.done() else None)
    await finished
    (outcome,) = outcomes
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


def _records(chunk: memoryview) -> Iterator[tuple[Record, BatchHeader]]:
    for position, header in iterate_batches(chunk):
        for record in iterate_records(chunk[position : position + header.size_bytes]):
            yield record, header


def _replay(coordinator: CoordinatorPartition[Any], record: Record, header: BatchHeader) -> Iterator[None]:
    """Yields after each slice of what ends with a transaction."""
    if record.key is None:
        return
    if header.is_control:
        marker = parse_marker(record.key, record.value)
        if marker is not None:
            yield from coordinator.replay_marker(header.producer_id, commit=marker.is_commit)
    else:
        producer_id = header.producer_id if header.is_transactional else None
        coordinator.replay(record.key, record.value, record.offset, producer_id)
