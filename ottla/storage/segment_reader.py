"""Reading whole batches for fetches, every one of them checked.

A read takes one piece of a segment and walks the headers in it: past the batches before the asked offset, then along
those that are answered, up to the bound and the size limit. On the way it makes sure that nothing damaged leaves:

* the checksum covers a batch from its attributes on;
* base offsets lie outside it, so the first batch must stand where the index, the segment's name or the previous read
  says, and each other one must continue the batch before it;
* leader epochs lie outside it too, so they must be those of the log's leader epoch cache;
* lengths and magic must make sense.

Compacted logs have gaps, so below `gaps_until` offsets need only rise.

The bytes are read without waiting for the disk. What is not in the page cache raises `WouldBlock`, with a function
that does the same read and waits, through a descriptor of its own: run it in a thread.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CRC_COVERS_FROM,
    LENGTH_OVERHEAD,
    MAGIC,
    crc32c,
)
from ottla.storage.buffer_pool import ReadBuffers
from ottla.storage.files import File, storage_error
from ottla.storage.leader_epoch_cache import UNKNOWN_EPOCH, LeaderEpochCache
from ottla.storage.segment import UNKNOWN, Anchor, Segment

_unpack_header = Struct(">qiibIhi").unpack_from
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""

# Of all logs that one loop reads.
BUFFERS = ReadBuffers()

READ_AHEAD_BYTES = 8 * 1024
"""Read beyond the limit, because the index leads only to within a few kilobytes of the offset."""


class ReadResult(NamedTuple):
    """Whole batches, or none."""

    records: memoryview
    end_offset: int
    """Where to read on: the offset after the last batch, or the asked one if there is none."""


class SegmentRead(NamedTuple):
    """All that a read of one segment depends on, as it stood when the read began."""

    segment: Segment
    file: File
    anchor: Anchor
    size: int
    end_offset: int
    offset: int
    upper_bound: int
    max_bytes: int
    min_one_batch: bool
    gaps_until: int
    epochs: LeaderEpochCache

    @property
    def name(self) -> str:
        """Made when it is needed, as few reads fail."""
        return self.segment.name


class Selection(NamedTuple):
    """What a read found: the batches in `records`, the last of which ends at `end_position` before `end_offset`."""

    records: memoryview
    end_position: int
    end_offset: int
    is_exhausted: bool
    """Whether the segment has nothing more from there on."""


# These are made for every read; this takes half the time of calling the class.
result_of: Callable[[tuple[memoryview, int]], ReadResult] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - typeshed leaves the tuple's items open here.
    ReadResult,
)
read_of: Callable[[tuple[Segment, File, Anchor, int, int, int, int, int, bool, int, LeaderEpochCache]], SegmentRead] = (
    partial(
        tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
        SegmentRead,
    )
)
_selection_of: Callable[[tuple[memoryview, int, int, bool]], Selection] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
    Selection,
)


class WouldBlock(Exception):
    """The bytes are not in memory. `complete()` reads them from the disk, and is made to be called in a thread.

    It raises what `Log.read` raises, except WouldBlock. Call it once, or drop it.
    """

    def __init__(self, complete: Callable[[], ReadResult], end_offset: int) -> None:
        """`end_offset`: it reads none from there on, as the segment ends there."""
        super().__init__("the records are not in the page cache")
        self.complete = complete
        self.end_offset = end_offset


def select_nowait(read: SegmentRead) -> Selection:
    """Raises WouldBlock, CorruptMessage or OSError."""
    wanted = _first_piece(read)
    while True:
        buffer = BUFFERS.take(wanted)
        try:
            count = read.file.readinto_nowait(buffer, read.anchor.position)
        except BlockingIOError:
            count = 0
        found = _select(read, buffer[:count])
        if not isinstance(found, int):
            return found
        if count < wanted:
            raise WouldBlock(_completion(read._replace(file=read.file.duplicate())), read.end_offset)
        wanted = found


def select_waiting(read: SegmentRead) -> Selection:
    """Raises CorruptMessage or OSError."""
    wanted = _first_piece(read)
    while True:
        data = read.file.pread(wanted, read.anchor.position)
        found = _select(read, memoryview(data))
        if not isinstance(found, int):
            return found
        if len(data) < wanted:
            raise CorruptMessage(f"{read.name} is shorter than the {read.size} bytes that were written to it")
        wanted = found


def _first_piece(read: SegmentRead) -> int:
    left, wanted = read.size - read.anchor.position, read.max_bytes + READ_AHEAD_BYTES
    if left < wanted:
        return left
    return wanted


def _completion(read: SegmentRead) -> Callable[[], ReadResult]:
    def complete() -> ReadResult:
        try:
            found = select_waiting(read)
        except OSError as error:
            raise storage_error("read", read.name, error) from error
        finally:
            read.file.close()
        return ReadResult(found.records, found.end_offset)

    return complete


def _select(read: SegmentRead, view: memoryview) -> Selection | int:
    """The batches to answer, or how many bytes it takes to find them. Raises CorruptMessage if the first is damaged.

    A damaged batch after good ones ends the answer; the reader meets it when it comes back for more.
    """
    offset, upper_bound, room = read.offset, read.upper_bound, read.max_bytes
    available, limit = len(view), read.size - read.anchor.position
    position = begin = end = 0
    expected, epoch, end_offset = read.anchor.base_offset, UNKNOWN_EPOCH - 1, offset
    problem = ""
    while position + BATCH_HEADER_SIZE <= available:
        base, length, batch_epoch, magic, crc, _, delta = _unpack_header(view, position)
        following = position + length + LENGTH_OVERHEAD
        if base != expected or batch_epoch != epoch or magic != MAGIC or following > limit or length < BATCH_LENGTH_MIN:
            problem = _problem_with(read, base, length, batch_epoch, magic, delta, expected, following > limit)
            if problem:
                break
            epoch = batch_epoch
        expected = base + delta + 1
        if expected > offset:
            if not end:
                begin = position
            too_large = following - begin > room and (end or not read.min_one_batch)
            if expected > upper_bound or too_large:
                if expected > read.end_offset:
                    problem = f"a batch that ends before offset {expected}, beyond the segment's end {read.end_offset}"
                    break
                return _selection_of((view[begin:end], read.anchor.position + end, end_offset, False))
            if following > available:
                break
            if crc32c(view[position + CRC_COVERS_FROM : following]) != crc:
                problem = "a batch whose checksum does not match"
                break
            end, end_offset = following, expected
        position = following
    if end or position == limit:
        return _selection_of((view[begin:end], read.anchor.position + end, end_offset, not end))
    if problem or position + BATCH_HEADER_SIZE > limit:
        where = read.anchor.position + position
        raise CorruptMessage(f"{read.name} has {problem or 'a torn batch header'} at position {where}")
    return _piece_for(view, position, limit)


def _piece_for(view: memoryview, position: int, limit: int) -> int:
    """How many bytes hold the whole batch at `position`, of which the view has at most a part."""
    if position + BATCH_HEADER_SIZE > len(view):
        return min(position + BATCH_HEADER_SIZE + READ_AHEAD_BYTES, limit)
    length: int = _unpack_header(view, position)[1]
    return position + length + LENGTH_OVERHEAD


def _problem_with(
    read: SegmentRead, base: int, length: int, epoch: int, magic: int, delta: int, expected: int, too_long: bool
) -> str:
    """What is wrong with a header that does not simply continue the batch before it; empty for nothing."""
    if magic != MAGIC or length < BATCH_LENGTH_MIN or delta < 0 or too_long:
        return "a batch header that makes no sense"
    if expected == UNKNOWN:
        if base + delta != read.anchor.last_offset:
            return (
                f"a batch that ends at offset {base + delta} and not, as the index says, at {read.anchor.last_offset}"
            )
    elif base < expected or (base > expected and base > read.gaps_until):
        return f"base offset {base} where {expected} was due"
    if read.epochs.epoch_at(base) not in (epoch, UNKNOWN_EPOCH):
        return f"leader epoch {epoch} where {read.epochs.epoch_at(base)} was due"
    return ""
