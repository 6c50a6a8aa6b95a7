"""Reading a log: records from an offset on, and the offset of a time.

Records are read without waiting for the disk (`segment_reader`). Finding them by their time reads the disk and waits
for it; it changes nothing, so a thread may do it.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import NamedTuple

from ottla.protocol.errors import CorruptMessage, NotLeaderOrFollower, OffsetOutOfRange
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.record import iterate_records
from ottla.storage.batch_scan import InvalidBatchError, ScannedBatch
from ottla.storage.files import storage_error
from ottla.storage.indexes import aborted_between
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.local_log import Gaps, LocalLog, Segments
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.segment_reader import ReadResult, Selection, read_of, result_of, select_nowait, select_waiting
from ottla.storage.transactions import AbortedTxn


class FoundTimestamp(NamedTuple):
    """A record, by what ListOffsets says of it."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """The part of a log that answers."""

    def __init__(self, local: LocalLog, epochs: LeaderEpochCache, gaps: Gaps) -> None:
        self._local = local
        self._segments = local.segments
        self._epochs = epochs
        self._gaps = gaps

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True, *, wait: bool = False
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `upper_bound`, at most `max_bytes` of them.

        With `min_one_batch` the first batch is answered even if it alone is larger. A compacted log may have nothing
        at `offset` and answer a later batch. Nothing between the bound and the log end is an error.

        Raises OffsetOutOfRange, CorruptMessage for a damaged batch, and WouldBlock unless `wait`.
        """
        local = self._local
        if not local.log_start_offset <= offset <= local.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {local.topic}-{local.partition}, "
                f"which holds {local.log_start_offset} to {local.log_end_offset}"
            )
        n, segments = self._segments.index_of(offset), self._segments.all
        while n < len(segments) and offset < upper_bound:
            segment = segments[n]
            found = self._read_segment(n, segment, offset, max_bytes, upper_bound, min_one_batch, wait)
            if not found.is_exhausted:
                if found.records:
                    segment.remember_read_end(found.end_offset, found.end_position)
                return result_of((found.records, found.end_offset))
            n += 1
        return ReadResult(memoryview(b""), offset)

    def _read_segment(
        self, n: int, segment: Segment, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool, wait: bool
    ) -> Selection:
        local = self._local
        try:
            read = read_of(
                (
                    segment,
                    segment.file,
                    segment.anchor_for(offset),
                    segment.size,
                    self._segments.end_of(n, local.log_end_offset),
                    offset,
                    upper_bound,
                    max_bytes,
                    min_one_batch,
                    self._gaps.until,
                    self._epochs,
                )
            )
            return select_waiting(read) if wait else select_nowait(read)
        except CorruptMessage:
            # A damaged index leads into the middle of a batch.
            if segment is local.active or not self._remade_indexes(segment):
                raise
            return self._read_segment(n, segment, offset, max_bytes, upper_bound, min_one_batch, wait)
        except OSError as error:
            raise storage_error("read", segment.path(LOG_SUFFIX), error) from error
        except InvalidBatchError as error:
            # The indexes were missing, and could not be made of it.
            raise CorruptMessage(f"{segment.name} is damaged: {error}") from error

    def _remade_indexes(self, segment: Segment) -> bool:
        """Raises KafkaStorageError: what the disk refuses says nothing about the records."""
        try:
            return segment.remake_indexes(self._local.index_interval)
        except OSError as error:
            raise storage_error("make the indexes again of", segment.path(LOG_SUFFIX), error) from error

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those that records from `offset` up to `end_offset` may belong to, in the order of their markers (§43.3).

        Reads the indexes of segments that were not read for long. Raises KafkaStorageError."""
        segments = self._segments
        first = segments.index_of(offset)
        try:
            return aborted_between((segments[n].aborted for n in range(first, len(segments))), offset, end_offset)
        except OSError as error:
            raise storage_error("read the transaction indexes of", self._local.directory, error) from error

    def bytes_between(self, offset: int, upper_bound: int) -> int:
        """About how many bytes a reader at `offset` has before it; exact where a read stopped or the log ends. Raises
        KafkaStorageError, CorruptMessage: it may have to read indexes."""
        local = self._local
        if offset >= upper_bound:
            return 0
        active, is_to_the_end = local.active, upper_bound >= local.log_end_offset
        try:
            if is_to_the_end and offset >= active.base_offset:
                # As almost always: each append asks for each fetch that waits for it.
                return active.size - active.anchor_for(offset).position
            first, last = self._segments.index_of(offset), self._segments.index_of(upper_bound)
            begin = self._segments[first].anchor_for(offset).position
            end = active.size if is_to_the_end else self._segments[last].anchor_for(upper_bound).position
        except OSError as error:
            raise storage_error("read the indexes of", local.directory, error) from error
        except InvalidBatchError as error:
            raise CorruptMessage(f"{local.directory.name} is damaged: {error}") from error
        return sum(self._segments[n].size for n in range(first, last)) + end - begin

    def is_in_later_segment(self, offset: int, reader_offset: int) -> bool:
        """Whether the log has rolled between what a reader has read and `offset`."""
        local = self._local
        if reader_offset >= local.active.base_offset:
            return False
        return self._segments.index_of(offset) > self._segments.index_of(reader_offset)

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> FoundTimestamp | None:
        """The first record below `upper_bound` that is not older than `timestamp`. Reads the disk and waits for it."""
        local = self._local
        with self._reading():
            return first_at_or_after(
                self._segments, timestamp, log_start_offset=local.log_start_offset, upper_bound=upper_bound
            )

    def offset_of_max_timestamp(self, upper_bound: int) -> FoundTimestamp | None:
        """The record below `upper_bound` with the largest timestamp. Reads the disk and waits for it."""
        local = self._local
        with self._reading():
            return with_largest_timestamp(
                self._segments, log_start_offset=local.log_start_offset, upper_bound=upper_bound
            )

    def timestamp_at(self, offset: int, upper_bound: int) -> int | None:
        """That of the first record of the batch that holds `offset`, or of the next batch, if it begins below
        `upper_bound`. Reads the disk and waits for it."""
        with self._reading():
            header = batch_at(self._segments, offset)
            return header.base_timestamp if header is not None and header.base_offset < upper_bound else None

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Raises NotLeaderOrFollower where a thread finds no sense in segments that were cut, replaced or deleted while
        it looked: who asks again is answered."""
        local, segments = self._local, self._segments.all
        truncations = local.truncations
        try:
            yield
        except (OSError, InvalidBatchError) as error:
            if local.truncations != truncations or self._segments.all is not segments:
                raise NotLeaderOrFollower("segments of the log were replaced while it was read") from error
            if isinstance(error, OSError):
                raise storage_error("read", local.directory, error) from error
            raise CorruptMessage(f"{local.directory.name} is damaged: {error}") from error


