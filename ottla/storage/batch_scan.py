"""Reading a log file batch by batch, a large piece at a time: for recovery, truncation, compaction and look-ups.

Base offsets and leader epochs lie outside a batch's checksum. Only its neighbours can contradict them: `BatchOrder`.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    parse_batch_header,
)
from ottla.storage.files import File
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.log_config import INT32_MAX

CHUNK_BYTES = 1024 * 1024


class InvalidBatchError(Exception):
    """What stands at `position` is not a whole, undamaged batch."""

    def __init__(self, position: int, reason: str, *, is_torn: bool = False) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.is_torn = is_torn
        """Whether the file ends within the batch, as after a write that was broken off."""


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    view: memoryview
    """The whole batch; good until the next one is asked for."""


def scan(file: File, position: int, end: int, *, check_crc: bool = True) -> Iterator[ScannedBatch]:
    """The batches from `position`, a batch boundary, up to `end`. Raises InvalidBatchError where they stop short."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        at = position - chunk_start
        if len(chunk) - at < BATCH_HEADER_SIZE:
            chunk, chunk_start, at = memoryview(file.pread(min(CHUNK_BYTES, end - position), position)), position, 0
        header = _header_at(chunk, at, position, end)
        if len(chunk) - at < header.size_bytes:
            size = max(CHUNK_BYTES, header.size_bytes)
            chunk, chunk_start, at = memoryview(file.pread(min(size, end - position), position)), position, 0
            if len(chunk) < header.size_bytes:
                raise InvalidBatchError(position, "a batch that the file does not hold whole", is_torn=True)
        if check_crc and not crc_is_valid(chunk, at, header):
            raise InvalidBatchError(position, "a batch whose checksum does not match")
        yield ScannedBatch(position, header, chunk[at : at + header.size_bytes])
        position += header.size_bytes


def successive(
    batches: Iterable[ScannedBatch], base_offset: int, last_offset: int, *, has_gaps: bool
) -> Iterator[ScannedBatch]:
    """`batches`, of which the first one's base or last offset is known and the other is -1. Raises InvalidBatchError at
    one that does not begin where the one before it has ended."""
    due = base_offset
    for batch in batches:
        header = batch.header
        if due < 0:
            due = last_offset - header.last_offset_delta
        if header.base_offset < due or (header.base_offset > due and not has_gaps):
            raise InvalidBatchError(batch.position, f"base offset {header.base_offset} where {due} was due")
        due = header.next_offset
        yield batch


def indexable(batches: Iterable[ScannedBatch], base_offset: int) -> Iterator[ScannedBatch]:
    """`batches` of the segment at `base_offset`. Raises InvalidBatchError at one that begins before the one before it
    has ended, or is too far away for the entry of an index, which has four bytes for it."""
    for batch in successive(batches, 0, -1, has_gaps=True):
        if batch.header.last_offset - base_offset > INT32_MAX:
            why = f"offset {batch.header.last_offset} in the segment of {base_offset}"
            raise InvalidBatchError(batch.position, why)
        yield batch


def _header_at(chunk: memoryview, at: int, position: int, end: int) -> BatchHeader:
    if len(chunk) - at < BATCH_HEADER_SIZE:
        raise InvalidBatchError(position, "the torn header of a batch", is_torn=True)
    header = parse_batch_header(chunk, at)
    if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC or header.last_offset_delta < 0:
        raise InvalidBatchError(position, "no batch header of format 2")
    if position + header.size_bytes > end:
        raise InvalidBatchError(position, "a batch that the file does not hold whole", is_torn=True)
    return header


Segment = TypeVar("Segment")


class BatchFault(NamedTuple, Generic[Segment]):
    """Where a log stops being sound."""

    segment: Segment
    position: int
    reason: str
    is_torn: bool = False


class _Seen(NamedTuple, Generic[Segment]):
    segment: Segment
    position: int
    leader_epoch: int
    is_in_epoch: bool
    """Whether anything else says that a batch of that epoch is there."""
    follows_gap: bool


class BatchOrder(Generic[Segment]):
    """Holds each batch of a log against the one before it.

    Base offsets and leader epochs rise along a log. Where one falls, either of two batches is damaged. It is the
    earlier one, unless something speaks for it: that it follows without a gap, or that the batch before it, or the
    checkpoint of leader epochs, has its epoch too.
    """

    def __init__(self, stored_epochs: LeaderEpochCache, *, may_have_gaps: bool) -> None:
        self._stored_epochs = stored_epochs
        self._may_have_gaps = may_have_gaps
        self._previous: _Seen[Segment] | None = None

    def fault_at(
        self, segment: Segment, position: int, header: BatchHeader, expected: int, bound: int
    ) -> BatchFault[Segment] | None:
        """What is wrong with the next batch, where offset `expected` is due and `bound` the next segment begins."""
        previous, base, epoch = self._previous, header.base_offset, header.partition_leader_epoch
        if base < expected or (base > expected and not self._may_have_gaps):
            is_here = previous is None or base > expected or not previous.follows_gap
            reason = f"base offset {base} where {expected} was due, at {position}"
        elif header.next_offset > bound:
            is_here = True
            reason = f"a batch that ends before offset {header.next_offset}, beyond the segment's end {bound}"
        elif previous is not None and epoch < previous.leader_epoch:
            is_here = previous.is_in_epoch
            reason = f"leader epoch {epoch} after {previous.leader_epoch}, at {position}"
        else:
            shares = previous is not None and previous.leader_epoch == epoch
            is_in_epoch = shares or self._stored_epochs.epoch_at(base) == epoch
            self._previous = _Seen(segment, position, epoch, is_in_epoch, follows_gap=base > expected)
            return None
        if is_here or previous is None:
            return BatchFault(segment, position, reason)
        return BatchFault(previous.segment, previous.position, reason)
