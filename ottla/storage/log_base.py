"""What all parts of a log share: its segments, its ends, its configuration, and what to do when the disk fails."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.crc import crc32c
from ottla.storage.config import LogConfig
from ottla.storage.deletions import Deletions
from ottla.storage.epoch_cache import EpochEntry, LeaderEpochCache
from ottla.storage.epoch_file import EpochFile, EpochWrite
from ottla.storage.errors import storage_error
from ottla.storage.files import Buffer, FileSystem
from ottla.storage.gaps import Gaps
from ottla.storage.producer_restore import ProducersRestore, begin_restore
from ottla.storage.producer_snapshots import ProducerSnapshots, rebuild_producers
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.scan import InvalidBatchError
from ottla.storage.segment import Segment, SegmentMark
from ottla.storage.segments import Segments
from ottla.storage.swap import SegmentSwap


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


class LogBase:
    """The state of one partition's log."""

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
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        self.log_start_offset: int = loaded.log_start_offset
        self.log_end_offset: int = loaded.log_end_offset
        self.flushed_offset: int = loaded.recovery_point
        self._durable_when_loaded = (loaded.recovery_point, loaded.segments.active.base_offset)
        self.sync_required_offset: int = loaded.recovery_point
        self.gaps = loaded.gaps
        self.cleaned_offset = loaded.cleaned_offset
        self.restored_high_watermark = loaded.log_start_offset
        self.epochs = loaded.epochs
        self._epoch_file = EpochFile(files, directory, loaded.stored_epochs)
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.deletions = Deletions(files)
        self.segments = loaded.segments
        self.failure: KafkaStorageError | None = None
        self.files = files
        self._active = loaded.segments.active
        self._next_offset: int = loaded.log_end_offset
        self._queue: list[Buffer] = []
        self._mark: SegmentMark | None = None
        self._lost_queue: KafkaStorageError | None = None
        self.cuts: int = 0
        self._swap: SegmentSwap | None = None
        self._directory_changed = False
        self._oldest_unflushed_ms = 0
        self._seen_ms = loaded.loaded_at_ms
        self._roll_jitter_ms = 0
        self.configure(config)
        self._set_active(self._active)

    def configure(self, config: LogConfig) -> None:
        """Obey other settings from the next append on."""
        self.config = config
        self._index_interval = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._waits_for_sync = config.waits_for_sync
        if self.has_producers_loaded:
            self.producers.expiration_ms = config.producer_id_expiration_ms
        self._limit_active()

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def roll(self) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        if self._active.size:
            self._roll_at(self.log_end_offset)

    def _roll_at(self, base_offset: int) -> None:
        assert not self._queue, "queued batches belong to the segment they were queued for"
        try:
            self._active.write_indexes()
            self.snapshots.write(base_offset, self.producers.snapshot_bytes())
            new = self._create_segment(base_offset)
        except OSError as error:
            raise storage_error("begin a segment in", self.directory, error) from error
        self.segments.add(new)
        self._set_active(new)

    def _create_segment(self, base_offset: int) -> Segment:
        """Raises OSError, with no file of the segment left behind: the segment before it may yet grow past its base
        offset, and recovery would take it for the place where the log ends."""
        try:
            return Segment.create(self.files, self.directory, base_offset)
        except OSError:
            try:
                for path in Segment(self.files, self.directory, base_offset).existing_paths():
                    self.files.remove(path)
            except OSError as error:
                self._fail(storage_error("remove an incomplete segment of", self.directory, error))
            raise

    def _set_active(self, segment: Segment) -> None:
        self._active = segment
        segment.is_flushed = False
        self._directory_changed = True
        # Spreads the rolling of many partitions that began together, the same way on every run.
        name = f"{self.topic}-{self.partition}-{segment.base_offset}".encode()
        self._roll_jitter_ms = crc32c(name) % (self.config.segment_jitter_ms + 1)
        self._limit_active()

    def _limit_active(self) -> None:
        self._active.limit_index(self.config.segment_index_bytes)
        self._roll_after_ms = self.config.roll_after_ms - self._roll_jitter_ms

    # Producers

    @cached_property
    def producers(self) -> ProducerStateManager:
        """The idempotent producers as of the log end. Raises KafkaStorageError.

        A truncation may forget them. Then they are read again: by `begin_restore` in a thread, or for the first who
        asks, which may take long."""
        producers = ProducerStateManager(self.config.producer_id_expiration_ms)
        self._attempted(
            "restore the producers of",
            lambda: rebuild_producers(producers, self.snapshots, self.segments, self.log_end_offset, self._seen_ms),
        )
        return producers

    @property
    def has_producers_loaded(self) -> bool:
        return "producers" in self.__dict__

    def _forget_producers(self) -> None:
        self.__dict__.pop("producers", None)

    def begin_restore(self) -> ProducersRestore | None:
        """What reads the producers again; `run` it in a thread, then hand it to `finish_restore`. None: they are known.

        Raises KafkaStorageError."""
        if self.has_producers_loaded or self.failure is not None:
            return None
        producers = ProducerStateManager(self.config.producer_id_expiration_ms)
        try:
            return begin_restore(
                producers,
                self.snapshots,
                self.segments,
                end_offset=self.log_end_offset,
                now_wall_ms=self._seen_ms,
                cuts=self.cuts,
            )
        except OSError as error:
            raise storage_error("restore the producers of", self.directory, error) from error

    def finish_restore(self, restore: ProducersRestore) -> None:
        """If it came to nothing, or the log has changed since, whoever asks reads them."""
        as_before = restore.cuts == self.cuts and restore.end_offset == self.log_end_offset == self._next_offset
        if restore.is_complete and as_before and not self.has_producers_loaded:
            self.producers = restore.producers

    # Gaps

    def _note_gaps(self, until: int) -> None:
        """Raises OSError."""
        self._directory_changed |= self.gaps.is_marked
        self.gaps.note(until)

    # Leader epochs

    def maybe_assign_leader_epoch(self, epoch: int) -> None:
        """Note that `epoch` begins at the log end, if it is news. Its records carry it; a flush makes both durable."""
        self.epochs.assign(epoch, self._next_offset)

    def begin_epochs_write(self) -> EpochWrite | None:
        """What makes the epochs of all written records durable, in any thread; None if they are."""
        return self._epoch_file.begin_write(self.epochs, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: (epoch, end offset), each -1 if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Failing

    def _fail(self, error: KafkaStorageError) -> KafkaStorageError:
        """Refuse all writes from now on; only opening the log again, with recovery, helps."""
        self.failure = self.failure or error
        return self.failure

    def _attempted(self, action: str, change: Callable[[], None]) -> None:
        """A change that leaves the log whole wherever it stops: when the disk refuses, it may be tried again."""
        if self.failure is not None:
            raise self.failure
        try:
            change()
        except OSError as error:
            raise storage_error(action, self.directory, error) from error
        except InvalidBatchError as error:
            raise self._fail(storage_error(action, self.directory, OSError(str(error)))) from error

    def _guarded(self, action: str, change: Callable[[], None]) -> None:
        """A change that must not stop half-way: if it does, only recovery can tell what the log is."""
        if self.failure is not None:
            raise self.failure
        try:
            change()
        except (OSError, InvalidBatchError) as error:
            cause = error if isinstance(error, OSError) else OSError(str(error))
            raise self._fail(storage_error(action, self.directory, cause)) from error