def first_at_or_after(
    segments: Segments, timestamp: int, *, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    """The first record not older than `timestamp`, at or after the log start and below `upper_bound`. Raises
    InvalidBatchError where a damaged batch comes first: its header does not say what times it has."""
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp < timestamp:
            continue
        segment = segment.view()
        relative = segment.time_index.offset_before(timestamp)
        position = segment.anchor_for(segment.base_offset + relative).position
        for batch in segment.batches_from(position, check_crc=True):
            if batch.header.base_offset >= upper_bound:
                return None
            if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= log_start_offset:
                found = _first_record(batch, timestamp, log_start_offset, upper_bound)
                if found is not None:
                    return found
    return None


def batch_at(segments: Segments, offset: int) -> BatchHeader | None:
    """Of the first batch that ends after `offset`. Raises InvalidBatchError."""
    candidates = list(segments)
    after = bisect_right(candidates, offset, key=lambda segment: segment.base_offset)
    for segment in candidates[max(after - 1, 0) :]:
        view = segment.view()
        for batch in view.batches_from(view.anchor_for(offset).position, check_crc=True) if view.size else ():
            if batch.header.next_offset > offset:
                return batch.header
    return None


def with_largest_timestamp(
    segments: Iterable[Segment], *, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    """The first of the records that carry the largest timestamp."""
    best: FoundTimestamp | None = None
    for segment in segments:
        if segment.size == 0 or (best is not None and segment.max_timestamp <= best.timestamp):
            continue
        segment = segment.view()
        if segment.max_timestamp_offset < upper_bound:
            position = segment.anchor_for(segment.max_timestamp_offset).position
        else:
            position = 0
        best = _largest_in(segment, position, log_start_offset, upper_bound, best)
    return best


def _largest_in(
    segment: Segment, position: int, log_start_offset: int, upper_bound: int, best: FoundTimestamp | None
) -> FoundTimestamp | None:
    for batch in segment.batches_from(position, check_crc=True):
        if batch.header.base_offset >= upper_bound:
            break
        if batch.header.last_offset >= log_start_offset and (
            best is None or batch.header.max_timestamp > best.timestamp
        ):
            found = _first_record(batch, batch.header.max_timestamp, log_start_offset, upper_bound)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
    return best


def _first_record(
    batch: ScannedBatch, timestamp: int, log_start_offset: int, upper_bound: int
) -> FoundTimestamp | None:
    # Markers count, as in Kafka.
    for record in iterate_records(batch.view):
        if record.timestamp >= timestamp and log_start_offset <= record.offset < upper_bound:
            return FoundTimestamp(record.timestamp, record.offset, batch.header.partition_leader_epoch)
    return None
