"""Compaction: of each key only the record with the highest offset stays.

A pass has three steps. `plan_compaction` looks at the log and decides whether and how far to clean. `compact` does the
heavy part on inactive segments, and may run in a thread: it notes the last offset of every key in the dirty part, then
writes all segments up to there again, as `.cleaned` files, without the records that are outdated. `begin_swap` says how
they are put in place, partly in the thread that owns the log; if the log is truncated in between, what is not in place
is removed.

Offsets never change. A tombstone stays until the delete horizon, a moment written into its batch the first time it is
cleaned, so that a reader has `delete.retention.ms` to see it. The last batch of each active producer stays, emptied if
need be, because the producer's next sequence number is read off it.

The swap survives a crash at any point: `.cleaned` files are nothing yet; from the moment a synced `.log.cleaned` is
renamed to `.log.swap`, the new segment counts, and recovery finishes what is left. Which segments it replaces says the
file `ottla-compacted-ranges` (`compacted_ranges`): the new one does not, for its last records may be gone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import CorruptMessage, KafkaError, KafkaStorageError
from ottla.protocol.records.batch import BatchHeader, parse_batch_header
from ottla.protocol.records.record import Record, iterate_records, rebuild_batch
from ottla.storage.batch_scan import InvalidBatchError, ScannedBatch, scan
from ottla.storage.compacted_ranges import CompactedRange, write_ranges
from ottla.storage.files import Buffer, File, FileSystem, storage_error
from ottla.storage.leader_epoch_cache import EpochWrite
from ottla.storage.log import Log
from ottla.storage.log_config import INT32_MAX, LogConfig
from ottla.storage.marker_retention import MarkerRetention
from ottla.storage.producer_entry import ProducerState
from ottla.storage.retention import largest_timestamp
from ottla.storage.segment import CLEANED_SUFFIX, Segment
from ottla.storage.segment_swap import SegmentSwap, SwapGroup
from ottla.storage.transactions import AbortedTxn

KEYS_PER_PASS_MAX = 500_000
"""Bounds the memory of a pass to some 80 MB. A log with more keys is cleaned in several passes."""
WRITE_BYTES = 1024 * 1024
RECORDS_PER_PAUSE = 64
EXACT_KEY_BYTES_MAX = 32
"""Longer keys are kept as a digest of this size."""
KEY_PARTS = 256

Pause: TypeAlias = Callable[[], None]


class SourceSegment(NamedTuple):
    """A segment to be rewritten, with a descriptor that belongs to the pass."""

    segment: Segment
    file: File
    size: int
    end_offset: int


class CompactionPlan(NamedTuple):
    """All that a pass needs to know."""

    files: FileSystem
    directory: Path
    sources: tuple[SourceSegment, ...]
    dirty_from: int
    """The first offset whose key has not been looked at by an earlier pass."""
    config: LogConfig
    producers: Mapping[int, ProducerState]
    aborted: Sequence[AbortedTxn]
    """All that may have records in the sources."""
    write_epochs: EpochWrite | None
    now_wall_ms: int
    truncations: int
    has_failed: Callable[[], bool]
    """Whether the log has failed by now, or was deleted: another one may be in its place then."""


class CompactionResult(NamedTuple):
    """What a pass made, still under names that do not count."""

    plan: CompactionPlan
    groups: tuple[SwapGroup, ...]
    clean_until: int

    @property
    def bytes_before(self) -> int:
        return sum(segment.size for group in self.groups for segment in group.old)

    @property
    def bytes_after(self) -> int:
        return sum(group.new.size for group in self.groups)


class KeyOffsets:
    """The last offset of each key, as a pass notes them: in many small dicts instead of a large one.

    A dict that grows copies itself, and one that goes frees all it holds, in one call that does not give the
    interpreter to another thread. With half a million keys that took the broker's loop some 100 ms."""

    def __init__(self) -> None:
        self._parts: list[dict[bytes, int]] = [{} for _ in range(KEY_PARTS)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, key: bytes, offset: int) -> None:
        """Offsets come in rising order."""
        digest = _digest(key)
        part = self._parts[hash(digest) % KEY_PARTS]
        before = len(part)
        part[digest] = offset
        self._count += len(part) - before

    def last(self, key: bytes) -> int:
        """-1 if there is none."""
        digest = _digest(key)
        return self._parts[hash(digest) % KEY_PARTS].get(digest, -1)

    def clear_some(self) -> bool:
        """Free a part of what is held; whether there is more."""
        if self._parts:
            self._parts.pop()
        return bool(self._parts)


