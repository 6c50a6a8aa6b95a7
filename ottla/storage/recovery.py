"""Opening the directory of a log after whatever happened to it.

After a clean shutdown the files are believed. After anything else, every batch from the recovery point on is read and
checked, because the operating system may have written any part of them: at the first byte that is not a whole, sound
batch the log ends, and what follows, later segments included, is removed. Offsets must rise; one may be missing only
from a log that may have gaps (`Gaps`), and between segments only where compaction has listed it (`compacted_ranges`).
Indexes, producer state and leader epochs of that stretch are rebuilt from the batches (`found_log`). Before that,
`finish_interrupted_work` sees to the files that a crash left half-way.

What is cut off may have been acknowledged, so `when_lost` is called first: this replica must not be taken for one that
has everything. The exception is a batch at the very end that was not written whole: a process that is killed leaves it,
and no leader has acknowledged it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.records.batch import crc_is_valid
from ottla.storage import checkpoints
from ottla.storage.batch_scan import BatchFault, BatchOrder, InvalidBatchError, ScannedBatch, scan, successive
from ottla.storage.compacted_ranges import CompactedRange, read_ranges
from ottla.storage.durability import FAILED_SYNC, write_again
from ottla.storage.files import FileSystem, write_atomically
from ottla.storage.found_log import FoundLog
from ottla.storage.interrupted_work import Notices, bases_of, finish_interrupted_work
from ottla.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache, build_epochs, parse_epochs
from ottla.storage.local_log import NO_GAPS, mark_without_gaps
from ottla.storage.log_config import INT32_MAX, INT64_MAX, LogConfig
from ottla.storage.segment import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)


class RecoveryProgress:
    """How far the opening of a data directory has come: written by the thread that opens, read by any other."""

    __slots__ = ("bytes_checked", "logs_opened", "logs_total")

    def __init__(self) -> None:
        self.logs_total = 0
        self.logs_opened = 0
        self.bytes_checked = 0


class LogHistory(NamedTuple):
    """What the data directory's checkpoints say of a log, and whether to believe its files."""

    was_closed_cleanly: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_until: int = 0


def find_log(
    files: FileSystem,
    directory: Path,
    *,
    config: LogConfig,
    history: LogHistory,
    notices: Notices,
    when_lost: Callable[[], None] = lambda: None,
    progress: RecoveryProgress | None = None,
    topic_id: bytes | None = None,
) -> FoundLog:
    """The log in `directory`, recovered. Raises OSError. `notices` is called with everything that was found amiss.

    `when_lost` is called before records are cut off that may have been acknowledged. `progress` counts on. `topic_id`
    is what the directory says of it, where that is known."""
    names = finish_interrupted_work(files, directory, notices, when_lost)
    return _Opening(
        files,
        directory,
        config,
        history,
        notices,
        when_lost,
        topic_id,
        names=names,
        has_gaps=NO_GAPS not in names,
        compacted=read_ranges(files, directory) if checkpoints.COMPACTED_RANGES in names else None,
        progress=progress or RecoveryProgress(),
        marked=[],
        gaps=[],
    ).run()


