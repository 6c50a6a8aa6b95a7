"""What readers find in the log of a partition: records, and how many of them.

Markers of transactions, records of aborted ones and what was compacted away have offsets, and are no records for
readers of what is committed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.record import Record, iterate_records
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.segment import Segment

READ_BYTES: Final = 1 << 20
COUNTED_BYTES: Final = 1 << 17
"""Read at a time where records are only counted: often few are enough."""
READ_COMMITTED: Final = "read_committed"
ISOLATION: Final = (READ_COMMITTED, "read_uncommitted", "log")
NO_LIMIT: Final = 1 << 62

AbortedRanges = Mapping[int, Sequence[tuple[int, int]]]
"""By producer id, the first offset of each aborted transaction and that of its marker."""


def end_for(replica: Partition, isolation: str) -> int:
    """The offset before which a reader may see records; `isolation` is one of ISOLATION."""
    if isolation == READ_COMMITTED:
        return replica.last_stable_offset
    return replica.log.log_end_offset if isolation == "log" else replica.high_watermark


def records_of(
    replica: Partition, start: int, stop: int | None, isolation: str
) -> Iterator[tuple[BatchHeader, Record]]:
    """From offset `start` on, before `stop`; each with the header of its batch."""
    log, end = replica.log, end_for(replica, isolation)
    offset, stop = max(start, log.log_start_offset), end if stop is None else min(stop, end)
    aborted: AbortedRanges = aborted_ranges(replica, offset, stop) if isolation == READ_COMMITTED else {}
    while offset < stop:
        read = log.read(offset, READ_BYTES, end, wait=True)
        if not len(read.records):
            return
        for position, header in iterate_batches(read.records):
            if (header.is_control and isolation != "log") or is_aborted(header, aborted):
                continue
            for record in iterate_records(read.records[position : position + header.size_bytes]):
                if offset <= record.offset < stop:
                    yield header, record
        offset = read.end_offset


def aborted_ranges(replica: Partition, start: int, end: int) -> AbortedRanges:
    found: dict[int, list[tuple[int, int]]] = {}
    for each in replica.log.aborted_transactions(start, end):
        found.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
    return found


def is_aborted(header: BatchHeader, aborted: AbortedRanges) -> bool:
    if not header.is_transactional:
        return False
    return any(first <= header.base_offset < last for first, last in aborted.get(header.producer_id, ()))


@dataclass(slots=True)
class _Counted:
    """What was counted of a log, from an offset up to another one."""

    start: int
    end: int
    count: int
    segments: Sequence[Segment]
    """All there were then. Compaction and truncation replace some."""


class RecordCounts:
    """Committed records of logs. Each count goes on where the one before has ended, as long as it begins at the same
    offset and nothing before has changed; so a look after each event costs what was written since."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Log, _Counted] = WeakKeyDictionary()

    def count(self, replica: Partition, start: int, end: int, enough: int = NO_LIMIT) -> int:
        """From offset `start` on, before `end`. Ends where it has come to `enough`, and before what cannot be read."""
        log = replica.log
        start, end = max(start, log.log_start_offset), min(end, replica.last_stable_offset)
        kept = self._kept.get(log)
        if kept is None or not self._goes_on(kept, log, start, end):
            kept = self._kept[log] = _Counted(start, start, 0, ())
        # What cannot be read, as from a damaged disk, consumers do not get either.
        with suppress(KafkaError):
            self._count_on(kept, replica, end, enough)
        kept.segments = list(log.segments)
        return kept.count

    def _goes_on(self, kept: _Counted, log: Log, start: int, end: int) -> bool:
        unchanged = list(log.segments)[: len(kept.segments)] == kept.segments
        return kept.start == start and kept.end <= end and unchanged

    def _count_on(self, kept: _Counted, replica: Partition, end: int, enough: int) -> None:
        if kept.end >= end:
            return
        aborted = aborted_ranges(replica, kept.end, end)
        while kept.end < end and kept.count < enough:
            start = kept.end
            read = replica.log.read(start, COUNTED_BYTES, replica.last_stable_offset, wait=True)
            if not len(read.records):
                return
            for position, header in iterate_batches(read.records):
                if not header.is_control and not is_aborted(header, aborted):
                    batch = read.records[position : position + header.size_bytes]
                    kept.count += _between(header, batch, start, end)
            kept.end = min(read.end_offset, end)


def _between(header: BatchHeader, batch: memoryview, start: int, end: int) -> int:
    """How many records of a batch are there: a log may begin, and a reader stop, within one."""
    if start <= header.base_offset and header.next_offset <= end:
        return header.record_count
    return sum(1 for each in iterate_records(batch) if start <= each.offset < end)