def _digest(key: bytes) -> bytes:
    return key if len(key) < EXACT_KEY_BYTES_MAX else blake2b(key, digest_size=EXACT_KEY_BYTES_MAX).digest()


def plan_compaction(
    log: Log, *, now_wall_ms: int, upper_bound: int, note_dirty_ratio: Callable[[float], None] | None = None
) -> CompactionPlan | None:
    """A pass over `log` below `upper_bound`, the last stable offset; None if it does not need one now.

    Hand a plan to `compact`, which closes what the plan has opened. `note_dirty_ratio` is called with the part of the
    log, by bytes, that no pass has seen yet, where there is any. Raises KafkaStorageError.
    """
    if not log.config.is_compacted or log.failure is not None:
        return None
    try:
        cleanable = _segments_to_clean(log, now_wall_ms, upper_bound, note_dirty_ratio)
        return None if cleanable is None else _plan_of(log, cleanable, now_wall_ms)
    except (OSError, InvalidBatchError, CorruptMessage) as error:
        raise storage_error("compact", log.directory, error) from error


def _segments_to_clean(
    log: Log, now_wall_ms: int, upper_bound: int, note_dirty_ratio: Callable[[float], None] | None
) -> list[Segment] | None:
    """None if the log does not need a pass now."""
    config = log.config
    # Its files bear the names of those that this pass will make; the disk may have refused to remove them.
    log.swaps.abandon()
    if _is_overdue(log.segments.active, config, now_wall_ms) and not log.has_pending_writes:
        log.roll()
    cleanable = _cleanable_segments(log, now_wall_ms, upper_bound)
    dirty = [segment for segment, end in _with_ends(log, cleanable) if end > log.swaps.cleaned_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if dirty_bytes == 0:
        return None
    ratio = dirty_bytes / sum(segment.size for segment in cleanable)
    if note_dirty_ratio is not None:
        note_dirty_ratio(ratio)
    if ratio < config.min_cleanable_dirty_ratio and not _is_overdue(dirty[0], config, now_wall_ms):
        return None
    return cleanable


def _plan_of(log: Log, cleanable: Sequence[Segment], now_wall_ms: int) -> CompactionPlan:
    ends = dict(_with_ends(log, cleanable))
    dirty = next(segment for segment, end in ends.items() if end > log.swaps.cleaned_offset)
    producers = log.producers.states.copy()
    aborted = log.aborted_transactions(cleanable[0].base_offset, ends[cleanable[-1]])
    write_epochs = log.durability.begin_epochs_write()
    # Last of all, so that what is opened is closed where the disk refuses one.
    sources: list[SourceSegment] = []
    try:
        for segment, end in ends.items():
            sources.append(SourceSegment(segment, segment.file.duplicate(), segment.size, end))
    except OSError:
        _close(sources)
        if write_epochs is not None:
            write_epochs.discard()
        raise
    return CompactionPlan(
        files=log.files,
        directory=log.directory,
        sources=tuple(sources),
        dirty_from=max(log.swaps.cleaned_offset, dirty.base_offset),
        config=log.config,
        producers=producers,
        aborted=aborted,
        write_epochs=write_epochs,
        now_wall_ms=now_wall_ms,
        truncations=log.truncations,
        has_failed=lambda: log.failure is not None,
    )


def _with_ends(log: Log, cleanable: Sequence[Segment]) -> list[tuple[Segment, int]]:
    """The oldest segments, each with the offset with which it ends."""
    return [(segment, log.segments.end_of(n, log.log_end_offset)) for n, segment in enumerate(cleanable)]


def _close(sources: Iterable[SourceSegment]) -> None:
    for source in sources:
        source.file.close()


def _cleanable_segments(log: Log, now_wall_ms: int, upper_bound: int) -> list[Segment]:
    chosen: list[Segment] = []
    for n, segment in enumerate(log.segments.up_to_active()):
        is_too_young = (
            log.config.min_compaction_lag_ms > 0
            and segment.size > 0
            and now_wall_ms - largest_timestamp(segment) < log.config.min_compaction_lag_ms
        )
        if is_too_young or log.segments.end_of(n, log.log_end_offset) > upper_bound:
            break
        chosen.append(segment)
    return chosen


def _is_overdue(segment: Segment, config: LogConfig, now_wall_ms: int) -> bool:
    return segment.size > 0 and now_wall_ms - segment.begin_timestamp() > config.max_compaction_lag_ms


def compact(plan: CompactionPlan, pause: Pause = lambda: None) -> CompactionResult:
    """Write what stays of the plan's segments to new ones. Touches nothing but new files; run it in any thread.

    `pause` is called after every few records, and may let other threads have the interpreter.

    Raises KafkaStorageError, after removing what it wrote. A damaged batch stops the pass: its keys are unknown.
    """
    try:
        last_offsets, clean_until = _last_offsets(plan, pause)
        groups: list[SwapGroup] = []
        markers = MarkerRetention(plan.aborted, plan.producers)
        ranges: list[CompactedRange] = []
        for group in _grouped(plan, clean_until):
            _check_is_wanted(plan)
            segment = Segment.create(plan.files, plan.directory, group[0].segment.base_offset, suffix=CLEANED_SUFFIX)
            _Cleaner(plan, last_offsets, clean_until, segment, markers, pause).clean(group)
            groups.append(SwapGroup(tuple(source.segment for source in group), segment))
            ranges.append(CompactedRange(segment.base_offset, group[-1].end_offset, segment.size))
        while last_offsets.clear_some():
            pause()
        if plan.write_epochs is not None:
            # The batches that go may be all that recovery could take an epoch from.
            plan.write_epochs.run()
        sizes = [(source.segment.base_offset, source.size) for source in plan.sources]
        _check_is_wanted(plan)
        write_ranges(plan.files, plan.directory, ranges, sizes)
    except (OSError, InvalidBatchError, KafkaError) as error:
        _remove_results(plan)
        raise storage_error("compact", plan.directory, error) from error
    finally:
        _close(plan.sources)
        if plan.write_epochs is not None:
            plan.write_epochs.discard()
    return CompactionResult(plan, tuple(groups), clean_until)


def _check_is_wanted(plan: CompactionPlan) -> None:
    """Before files are written by their names. Raises KafkaStorageError."""
    if plan.has_failed():
        raise KafkaStorageError(f"{plan.directory}: the log has failed, or was deleted, while it was compacted")


def _last_offsets(plan: CompactionPlan, pause: Pause) -> tuple[KeyOffsets, int]:
    """The last offset of every key in the dirty part, and the offset up to which that is known."""
    offsets = KeyOffsets()
    is_aborted = MarkerRetention(plan.aborted, plan.producers).is_aborted
    for source in plan.sources:
        if source.end_offset <= plan.dirty_from:
            continue
        for batch in scan(source.file, 0, source.size):
            pause()
            if batch.header.is_control or batch.header.next_offset <= plan.dirty_from or is_aborted(batch.header):
                continue
            for n, record in enumerate(iterate_records(batch.view)):
                if n % RECORDS_PER_PAUSE == 0:
                    pause()
                if record.key is not None:
                    offsets.note(record.key, record.offset)
            if len(offsets) >= KEYS_PER_PASS_MAX:
                return offsets, batch.header.next_offset
    return offsets, plan.sources[-1].end_offset


def _grouped(plan: CompactionPlan, clean_until: int) -> Iterator[list[SourceSegment]]:
    """Neighbouring segments that will fit into one, so that segments do not dwindle to crumbs."""
    group: list[SourceSegment] = []
    size = 0
    for source in plan.sources:
        if source.segment.base_offset >= clean_until:
            break
        too_large = size + source.size > plan.config.segment_bytes
        if group and (too_large or source.end_offset - group[0].segment.base_offset > INT32_MAX):
            yield group
            group, size = [], 0
        group.append(source)
        size += source.size
    if group:
        yield group


class _Cleaner:
    """Copies what stays of some segments into a new one."""

    def __init__(
        self,
        plan: CompactionPlan,
        last_offsets: KeyOffsets,
        clean_until: int,
        target: Segment,
        markers: MarkerRetention,
        pause: Pause,
    ) -> None:
        self._plan = plan
        self._pause = pause
        self._last_offsets = last_offsets
        self._clean_until = clean_until
        self._target = target
        self._markers = markers
        self._buffers: list[Buffer] = []
        self._buffered = 0

    def clean(self, group: Sequence[SourceSegment]) -> None:
        for source in group:
            for batch in scan(source.file, 0, source.size):
                self._pause()
                kept = self._kept(batch)
                if kept is not None:
                    self._append(batch.header, kept)
        self._write()
        self._target.write_indexes()
        self._target.file.fsync()
        self._target.sync_indexes()
        self._target.is_flushed = True

    def _kept(self, batch: ScannedBatch) -> Buffer | None:
        """What stays of a batch: the batch itself, a smaller one, an empty one, or None."""
        header = batch.header
        if header.is_control:
            return self._kept_marker(batch)
        self._markers.saw_data(header)
        if header.base_offset >= self._clean_until:
            return bytes(batch.view)
        if self._markers.is_aborted(header):
            return rebuild_batch(header, []) if self._markers.is_last_of_producer(header) else None
        records: list[Record] = []
        left: list[Record] = []
        for n, record in enumerate(iterate_records(batch.view)):
            if n % RECORDS_PER_PAUSE == 0:
                self._pause()
            records.append(record)
            if self._stays(record, header):
                left.append(record)
        if not left and not self._markers.is_last_of_producer(header):
            return None
        horizon = None
        if not header.has_delete_horizon and any(record.value is None for record in left):
            horizon = self._plan.now_wall_ms + self._plan.config.delete_retention_ms
        if len(left) == len(records) and horizon is None:
            return bytes(batch.view)
        return rebuild_batch(header, left, delete_horizon_ms=horizon)

    def _kept_marker(self, batch: ScannedBatch) -> Buffer | None:
        """A marker stays until all records of its transaction are gone, and for the time of a tombstone after that:
        a reader may be in between. Its producer's last one is emptied then (§45.5, §45.6)."""
        header = batch.header
        entry = self._markers.entry_of(header)
        is_cleaned = header.base_offset < self._clean_until
        if not is_cleaned or self._markers.ends_seen_data(header):
            if entry is not None:
                self._target.note_aborted(entry)
            return bytes(batch.view)
        if not header.has_delete_horizon and header.record_count:
            horizon = self._plan.now_wall_ms + self._plan.config.delete_retention_ms
            return rebuild_batch(header, list(iterate_records(batch.view)), delete_horizon_ms=horizon)
        if header.record_count and header.base_timestamp > self._plan.now_wall_ms:
            return bytes(batch.view)
        return rebuild_batch(header, []) if self._markers.is_last_of_producer(header) else None

    def _stays(self, record: Record, header: BatchHeader) -> bool:
        if record.offset >= self._clean_until:
            return True
        if record.key is None or self._last_offsets.last(record.key) > record.offset:
            return False
        is_past_horizon = header.has_delete_horizon and header.base_timestamp <= self._plan.now_wall_ms
        return record.value is not None or not is_past_horizon

    def _append(self, header: BatchHeader, batch: Buffer) -> None:
        timestamp = parse_batch_header(batch).max_timestamp
        interval = self._plan.config.index_interval_bytes
        self._target.note(header.last_offset, timestamp, len(batch), interval, self._plan.now_wall_ms)
        self._buffers.append(batch)
        self._buffered += len(batch)
        if self._buffered >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._buffers:
            self._target.file.writev(self._buffers)
            self._target.size = self._target.end_position
            self._buffers, self._buffered = [], 0


def begin_swap(log: Log, result: CompactionResult) -> SegmentSwap | None:
    """What puts the cleaned segments in place. None if the log was truncated since the plan; then nothing changes."""
    if log.truncations != result.plan.truncations or log.failure is not None:
        for group in result.groups:
            group.new.release()
        _remove_results(result.plan)
        return None
    return log.swaps.begin(list(result.groups), clean_until=result.clean_until)


def _remove_results(plan: CompactionPlan) -> None:
    """Whatever this cannot remove, opening the log does."""
    with suppress(OSError):
        for name in plan.files.list_directory(plan.directory):
            if name.endswith(CLEANED_SUFFIX):
                plan.files.remove(plan.directory / name)