class _Opening(NamedTuple):
    files: FileSystem
    directory: Path
    config: LogConfig
    history: LogHistory
    notices: Notices
    when_lost: Callable[[], None]
    topic_id: bytes | None
    names: list[str]
    """In the directory at first. What is not there need not be looked for."""
    has_gaps: bool
    """Whether offsets may be missing."""
    compacted: list[CompactedRange] | None
    """What compaction has left out; None where it did not say."""
    progress: RecoveryProgress
    marked: list[int]
    """Base offsets of recovered segments that have markers of transactions, or other control batches."""
    gaps: list[int]
    """Where offsets were missing in recovered segments."""

    def run(self) -> FoundLog:
        bases = bases_of(self.names, LOG_SUFFIX)
        self._remove_orphans(set(bases))
        loaded = [self._load_segment(base) for base in self._without_deleted(bases)]
        in_file: Sequence[EpochEntry] = self._read_epochs()
        epochs, stored_epochs = LeaderEpochCache(in_file), LeaderEpochCache(in_file)
        in_file = stored_epochs.entries
        first_suspect = self._first_suspect(loaded, epochs)
        if FAILED_SYNC in self.names:
            write_again(self.files, self.directory, [segment.path(LOG_SUFFIX) for segment in loaded[first_suspect:]])
        order: BatchOrder[Segment] = BatchOrder(stored_epochs, may_have_gaps=self.has_gaps)
        loaded, log_end_offset = self._find_end(loaded, first_suspect, epochs, order)
        log_start_offset = max(self.history.log_start_offset, loaded[0].base_offset if loaded else 0)
        if not loaded or log_end_offset < log_start_offset:
            loaded, log_end_offset = [self._restart(loaded, log_start_offset)], log_start_offset
        clean = self.history.was_closed_cleanly
        recovery_point = log_end_offset if clean else min(self.history.recovery_point, log_end_offset)
        recovery_point = max(recovery_point, log_start_offset)
        for each in (epochs, stored_epochs):
            each.truncate_from_start(log_start_offset)
            # Last, so that nothing is left of an empty log: later epochs may have been deleted before they were stored.
            each.truncate_from_end(log_end_offset)
        if epochs.below(recovery_point) != stored_epochs.below(recovery_point):
            content = build_epochs(epochs.entries)
            write_atomically(self.files, self.directory / checkpoints.LEADER_EPOCHS, content)
            in_file = epochs.entries
        has_gaps = self.has_gaps
        if self._has_lost_its_mark(loaded):
            mark_without_gaps(self.files, self.directory)
            has_gaps = False
        return FoundLog(
            segments=loaded,
            epochs=epochs,
            stored_epochs=in_file,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            high_watermark=min(max(self.history.high_watermark, log_start_offset), log_end_offset),
            cleaned_until=min(self.history.cleaned_until, log_end_offset),
            has_gaps=has_gaps,
            snapshots=bases_of(self.names, SNAPSHOT_SUFFIX),
            marked=self.marked,
            topic_id=self.topic_id or self._read_topic_id(),
        )

    def _has_lost_its_mark(self, loaded: list[Segment]) -> bool:
        """Whether this is a log without gaps that does not say so: a loss of power took the name of `NO_GAPS` and left
        others. That can only be before the second segment, which makes all names durable that were before it."""
        is_believed = self.has_gaps and self.compacted is None and not self.history.was_closed_cleanly
        return is_believed and len(loaded) == 1 and not self.gaps

    def _remove_orphans(self, bases: set[int]) -> None:
        for suffix in SEGMENT_SUFFIXES[1:]:
            for base in bases_of(self.names, suffix):
                if base not in bases:
                    self.files.remove(self.directory / file_name(base, suffix))

    # Segments

    def _without_deleted(self, bases: list[int]) -> list[int]:
        """Those of the segments that are not below the log start as a whole.

        The others were about to be deleted. Where the disk keeps no order between names, some may be back, with holes
        between them."""
        deleted = [base for base, end in pairwise(bases) if end <= self.history.log_start_offset]
        for base in deleted:
            for suffix in reversed(SEGMENT_SUFFIXES):
                self.files.remove(self.directory / file_name(base, suffix))
        return bases[len(deleted) :]

    def _load_segment(self, base: int) -> Segment:
        segment = Segment(self.files, self.directory, base)
        segment.size = segment.end_position = self.files.size(segment.path(LOG_SUFFIX))
        return segment

    def _find_end(
        self, segments: list[Segment], first_suspect: int, epochs: LeaderEpochCache, order: BatchOrder[Segment]
    ) -> tuple[list[Segment], int]:
        """The segments that are sound, indexed, and the offset where they end."""
        end_offset = segments[0].base_offset if segments else 0
        for n, segment in enumerate(segments):
            following = segments[n + 1] if n + 1 < len(segments) else None
            found = self._adopt(segment, following) if n < first_suspect else None
            if found is not None:
                end_offset = found
            else:
                begin = end_offset if n else segment.base_offset
                bound = following.base_offset if following is not None else INT64_MAX
                end_offset, fault = self._recover(segment, epochs, order, max(begin, segment.base_offset), bound)
                if fault is not None:
                    return self._cut(segments, fault, end_offset)
            if following is not None and self._misses_records(segment, end_offset, following):
                self._remove(segments[n + 1 :])
                return segments[: n + 1], end_offset
        return segments, end_offset

    def _first_suspect(self, segments: list[Segment], epochs: LeaderEpochCache) -> int:
        """The first segment that may hold something that never reached the disk."""
        if self.history.was_closed_cleanly:
            return len(segments)
        if not epochs.entries:
            # Whatever the recovery point says, it does not speak of this log: no flush leaves records without epochs.
            return 0
        # A flush that ended exactly with a segment may have come before its indexes were written: strictly below.
        before = [n for n, segment in enumerate(segments) if segment.base_offset < self.history.recovery_point]
        return before[-1] if before else 0

    def _adopt(self, segment: Segment, following: Segment | None) -> int | None:
        """Take a trusted segment as it is, if its indexes are sound: the offset where it ends, or None.

        Its file is looked at where it is the last one, and where names may have changed in any order: a truncation that
        had dropped `following` too may have left it."""
        if not (
            segment.indexes_are_sound(self.config.index_interval_bytes) and self._has_sound_transaction_index(segment)
        ):
            self.notices(f"{segment.name}: an index is missing or damaged and is rebuilt")
            return None
        last = segment.time_index.last
        if last is not None:
            segment.max_timestamp, segment.max_timestamp_offset = last[0], segment.base_offset + last[1]
        segment.is_flushed = True
        if following is not None and (self.history.was_closed_cleanly or self.has_gaps):
            return following.base_offset
        try:
            end_offset = self._end_of_trusted(segment, following)
        except InvalidBatchError as error:
            self.notices(f"{segment.name}: not as it was closed, {error}; recovering it")
            return None
        if following is None:
            segment.begin_timestamp()
        return end_offset

    def _has_sound_transaction_index(self, segment: Segment) -> bool:
        if file_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX) in self.names:
            return segment.transaction_index_is_sound()
        segment.forget_aborted()
        return True

    def _end_of_trusted(self, segment: Segment, following: Segment | None) -> int:
        """The offset after the last batch, found from the last index entry on. Raises InvalidBatchError where that is
        not what was written: no checksum covers a base offset, so it is held against its neighbours.

        Checksums are for readers, who go on behind a damaged batch; but where nothing follows the last one, its own
        checksum is all that says where the log ends."""
        anchor = segment.anchor_for(INT64_MAX - 1)
        batches, end_offset = segment.batches_from(anchor.position), anchor.base_offset
        last: ScannedBatch | None = None
        for last in successive(batches, end_offset, anchor.last_offset, has_gaps=self.has_gaps):
            end_offset = last.header.next_offset
        if following is not None and end_offset != following.base_offset:
            raise InvalidBatchError(segment.size, f"end offset {end_offset}, but {following.base_offset} is next,")
        if following is None and last is not None and not crc_is_valid(last.view, 0, last.header):
            raise InvalidBatchError(last.position, "a last batch whose checksum does not match")
        return end_offset

    def _recover(
        self, segment: Segment, epochs: LeaderEpochCache, order: BatchOrder[Segment], end_offset: int, bound: int
    ) -> tuple[int, BatchFault[Segment] | None]:
        """Check every batch and index it: the offset after the last good one, and what is wrong after it."""
        size, segment.size = segment.size, 0
        segment.clear()
        segment.forget_aborted()
        self.progress.bytes_checked += size
        try:
            for batch in scan(segment.file, 0, size):
                header = batch.header
                fault = order.fault_at(segment, batch.position, header, end_offset, bound)
                if fault is not None:
                    return end_offset, fault
                if header.base_offset > end_offset:
                    self.gaps.append(end_offset)
                if header.is_control and segment.base_offset not in self.marked[-1:]:
                    self.marked.append(segment.base_offset)
                segment.note_scanned(header, self.config.index_interval_bytes)
                if 0 <= header.partition_leader_epoch != epochs.epoch_at(header.base_offset):
                    # The file and the log became durable apart; what a batch says of itself counts.
                    epochs.truncate_from_end(header.base_offset)
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
                end_offset = header.next_offset
        except InvalidBatchError as error:
            return end_offset, BatchFault(segment, error.position, str(error), error.is_torn)
        segment.size = segment.end_position
        self._write_indexes(segment)
        return end_offset, None

    def _write_indexes(self, segment: Segment) -> None:
        """Where there are markers, behind the transaction index, which is made later (`_rebuild_producers`): only
        indexes that are missing show that the segment has to be recovered."""
        if segment.base_offset not in self.marked[-1:]:
            segment.write_indexes()

    def _cut(self, segments: list[Segment], fault: BatchFault[Segment], end_offset: int) -> tuple[list[Segment], int]:
        """End the log at the first batch that may be damaged: what is left, and the offset where it ends."""
        segment = fault.segment
        n = segments.index(segment)
        if segment.end_position > fault.position:
            # Only a later batch has shown it.
            end_offset = segment.base_offset
            segment.clear()
            for batch in scan(segment.file, 0, fault.position, check_crc=False):
                segment.note_scanned(batch.header, self.config.index_interval_bytes)
                end_offset = batch.header.next_offset
        if not (fault.is_torn and n == len(segments) - 1 and self._was_never_acknowledged(end_offset)):
            self.when_lost()
        segment.size = segment.end_position
        size = segment.file.size()
        self.notices(
            f"{segment.name}: {fault.reason}; cut from {size} to {segment.size} bytes, end offset {end_offset}"
        )
        segment.file.truncate(segment.size)
        self._write_indexes(segment)
        self._remove(segments[n + 1 :])
        return segments[: n + 1], end_offset

    def _was_never_acknowledged(self, torn_offset: int) -> bool:
        """Whether a torn batch is what a killed process was writing. A damaged length looks the same."""
        return not self.history.was_closed_cleanly and torn_offset >= self.history.high_watermark

    def _misses_records(self, segment: Segment, end_offset: int, following: Segment) -> bool:
        """As after a truncation of which only one part reached the disk."""
        if end_offset == following.base_offset:
            return False
        if self.has_gaps and end_offset < following.base_offset and self._is_gap(segment, following):
            return False
        self.when_lost()
        self.notices(f"{segment.name}: ends at offset {end_offset}, but the next begins at {following.base_offset}")
        return True

    def _is_gap(self, segment: Segment, following: Segment) -> bool:
        """Whether what is missing at the end of a segment never was there, or is gone for good."""
        if self.compacted is None or self._is_trusted_below(following.base_offset):
            return True
        listed = [each for each in self.compacted if each.is_of(segment.base_offset, segment.size)]
        return any(following.base_offset <= each.end_offset for each in listed) or _is_too_wide(segment, following)

    def _is_trusted_below(self, offset: int) -> bool:
        """Whether all that was written below `offset` had reached the disk."""
        return self.history.was_closed_cleanly or offset <= self.history.recovery_point

    def _remove(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            self.notices(f"{segment.name}: removed, because the log ends before it")
            paths = segment.existing_paths()
            segment.release()
            for path in reversed(paths):
                self.files.remove(path)

    def _restart(self, segments: list[Segment], offset: int) -> Segment:
        if any(segment.size for segment in segments):
            self.when_lost()
        self._remove(segments)
        return Segment.create(self.files, self.directory, offset)

    # The rest

    def _read_epochs(self) -> list[EpochEntry]:
        if checkpoints.LEADER_EPOCHS not in self.names:
            return []
        try:
            content = self.files.read_bytes(f"{self.directory}/{checkpoints.LEADER_EPOCHS}")
            # Kafka begins with an empty file.
            return parse_epochs(content) if content else []
        except ValueError as error:
            name = f"{self.directory.name}/{checkpoints.LEADER_EPOCHS}"
            self.notices(f"{name} is not readable ({error}) and counts as empty")
            return []

    def _read_topic_id(self) -> bytes | None:
        if checkpoints.PARTITION_METADATA not in self.names:
            return None
        try:
            content = self.files.read_bytes(f"{self.directory}/{checkpoints.PARTITION_METADATA}")
            return checkpoints.parse_partition_metadata(content)
        except ValueError as error:
            name = f"{self.directory.name}/{checkpoints.PARTITION_METADATA}"
            self.notices(f"{name} is not readable ({error}) and counts as missing")
            return None


def _is_too_wide(segment: Segment, following: Segment) -> bool:
    """Whether the next segment begins with a batch that this one could not take: its offset is too far away."""
    try:
        first = next(scan(following.file, 0, following.size, check_crc=False), None) if following.size else None
    except InvalidBatchError:
        # Where its first batch is torn, the segment itself is lost.
        return False
    return first is not None and first.header.last_offset - segment.base_offset > INT32_MAX
