"""The append queue: check a batch, give it offsets, queue it; then write the whole queue with one system call."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from ottla.protocol.errors import KafkaStorageError, OutOfOrderSequenceNumber
from ottla.protocol.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assign_offset_and_epoch,
    parse_batch_header,
)
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.control import TransactionMarker, build_marker, marker_of
from ottla.storage.batch_scan import InvalidBatchError
from ottla.storage.deletions import DUE_AT_ONCE
from ottla.storage.durability import Durability
from ottla.storage.files import Buffer, File, storage_error
from ottla.storage.leader_epoch_cache import LeaderEpochCache
from ottla.storage.local_log import Gaps, LocalLog
from ottla.storage.log_config import INT32_MAX, LogConfig
from ottla.storage.log_producers import LogProducers
from ottla.storage.segment import LOG_SUFFIX, Segment, SegmentMark
from ottla.storage.segment_swap import SegmentSwaps
from ottla.storage.validation import ValidationConfig, validate_produced_batch, validate_replicated
from ottla.storage.verification_guards import VerificationGuard

NO_LOG_APPEND_TIME = -1

DEFAULT_LZ4_LEVEL = 9
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By their names in `compression.type`, which also knows `producer`: as the batch came."""


class Origin(Enum):
    """Who made a batch: a client, whose every word is checked, or this broker."""

    CLIENT = auto()
    COORDINATOR = auto()
    END_OF_TRANSACTION = auto()
    """A marker, or the coordinator's record that a transaction is decided or complete. It is stored whatever its size:
    a bound that was lowered under an open transaction must not keep it open."""


