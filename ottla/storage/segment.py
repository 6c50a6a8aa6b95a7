"""One segment: a log file and the indexes beside it.

Bytes are appended to the log file only; the indexes of the segment grow in memory and are written when it is rolled,
closed or rebuilt. That is safe because recovery rebuilds the indexes of every segment that was not wholly on disk.

A segment knows two ends. `size` is what the file holds and readers may see; `end_position` also counts batches that
are queued for the next write. `mark` and `rewind` undo the bookkeeping of a queue that could not be written.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from errno import ENOENT
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.records.batch import BATCH_HEADER_SIZE, BatchHeader, parse_batch_header
from ottla.storage.batch_scan import InvalidBatchError, ScannedBatch, indexable, scan
from ottla.storage.files import File, FileSystem, sync_file, write_atomically, write_file
from ottla.storage.indexes import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetIndex,
    TimeIndex,
    build_transaction_index,
    parse_transaction_index,
)
from ottla.storage.log_config import INT32_MAX, LogConfig
from ottla.storage.transactions import AbortedTxn

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

CLEANED_SUFFIX = ".cleaned"
"""Behind the names of a compacted segment's files until it is complete."""
SWAP_SUFFIX = ".swap"
"""Behind them from then on, until the segments that it replaces are out of the way."""
RESTART_SUFFIX = ".restart"
"""Behind the name of an empty segment while a log loses all others and goes on with it."""
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

NO_TIMESTAMP = -1
UNKNOWN = -1
READ_ENDS_REMEMBERED = 64


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class SegmentMark(NamedTuple):
    """The bookkeeping of a segment at one moment."""

    end_position: int
    unindexed_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    offset_entries: int
    time_entries: int


# One is made for every queue of batches; this takes half the time of calling the class.
_mark_of: Callable[[tuple[int, int, int, int, int, int, int]], SegmentMark] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - typeshed leaves the tuple's items open here.
    SegmentMark,
)


class Anchor(NamedTuple):
    """A batch boundary, and what must stand there: the first or the last offset of the batch."""

    position: int
    base_offset: int
    last_offset: int


