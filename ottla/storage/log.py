"""The log of one partition: appending, reading, truncation.

Appending has two steps, so that one system call serves all requests of a read event. `append_as_leader` and
`append_as_follower` check the batches, give them offsets and queue the very buffers they arrived in; `write_pending`
writes the queue. Until then nothing of it can be read, and `log_end_offset` does not count it. If the write fails, the
log is what it was before the queue began.

    segments    [ inactive ] [ inactive ] [ active:  written          |  queued ]
    offsets     ^ log_start_offset        flushed_offset ^  log_end_offset ^

Everything is called from one thread. What takes long comes in three parts: prepared here, worked off on files alone,
in a thread if one likes, and applied here (`WouldBlock`, `durability`, `compaction`, `deletions`).
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.append_queue import AppendInfo, AppendQueue, Origin
from ottla.storage.durability import Durability
from ottla.storage.files import FileSystem
from ottla.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache, LeaderEpochCheckpointFile
from ottla.storage.local_log import Gaps, LocalLog, NamesSync, Segments
from ottla.storage.log_config import LogConfig
from ottla.storage.log_producers import LogProducers, ProducersRestore
from ottla.storage.log_reader import FoundTimestamp, LogReader
from ottla.storage.producer_snapshots import ProducerSnapshots, SnapshotWrite
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.retention import Expired, Retention
from ottla.storage.segment_reader import ReadResult, WouldBlock
from ottla.storage.segment_swap import SegmentSwaps
from ottla.storage.transactions import OldestTransaction
from ottla.storage.truncation import Truncation
from ottla.storage.verification_guards import NOT_VERIFIED, VerificationGuard

__all__ = [
    "NOT_VERIFIED",
    "AppendInfo",
    "LoadedLog",
    "Log",
    "Origin",
    "ReadResult",
    "VerificationGuard",
    "WouldBlock",
]


class LoadedLog(NamedTuple):
    """What recovery, or the creation of a log, hands over."""

    segments: Segments
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    gaps: Gaps
    cleaned_offset: int
    """Where compaction goes on."""
    loaded_at_ms: int
    stored_epochs: Sequence[EpochEntry] = ()
    """Those in the file. Below `recovery_point` they are the same as `epochs`."""
    was_closed: bool = False
    """Whether the files are as a clean close has left them: durable, indexes included."""


def _field_of(path: str) -> Any:
    """A field of a part. Reading it calls no Python code: some are read several times for every batch."""
    return property(attrgetter(path))


class Log:
    """One partition's records. All methods raise KafkaStorageError when the disk fails; other errors they name."""

    config: LogConfig = _field_of("_local.config")
    log_start_offset: int = _field_of("_local.log_start_offset")
    log_end_offset: int = _field_of("_local.log_end_offset")
    failure: KafkaStorageError | None = _field_of("_local.failure")
    truncations: int = _field_of("_local.truncations")
    waits_for_sync: bool = _field_of("_local.waits_for_sync")
    """Whether any acknowledgement ever waits for the disk, by the configuration."""
    flushed_offset: int = _field_of("durability.flushed_offset")
    sync_required_offset: int = _field_of("durability.sync_required_offset")
    needs_flush: bool = _field_of("durability.needs_flush")
    """Whether acknowledgements wait: of offsets below `sync_required_offset`, until `flushed_offset` is there."""
    is_start_durable: bool = _field_of("_local.is_start_durable")
    """Whether the names of the segments say, durably, that the log begins with the first one."""
    may_have_transactions: bool = _field_of("_local.may_have_transactions")
    """False: readers of committed records see all below the high watermark."""
    has_durable_names: bool = _field_of("_local.has_durable_names")
    """Whether the names of all files are durable. Before a segment begins they are synced, in the append, if not."""
    cleaned_offset: int = _field_of("swaps.cleaned_offset")
    has_pending_writes: bool = _field_of("_queue.has_pending_writes")
    pending_records: Sequence[bytes | bytearray | memoryview] = _field_of("_queue.batches")
    """The queued batches, of which the first begins at `log_end_offset`."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.restored_high_watermark = loaded.log_start_offset
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.gaps = loaded.gaps
        self._was_closed = loaded.was_closed
        self._ends_when_loaded = (loaded.log_end_offset, loaded.segments.active.base_offset)
        ends = (loaded.log_start_offset, loaded.log_end_offset)
        self._local = local = LocalLog(files, directory, topic, partition, config, loaded.segments, *ends)
        self.deletions = local.deletions
        self._producers = LogProducers(local, loaded.producers, loaded.snapshots, loaded.loaded_at_ms)
        self._snapshots = loaded.snapshots
        epoch_file = LeaderEpochCheckpointFile(files, directory, loaded.stored_epochs)
        self.durability = Durability(local, loaded.snapshots, loaded.epochs, epoch_file, loaded.recovery_point)
        self.swaps = SegmentSwaps(local, loaded.snapshots, loaded.gaps, loaded.cleaned_offset)
        shared = (local, self._producers, loaded.epochs, loaded.gaps, self.durability, self.swaps)
        self._queue = AppendQueue(*shared)
        self._truncation = Truncation(*shared)
        self._retention = Retention(local, self._queue, loaded.epochs, loaded.snapshots, self.swaps)
        self._reader = LogReader(local, loaded.epochs, loaded.gaps)
        # Called for every batch, fetch or flush, so without a function in between.
        self.append_as_leader = self._queue.append_as_leader
        self.append_as_follower = self._queue.append_as_follower
        self.write_pending = self._queue.write_pending
        self.read = self._reader.read
        self.bytes_between = self._reader.bytes_between
        self.aborted_transactions = self._reader.aborted_transactions
        self.truncate_to = self._truncation.truncate_to
        self.begin_flush = self.durability.begin_flush
        self.finish_flush = self.durability.finish_flush

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def configure(self, config: LogConfig) -> None:
        """Obey other settings from the next append on."""
        self._local.configure(config)
        self._producers.configure()
        self._queue.configure()

    # Appending and truncation

    def roll(self) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        self._queue.roll()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        self._truncation.truncate_fully_and_start_at(offset)

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start offset; segments below it go with the next retention pass. Raises OffsetOutOfRange."""
        self._retention.delete_records_before(offset)

    def expire(self, now_wall_ms: int, high_watermark: int) -> list[Expired]:
        """Raise the log start offset above old segments: which segments are below it now, and why.

        When the checkpoint of log starts has been written, call `delete_expired`."""
        return self._retention.expire(now_wall_ms, high_watermark)

    def delete_expired(self, offset: int, now_wall_ms: int) -> None:
        """Delete the segments below `offset`, which the checkpoint has as the log start."""
        self._retention.delete_expired(offset, now_wall_ms)

    # Reading

    def is_in_later_segment(self, offset: int, reader_offset: int) -> bool:
        """Whether the log has rolled between what a reader has read and `offset`."""
        return self._reader.is_in_later_segment(offset, reader_offset)

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> FoundTimestamp | None:
        """The first record below `upper_bound` that is not older than `timestamp`. Reads the disk and waits for it."""
        return self._reader.offset_for_timestamp(timestamp, upper_bound)

    def offset_of_max_timestamp(self, upper_bound: int) -> FoundTimestamp | None:
        """The record below `upper_bound` with the largest timestamp. Reads the disk and waits for it."""
        return self._reader.offset_of_max_timestamp(upper_bound)

    def timestamp_at(self, offset: int, upper_bound: int) -> int | None:
        """That of the first record of the batch that holds `offset`, or of the next batch, if it begins below
        `upper_bound`. Reads the disk and waits for it."""
        return self._reader.timestamp_at(offset, upper_bound)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where readers of committed records stop: below it every transaction is over. Raises KafkaStorageError."""
        producers = self._producers.manager
        self._local.may_have_transactions = producers.has_transactions
        return producers.last_stable_offset(high_watermark, self._local.log_start_offset)

    def compactable_offset(self, high_watermark: int) -> int:
        """Where compaction stops: the last stable offset, if that cannot fall any more. After a restart a marker at or
        above the high watermark may have ended a transaction that is open again once the marker is cut; a record before
        it is still the latest of its key for readers then (§44.5, §45.3). Raises KafkaStorageError."""
        if not self._producers.manager.knows_ends_above(high_watermark):
            return self._local.log_start_offset
        return self.last_stable_offset(high_watermark)

    # Leader epochs

    def maybe_assign_leader_epoch(self, epoch: int) -> None:
        """Note that `epoch` begins at the log end, unless it is known. Its records carry it; a flush makes both
        durable."""
        self.epochs.assign(epoch, self._local.next_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: (epoch, end offset), each -1 if unknown."""
        return self.epochs.end_offset_for(epoch, self._local.log_end_offset)

    # Producers

    @property
    def producers(self) -> ProducerStateManager:
        """The idempotent producers as of the log end. Raises KafkaStorageError."""
        return self._producers.manager

    @property
    def known_producers(self) -> ProducerStateManager | None:
        """As `producers`; None where they would have to be read first, after a truncation."""
        return self._producers.known

    @property
    def oldest_transaction(self) -> OldestTransaction | None:
        """The open transaction with the smallest first offset. None also while the producers are to be read again."""
        known = self.known_producers if self.may_have_transactions else None
        return None if known is None else known.oldest_transaction

    def drop_guards(self) -> None:
        """A term of leadership is over."""
        if self._producers.known is not None:
            self._producers.known.drop_guards()

    def begin_restore(self) -> ProducersRestore | None:
        """What reads the producers again; `run` it in a thread, then hand it to `finish_restore`. None: they are known.

        Raises KafkaStorageError."""
        return self._producers.begin_restore()

    def finish_restore(self, restore: ProducersRestore) -> None:
        self._producers.finish_restore(restore)

    @property
    def has_snapshot_to_write(self) -> bool:
        """Whether a roll has left the snapshot of its many producers to others."""
        return self._snapshots.has_unwritten

    def begin_snapshot(self) -> SnapshotWrite | None:
        """What writes it; `run` it in a thread, then hand it to `finish_snapshot`. None: another is being written."""
        return self._producers.begin_snapshot()

    def finish_snapshot(self, write: SnapshotWrite) -> None:
        self._producers.finish_snapshot(write)

    # Durability

    def is_flush_overdue(self, now_wall_ms: int) -> bool:
        """Whether to flush although no acknowledgement waits: for `flush.ms`, or because a segment is complete."""
        return self.durability.is_flush_overdue(now_wall_ms)

    def maybe_require_sync(self, now_wall_ms: int) -> None:
        """Have what is in the log and not durable wait for the disk, if a sync is due."""
        self.durability.maybe_require_sync(now_wall_ms)

    def flush(self) -> int:
        """Make everything written durable, here and now; the recovery point, which is the log end offset."""
        return self.durability.flush()

    def watch_segments(self, begun: Callable[[], None]) -> None:
        """`begun` is called when a segment begins, whose name is not durable yet."""
        self._local.when_segment_begins = begun

    def begin_names_sync(self) -> NamesSync:
        """What makes the names durable; `run` it in a thread, then hand it to `finish_names_sync`."""
        return self._local.begin_names_sync()

    def finish_names_sync(self, work: NamesSync) -> None:
        self._local.finish_names_sync(work)

    # Closing

    def close(self) -> None:
        """Leave everything on disk as a clean shutdown does: nothing has to be scanned or rebuilt at the next start."""
        assert not self._queue.batches, "a log is not closed while batches are queued"
        if self.failure is None and not self._is_as_last_closed():
            self._local.guard("close", self._write_all)
            self.flush()
        self.release()

    def _is_as_last_closed(self) -> bool:
        """Nothing was appended, truncated or rolled since a close left its snapshot at this offset: the files hold.

        Most logs of a broker with thousands see no record between two starts, and six syncs for each take seconds."""
        ends = (self.log_end_offset, self._local.active.base_offset)
        is_unchanged = self.truncations == 0 and ends == self._ends_when_loaded
        return self._was_closed and is_unchanged and self._snapshots.has(self.log_end_offset)

    def _write_all(self) -> None:
        self._local.finish_restart()
        active = self._local.active
        active.write_indexes()
        # A part of an index can look like a whole one, and the next start believes it.
        active.sync_indexes()
        if active.aborted:
            # Other indexes are made again where they are missing. A segment without this one has nothing aborted.
            self._local.names_changed()
        self._producers.write_snapshot(self.log_end_offset)

    def release(self) -> None:
        """Let go of all descriptors, writing nothing. The log is not used any more."""
        for segment in self.segments:
            segment.release()

    def close_deleted(self) -> None:
        """Let go of everything for ever: the files are about to go, and another log may soon live at their place."""
        # Work on the log that is under way in a thread is thrown away when it comes back.
        self._local.fail(KafkaStorageError(f"the log of {self.topic}-{self.partition} was deleted"))
        self.durability.close_deleted()
        for segment in self.segments:
            segment.close_deleted()
        # Who watches refers to the log: only the garbage collector would free it.
        self._local.stop_watching()
        # A thread at work may hold the log for long.
        self._producers.clear()

    def release_idle(self) -> None:
        """Let go of descriptors and indexes of inactive segments; they come back when they are read."""
        for segment in self.segments.up_to_active():
            segment.release()