class AppendInfo(NamedTuple):
    """Where a batch went, or for a duplicate, where it went the first time."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


_CLIENT = Origin.CLIENT
# One is made for every batch; this takes half the time of calling the class.
_info_of: Callable[[tuple[int, int, int, int, int, bool]], AppendInfo] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - typeshed leaves the tuple's items open here.
    AppendInfo,
)


class AppendQueue:
    """The part of a log that grows it."""

    def __init__(
        self,
        local: LocalLog,
        producers: LogProducers,
        epochs: LeaderEpochCache,
        gaps: Gaps,
        durability: Durability,
        swaps: SegmentSwaps,
    ) -> None:
        # The queued batches, of which the first begins at the log end offset.
        self.batches: list[Buffer] = []
        self._local = local
        self._producers = producers
        self._epochs = epochs
        self._gaps = gaps
        self._durability = durability
        self._swaps = swaps
        self._mark: SegmentMark | None = None
        self._epochs_before = epochs.entries
        # Why a queue was lost whose owners have not been notified yet.
        self._lost: KafkaStorageError | None = None
        self.configure()

    def configure(self) -> None:
        self._validation = validation_config(self._local.config)

    @property
    def has_pending_writes(self) -> bool:
        return bool(self.batches) or self._lost is not None

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        now_wall_ms: int,
        origin: Origin = Origin.CLIENT,
        zstd_allowed: bool = True,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Check the batch, give it offsets in place, queue it. The buffer must stay as it is until `write_pending`.

        Raises the errors of `validate_produced_batch` and of the producer's sequence check; the log is unchanged then.
        A marker is not checked: `ProducerStateManager.check_marker` says before whether it may be appended.
        """
        local = self._local
        if local.failure is not None or self._lost is not None:
            self._refuse()
        records, header = validate_produced_batch(
            records,
            self._validation,
            now_wall_ms,
            origin is _CLIENT,
            zstd_allowed,
            origin is not Origin.END_OF_TRANSACTION,
        )
        if header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
            try:
                first = self._producers.manager.check(header, guard)
            except OutOfOrderSequenceNumber:
                if not self._producers.add_batches_before_snapshot():
                    raise
                first = self._producers.manager.check(header, guard)
            if first is not None:
                # Kafka answers the batch's timestamp as the time of the append, whatever the topic's timestamps are.
                at = first.timestamp
                return _info_of((first.first_offset, first.last_offset, at, at, local.log_start_offset, True))
        base_offset = local.next_offset
        self._enqueue(records, header, base_offset, now_wall_ms)
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, base_offset)
        assign_offset_and_epoch(records, 0, base_offset, leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        appended_at = timestamp if self._validation.log_append_time else NO_LOG_APPEND_TIME
        return _info_of((base_offset, last_offset, timestamp, appended_at, local.log_start_offset, False))

    def append_as_follower(self, records: memoryview, *, now_wall_ms: int) -> int:
        """Queue the whole batches that a leader sent, as they are; the number of them.

        A batch cut off by the end of `records` is left out. Offsets may be missing between batches and before the
        first one: the leader's log may be compacted. Raises CorruptMessage if any batch is damaged or out of order; the
        log is unchanged then. Raises KafkaStorageError with none of them queued; the batches below `log_end_offset` are
        written then.
        """
        local = self._local
        if local.failure is not None or self._lost is not None:
            self._refuse()
        batches = list(validate_replicated(records, local.next_offset))
        self._note_gaps_in(batches)
        had_queue = bool(self.batches)
        try:
            for position, header in batches:
                view = records[position : position + header.size_bytes]
                if header.attributes & CONTROL_BIT and (marker := self._marker_for_emptied(header)):
                    view, header = marker
                self._enqueue(view, header, header.base_offset, now_wall_ms)
                if header.partition_leader_epoch > self._epochs.latest_epoch:
                    self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        except Exception as error:
            self._lose_queue()
            # Without an older queue all that was lost is this caller's, who learns of it now.
            self._lost = _as_lost(error) if had_queue else None
            raise
        return len(batches)

    def _marker_for_emptied(self, header: BatchHeader) -> tuple[memoryview, BatchHeader] | None:
        """What is written in place of a control batch that compaction has emptied at the leader, where its transaction
        is open in this log (§45.5): an ABORT. The leader has no record of that transaction, so that none is missed."""
        manager = self._producers.manager
        if header.record_count or header.producer_id not in manager.open_transactions:
            return None
        marker = build_marker(
            TransactionMarker(is_commit=False, coordinator_epoch=manager.states[header.producer_id].coordinator_epoch),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp=header.max_timestamp,
        )
        assign_offset_and_epoch(marker, 0, header.base_offset, header.partition_leader_epoch)
        return memoryview(marker), parse_batch_header(marker)

    def _note_gaps_in(self, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        local = self._local
        expected, until = local.next_offset, 0
        for _, header in batches:
            if header.base_offset > expected:
                until = header.base_offset
            expected = header.next_offset
        if until:
            try:
                if self._gaps.note(until):
                    local.names_changed()
            except OSError as error:
                raise storage_error("note the gaps of", local.directory, error) from error

    def _enqueue(self, records: memoryview, header: BatchHeader, base_offset: int, now_wall_ms: int) -> None:
        local = self._local
        size = len(records)
        segment = local.active
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        if last_offset - segment.base_offset > INT32_MAX:
            # The log end would not do: the gap before the batch may be that wide.
            self._roll_with_queue(base_offset)
            segment = local.active
        elif segment.end_position and (
            segment.end_position + size > local.segment_bytes
            or timestamp - segment.first_timestamp > local.roll_after_ms
            or segment.is_index_full
        ):
            self._roll_with_queue(local.next_offset)
            segment = local.active
        if not self.batches:
            try:
                self._mark = segment.mark()
            except (OSError, InvalidBatchError) as error:
                raise storage_error("append to", segment.path(LOG_SUFFIX), error) from error
            self._epochs_before = self._epochs.entries
            self._producers.seen_ms = now_wall_ms
            if self._durability.flushed_offset == local.log_end_offset:
                self._durability.oldest_unflushed_ms = now_wall_ms
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL_BIT:
                local.may_have_transactions = True
            if header.attributes & CONTROL_BIT:
                self._end_transaction(records, header, base_offset, now_wall_ms)
            else:
                self._producers.manager.update(header, base_offset, now_wall_ms)
        segment.note(last_offset, timestamp, size, local.index_interval, now_wall_ms)
        self.batches.append(records)
        local.next_offset = last_offset + 1

    def _end_transaction(self, records: memoryview, header: BatchHeader, base_offset: int, now_wall_ms: int) -> None:
        manager, segment, marker = self._producers.manager, self._local.active, marker_of(records)
        try:
            # Before anything changes: they may have to be read.
            _ = segment.aborted
        except OSError as error:
            raise storage_error("append to", segment.path(LOG_SUFFIX), error) from error
        aborted = manager.update_by_marker(header, marker, base_offset, now_wall_ms)
        if aborted is not None:
            segment.note_aborted(aborted)

    def write_pending(self, now_wall_ms: int) -> None:
        """Write all queued batches. If that fails, none of those at or after `log_end_offset` is in the log.

        An earlier part of a queue that spans two segments may be: compare with `log_end_offset`.
        """
        if self._lost is not None:
            error, self._lost = self._lost, None
            raise error
        if self.batches:
            self._write_queue()
            if self._local.waits_for_sync:
                self._durability.maybe_require_sync(now_wall_ms)

    def _write_queue(self) -> None:
        local = self._local
        segment, queue, self.batches = local.active, self.batches, []
        try:
            file = segment.file
        except OSError as error:
            self._undo_queue(None)
            raise storage_error("append to", segment.path(LOG_SUFFIX), error) from error
        try:
            file.writev(queue)
        except Exception as error:
            self._undo_queue(file)
            if isinstance(error, OSError):
                raise storage_error("append to", segment.path(LOG_SUFFIX), error) from error
            raise
        segment.size = segment.end_position
        local.log_end_offset = local.next_offset
        # Producers that are not known have changed by nothing in the queue, and are read with it.
        known = self._producers.known
        if known is not None:
            known.confirm()

    def _lose_queue(self) -> None:
        """Before it is written."""
        queue, self.batches = self.batches, []
        if queue:
            self._undo_queue(None)
        else:
            self._cut_off(None)

    def _undo_queue(self, file: File | None) -> None:
        """Make the log what it was before the queue: in memory, and in the file that took a part of the queue."""
        local = self._local
        assert self._mark is not None, "a queue begins with a mark"
        segment = local.active
        segment.rewind(self._mark)
        segment.forget_aborted_from(local.log_end_offset)
        if self._producers.known is not None:
            self._producers.known.undo()
        local.next_offset = local.log_end_offset
        self._epochs.forget_from(local.log_end_offset, self._epochs_before)
        self._cut_off(file)

    def _cut_off(self, file: File | None) -> None:
        """What is on the disk of a queue that is not written."""
        local = self._local
        segment = local.active
        try:
            if file is not None:
                file.truncate(segment.size)
            if segment.base_offset > local.log_end_offset:
                # It was rolled for the batch after a gap. What comes instead may begin before it.
                self._remove_unused(segment)
        except OSError as error:
            # A torn batch stays at the end of the file. Nothing may be written after it.
            local.fail(storage_error("cut a torn write off", segment.path(LOG_SUFFIX), error))

    def _roll_with_queue(self, base_offset: int) -> None:
        """Write what is queued, then roll. If either fails, the whole queue fails: in `write_pending`."""
        had_queue = bool(self.batches)
        try:
            if had_queue:
                self._write_queue()
            self._roll_at(base_offset)
        except Exception as error:
            if had_queue:
                self._lost = _as_lost(error)
            raise

    def roll(self) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        if self._local.active.size:
            self._roll_at(self._local.log_end_offset)

    def _roll_at(self, base_offset: int) -> None:
        assert not self.batches, "queued batches belong to the segment they were queued for"
        local = self._local
        local.sync_names()
        try:
            local.active.write_indexes()
            self._producers.write_or_leave_snapshot(base_offset)
            new = local.create_segment(base_offset)
        except (OSError, InvalidBatchError) as error:
            self._forget_snapshot(base_offset)
            raise storage_error("begin a segment in", local.directory, error) from error
        local.segments.add(new)
        local.set_active(new)
        local.when_segment_begins()

    def _forget_snapshot(self, base_offset: int) -> None:
        """Of a segment that did not begin. What comes instead of a batch after a gap may begin before it."""
        local = self._local
        if base_offset > local.log_end_offset:
            try:
                self._producers.snapshots.remove(base_offset)
            except OSError as error:
                local.fail(storage_error("remove a producer snapshot of", local.directory, error))

    def _remove_unused(self, segment: Segment) -> None:
        """Take an empty active segment out, so that the one before it is appended to again. Raises OSError."""
        self._swaps.begin_truncation()
        self._local.schedule_delete(segment, DUE_AT_ONCE)
        self._local.segments.exchange([segment], [])
        self._producers.snapshots.remove(segment.base_offset)
        self._local.set_active(self._local.segments.active)

    def _refuse(self) -> None:
        raise self._local.failure or self._lost or KafkaStorageError()


def _as_lost(error: Exception) -> KafkaStorageError:
    """Of a queue: what those hear who are not there when it is lost."""
    return error if isinstance(error, KafkaStorageError) else KafkaStorageError(f"the records were lost: {error!r}")


def validation_config(config: LogConfig) -> ValidationConfig:
    """The settings that a batch from a client has to meet."""
    return ValidationConfig(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        codec=None if config.compression_type == "producer" else CODECS[config.compression_type],
        compression_level=_level(config),
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        is_compacted=config.is_compacted,
    )


def _level(config: LogConfig) -> int | None:
    """None is the default of the codec; Kafka's numbers for those of gzip and lz4 mean no level of theirs."""
    match config.compression_type:
        case "gzip":
            return config.compression_gzip_level if config.compression_gzip_level > 0 else None
        case "lz4":
            return config.compression_lz4_level if config.compression_lz4_level != DEFAULT_LZ4_LEVEL else None
        case "zstd":
            return config.compression_zstd_level
        case _:
            return None