class Segment:
    """The records from `base_offset` up to the next segment's."""

    def __init__(self, files: FileSystem, directory: Path, base_offset: int, *, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.size = 0
        self.end_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.is_flushed = self.is_index_full = False
        self._is_deleted = self._indexes_were_remade = self._is_view = False
        self._entries_max = INT32_MAX
        self._files = files
        self._directory = directory
        self._suffix = suffix
        self._stem = f"{directory}/{base_offset:020d}"
        self._file: File | None = None
        self._unindexed_bytes = 0
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._read_ends: dict[int, int] = {}
        # None: as the file says, if there is one.
        self._aborted: list[AbortedTxn] | None = None

    # Opening and closing

    @classmethod
    def create(cls, files: FileSystem, directory: Path, base_offset: int, *, suffix: str = "") -> "Segment":
        """An empty segment, with its files. What a crash left under their names is overwritten."""
        segment = cls(files, directory, base_offset, suffix=suffix)
        segment.make_file()
        segment.file.truncate(0)
        segment._offset_index, segment._time_index, segment._aborted = OffsetIndex(), TimeIndex(), []
        segment.write_indexes()
        return segment

    def copy_in(self, files: FileSystem, directory: Path) -> "Segment":
        """By the same files in another directory. Of one that was loaded and has not changed since."""
        copied = copy(self)
        copied._files, copied._directory, copied._stem = files, directory, f"{directory}/{self.base_offset:020d}"
        copied._file, copied._read_ends = None, {}
        copied._offset_index, copied._time_index = self.offset_index.copy(), self.time_index.copy()
        copied._aborted = list(self.aborted)
        return copied

    def view(self) -> "Segment":
        """For a thread beside the loop, which may cut or delete: it loads indexes for itself, and makes no file."""
        view = copy(self)
        view._is_view = True
        return view

    def path(self, suffix: str) -> Path:
        return Path(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return f"{self._stem}{suffix}{self._suffix}"

    @property
    def name(self) -> str:
        """How errors call the log file."""
        return f"{self._directory.name}/{file_name(self.base_offset, LOG_SUFFIX)}"

    @property
    def file(self) -> File:
        if self._file is None:
            if self._is_deleted:
                # Another log's may have come to be in its place.
                raise FileNotFoundError(ENOENT, "the segment was deleted")
            self._file = self._files.open(self._path(LOG_SUFFIX), create=False)
        return self._file

    def make_file(self) -> None:
        """Open the log file, and make it if it is not there. Raises OSError."""
        self._file = self._files.open(self._path(LOG_SUFFIX))

    def release(self) -> None:
        """Let go of the descriptor and of what can be read again. For segments that are not appended to."""
        # It closes when it is forgotten: a thread that looks for something in it may not have finished.
        self._file = None
        self._offset_index = self._time_index = None
        # That there are none stays known: readers of committed records ask all later segments.
        self._aborted = self._aborted and None

    def close_deleted(self) -> None:
        """Let go for ever: the files go, or belong to another segment from now on."""
        self._is_deleted = True
        self.release()

    def rename(self, suffix: str) -> None:
        """Put `suffix` behind the names of all files of the segment, in place of the one they have.

        Indexes may be missing. Raises OSError, also where the records are."""
        for kind in reversed(SEGMENT_SUFFIXES):
            source = self.path(kind)
            if kind == LOG_SUFFIX or self._files.exists(source):
                self._files.rename(source, self._directory / (file_name(self.base_offset, kind) + suffix))
        self._suffix = suffix

    def existing_paths(self) -> list[Path]:
        return [path for kind in SEGMENT_SUFFIXES if self._files.exists(path := self.path(kind))]

    # Appending

    def limit_index(self, size_bytes: int) -> None:
        """Say how large an index file may become: when one is full, the segment is."""
        # The time index gets an entry more when the segment is rolled.
        entries_max = min(size_bytes // OFFSET_ENTRY_SIZE, size_bytes // TIME_ENTRY_SIZE - 1)
        if entries_max != self._entries_max:
            self._entries_max = entries_max
            if self._offset_index is not None and self._time_index is not None:
                self._note_fullness(self._offset_index, self._time_index)

    def _note_fullness(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        self.is_index_full = max(len(offsets), len(times)) >= self._entries_max

    def note(self, last_offset: int, timestamp: int, size: int, interval_bytes: int, appended_at_ms: int) -> None:
        """Account for a batch at `end_position`. `timestamp` is its largest; -1 falls back on `appended_at_ms`."""
        if self.end_position == 0:
            self.first_timestamp = timestamp if timestamp >= 0 else appended_at_ms
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed_bytes > interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, self.end_position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._unindexed_bytes = 0
            self._note_fullness(self.offset_index, self.time_index)
        self.end_position += size
        self._unindexed_bytes += size

    def mark(self) -> SegmentMark:
        offsets, times = self._offset_index, self._time_index
        if offsets is None or times is None:
            offsets, times = self._load_indexes()
        end, unindexed, first = self.end_position, self._unindexed_bytes, self.first_timestamp
        latest, latest_offset = self.max_timestamp, self.max_timestamp_offset
        return _mark_of((end, unindexed, latest, latest_offset, first, len(offsets), len(times)))

    def rewind(self, mark: SegmentMark) -> None:
        """Forget all batches noted since `mark` was taken."""
        self.end_position, self._unindexed_bytes = mark.end_position, mark.unindexed_bytes
        self.max_timestamp, self.max_timestamp_offset = mark.max_timestamp, mark.max_timestamp_offset
        self.first_timestamp = mark.first_timestamp
        offsets, times = self.offset_index, self.time_index
        offsets.truncate(mark.offset_entries)
        times.truncate(mark.time_entries)
        self._note_fullness(offsets, times)

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        return self._load_indexes()[1] if index is None else index

    def write_indexes(self) -> None:
        """Bring the index files up to date. The largest timestamp gets an entry, so that recovery finds it."""
        self.write_position_indexes()
        self._write_transaction_index(write_file)

    def write_position_indexes(self) -> None:
        """As `write_indexes`, without the transaction index."""
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        write_file(self._files, self._path(OFFSET_INDEX_SUFFIX), self.offset_index.to_bytes())
        write_file(self._files, self._path(TIME_INDEX_SUFFIX), self.time_index.to_bytes())

    def replace_transaction_index(self) -> None:
        """Durably: nothing would show that a file is missing."""
        self._write_transaction_index(write_atomically)

    def _write_transaction_index(self, write: Callable[[FileSystem, Path, bytes], None]) -> None:
        """A segment without aborted transactions has no file."""
        if self._aborted:
            write(self._files, self.path(TRANSACTION_INDEX_SUFFIX), build_transaction_index(self._aborted))
        elif self._aborted is not None and self._files.exists(self.path(TRANSACTION_INDEX_SUFFIX)):
            self._files.remove(self.path(TRANSACTION_INDEX_SUFFIX))

    def sync_indexes(self) -> None:
        """As last written."""
        for path in self.index_paths():
            if self._files.exists(path):
                sync_file(self._files, path)

    def index_paths(self) -> list[Path]:
        """Of those files that may be there once the indexes were written. Reads nothing."""
        suffixes = [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX] + [TRANSACTION_INDEX_SUFFIX] * (self._aborted != [])
        return [self.path(suffix) for suffix in suffixes]

    # Aborted transactions whose marker is here

    @property
    def aborted(self) -> Sequence[AbortedTxn]:
        """In the order of their markers."""
        entries = self._aborted
        if entries is None:
            entries = self._aborted = self._read_aborted() or []
        return entries

    def note_aborted(self, entry: AbortedTxn) -> None:
        """Of a marker that is appended now."""
        assert isinstance(self.aborted, list), "the property has loaded it"
        self.aborted.append(entry)

    def forget_aborted(self) -> None:
        """Before they are noted again."""
        self._aborted = []

    def forget_aborted_from(self, offset: int) -> None:
        """Of markers that are cut off, or were not written. Reads nothing: where none is known, none was noted."""
        if self._aborted and self._aborted[-1].last_offset >= offset:
            self._aborted = [entry for entry in self._aborted if entry.last_offset < offset]

    def transaction_index_is_sound(self) -> bool:
        """Whether its file could be that of this segment, or there is none."""
        self._aborted = found = self._read_aborted()
        return found is not None

    def _read_aborted(self) -> list[AbortedTxn] | None:
        try:
            content = self._files.read_bytes(self._path(TRANSACTION_INDEX_SUFFIX))
        except FileNotFoundError:
            return []
        return parse_transaction_index(content, self.base_offset)

    def indexes_are_sound(self, interval_bytes: int) -> bool:
        """Whether both index files are there and could be those of this log file."""
        found = self._read_indexes()
        if found is None:
            return False
        self._offset_index, self._time_index = found
        return self.size == 0 or len(self._time_index) > 0 or self.size <= interval_bytes

    def clear(self) -> None:
        """Forget what is known about the batches, before they are noted again."""
        self.end_position = self._unindexed_bytes = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._read_ends.clear()

    def rebuild_indexes(self, interval_bytes: int) -> None:
        """Rebuild the indexes from a log file that is known to be good, and write them."""
        self.clear()
        for batch in indexable(scan(self.file, 0, self.size, check_crc=False), self.base_offset):
            self.note_scanned(batch.header, interval_bytes)
        self.write_indexes()

    def remake_indexes(self, interval_bytes: int) -> bool:
        """Replace the indexes of an inactive segment, where reading by them led astray, by new ones.

        False if that was done before or cannot be done, so that the log file itself is to blame. Raises OSError.
        """
        if self._indexes_were_remade:
            return False
        try:
            indexes = self._rebuilt_indexes(interval_bytes)
        except InvalidBatchError:
            self._indexes_were_remade = True
            return False
        self._indexes_were_remade = True
        self.release()
        self._offset_index, self._time_index = indexes
        self._read_ends.clear()
        return True

    def _rebuilt_indexes(self, interval_bytes: int) -> tuple[OffsetIndex, TimeIndex]:
        """Those of the log file, written. Raises OSError, InvalidBatchError; what is known of the batches stays."""
        fresh = Segment(self._files, self._directory, self.base_offset, suffix=self._suffix)
        fresh.size = self.size
        fresh.rebuild_indexes(interval_bytes)
        return fresh.offset_index, fresh.time_index

    def note_scanned(self, header: BatchHeader, interval_bytes: int) -> None:
        """Account for a batch that was read from the file itself."""
        self.note(header.last_offset, header.max_timestamp, header.size_bytes, interval_bytes, NO_TIMESTAMP)

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        found = self._read_indexes()
        if found is None and self._is_view:
            # The files may be gone, and those of another segment or log in their place; a search begins at the start.
            found = OffsetIndex(), TimeIndex()
        elif found is None:
            found = self._rebuilt_indexes(LogConfig().index_interval_bytes)
        self._offset_index, self._time_index = found
        self._note_fullness(*found)
        return found

    def _read_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        """What the index files say, or None if they are not both there or could not be those of this log file."""
        try:
            offsets = OffsetIndex.from_bytes(self._files.read_bytes(self._path(OFFSET_INDEX_SUFFIX)), self.size)
            times = TimeIndex.from_bytes(self._files.read_bytes(self._path(TIME_INDEX_SUFFIX)))
        except FileNotFoundError:
            return None
        return None if offsets is None or times is None else (offsets, times)

    # Reading

    def anchor_for(self, offset: int) -> Anchor:
        """Where to begin scanning for the batch that holds `offset`: exact where a reader has just stopped."""
        position = self._read_ends.get(offset)
        if position is not None:
            return Anchor(position, offset, UNKNOWN)
        entry = self.offset_index.entry_before(offset - self.base_offset)
        if entry is None:
            return Anchor(0, self.base_offset, UNKNOWN)
        return Anchor(entry[1], UNKNOWN, self.base_offset + entry[0])

    def remember_read_end(self, offset: int, position: int) -> None:
        """A reader has got as far as `offset`, which begins at `position`, and will most likely go on there."""
        if len(self._read_ends) >= READ_ENDS_REMEMBERED:
            del self._read_ends[next(iter(self._read_ends))]
        self._read_ends[offset] = position

    def batches_from(self, position: int, *, check_crc: bool = False) -> Iterator[ScannedBatch]:
        return scan(self.file, position, self.size, check_crc=check_crc)

    def begin_timestamp(self) -> int:
        """When the segment began, by its first batch, or -1; that decides when it is rolled."""
        if self.first_timestamp == NO_TIMESTAMP and self.size >= BATCH_HEADER_SIZE:
            self.first_timestamp = parse_batch_header(self.file.pread(BATCH_HEADER_SIZE, 0)).max_timestamp
        return self.first_timestamp

    def last_modified_ms(self) -> int:
        return self._files.modified_ms(self.path(LOG_SUFFIX))

    # Truncation

    def cut_point(self, offset: int) -> tuple[int, int]:
        """Where the first batch begins that ends after `offset`: its position and its base offset, at most `offset`."""
        start, end_offset = self.anchor_for(offset).position, offset
        for batch in self.batches_from(start):
            if batch.header.next_offset > offset:
                return batch.position, min(batch.header.base_offset, offset)
        return self.size, end_offset

    def truncate(self, position: int, end_offset: int) -> None:
        """Cut the log file at `position`, where the records from `end_offset` on begin, and the indexes by entry.

        The index files follow when the segment is rolled or closed. Raises OSError; then nothing has changed."""
        # All that has to be read is, before the file is cut.
        offsets, times, file, _ = self.offset_index, self.time_index, self.file, self.aborted
        kept = offsets.count_below(position)
        kept_times = times.count_below(end_offset - self.base_offset)
        # Each entry of the offset index came with the largest timestamp up to its batch.
        scan_from = offsets.entry(kept - 1)[1] if kept else 0
        max_timestamp, max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        if kept_times:
            max_timestamp, relative_offset = times.entry(kept_times - 1)
            max_timestamp_offset = self.base_offset + relative_offset
        for batch in scan(file, scan_from, position, check_crc=False):
            if batch.header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = batch.header.max_timestamp, batch.header.last_offset
        first_timestamp = self.begin_timestamp() if position else NO_TIMESTAMP
        file.truncate(position)
        self.size = position
        self.forget_aborted_from(end_offset)
        unindexed_bytes = position - scan_from
        self.rewind(
            SegmentMark(
                position, unindexed_bytes, max_timestamp, max_timestamp_offset, first_timestamp, kept, kept_times
            )
        )
        self._read_ends.clear()
