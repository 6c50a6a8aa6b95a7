"""Reading a `__consumer_offsets` partition back into its groups, in slices short enough for everybody else (§4.4)."""

import asyncio
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.group_partition import GroupPartition
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.record import Record, iterate_records
from ottla.replication.partition import Partition
from ottla.storage.reader import ReadResult, WouldBlock

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# At some 10 µs each, a slice is a few milliseconds.
RECORDS_PER_SLICE = 200

_MARKER_KEY = Struct(">hh")
_COMMIT_MARKER = 1


class OpenTransactions:
    """Offsets that other brokers' transactions have committed but for their marker: they count when it says so."""

    def __init__(self) -> None:
        self._records: dict[int, list[Record]] = {}

    def settled(self, header: BatchHeader, records: Iterable[Record]) -> Iterable[Record]:
        """What of a batch is to be replayed now."""
        if header.is_control:
            pending = self._records.pop(header.producer_id, [])
            return pending if any(_is_commit(record) for record in records) else []
        if header.is_transactional:
            self._records.setdefault(header.producer_id, []).extend(records)
            return []
        return records


async def load(broker: "Broker", partition: Partition, groups: GroupPartition) -> None:
    """Replay everything from the log's start to its end. Raises KafkaError where the log cannot be read.

    It is read to the end and not to the high watermark: the leader's own log is the truth (§4.4.2)."""
    log = partition.log
    offset = log.log_start_offset
    transactions = OpenTransactions()
    replayed = 0
    while offset < log.log_end_offset:
        chunk = await _read(partition, offset, broker.config.offsets_load_buffer_size)
        if chunk.end_offset <= offset:
            break
        for record in _records(chunk.records, transactions):
            if record.key is not None:
                groups.coordinator.replay(record.key, record.value, record.offset)
            replayed += 1
            if replayed % RECORDS_PER_SLICE == 0:
                await asyncio.sleep(0)
        offset = chunk.end_offset


async def _read(partition: Partition, offset: int, max_bytes: int) -> ReadResult:
    log = partition.log
    try:
        return log.read(offset, max_bytes, upper_bound=log.log_end_offset, min_one_batch=True)
    except WouldBlock as blocked:
        return await asyncio.get_running_loop().run_in_executor(None, blocked.complete)


def _records(chunk: memoryview, transactions: OpenTransactions) -> Iterator[Record]:
    for position, header in iterate_batches(chunk):
        yield from transactions.settled(header, iterate_records(chunk[position : position + header.size_bytes]))


def _is_commit(marker: Record) -> bool:
    return marker.key is not None and _MARKER_KEY.unpack_from(marker.key)[1] == _COMMIT_MARKER
