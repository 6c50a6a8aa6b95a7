"""Making records durable: group commit for all logs of a data directory.

An fsync takes as long as hundreds of appends, and one covers whatever was written before it. So at most one flush is
on its way; every log that asks during it joins the next one. The syncing itself runs in the directory's thread, on
descriptors of its own; before and after it the log is touched only by the thread that owns it.

After an `fsync` that failed Linux takes the pages for clean. They are read as if they were on the disk, and the next
`fsync` succeeds without writing them, also that of another process. So the log takes nothing more, and is marked with
the file `ottla-failed-sync`: who opens it again copies the segments that were not durable, before anything of them
counts as durable. A restart of the machine empties the cache; then there is only what the disk has, which recovery
checks, and copying it does no harm. The mark is about that cache, and need not be durable either.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.checkpoints import PARTITION_METADATA
from ottla.storage.files import NO_DESCRIPTORS, File, FileSystem, storage_error
from ottla.storage.leader_epoch_cache import EpochWrite, LeaderEpochCache, LeaderEpochCheckpointFile
from ottla.storage.local_log import LocalLog
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.segment import Segment

FAILED_SYNC = "ottla-failed-sync"
COPY_BYTES = 1024 * 1024

Submit: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`submit(work, done)` runs `work()` in the data directory's thread, then `done()` in the owner's. Neither raises."""


class FlushWork:
    """What must reach the disk so that a log is durable below `end_offset`."""

    def __init__(
        self,
        files: FileSystem,
        log_directory: Path,
        *,
        end_offset: int,
        truncations: int,
        log_files: list[File],
        epochs: EpochWrite | None,
        other_paths: list[Path],
        directory: Path | None,
        name_changes: int,
        flushed_segments: tuple[Segment, ...],
    ) -> None:
        """`directory` is that of the log where its names are to be synced too."""
        self.end_offset = end_offset
        self.truncations = truncations
        self.flushed_segments = flushed_segments
        self.directory = directory
        self.name_changes = name_changes
        self.is_complete = False
        """Whether nothing but an error that is kept has ended `run`."""
        self.sync_error: OSError | None = None
        self.open_error: OSError | None = None
        self.epochs_error: OSError | None = None
        self._files = files
        self._log_directory = log_directory
        self._log_files = log_files
        self._epochs = epochs
        self._other_paths = other_paths

    def run(self) -> None:
        """Sync everything, in any thread. A sync that failed is kept in `sync_error`, a file that could not be opened
        in `open_error`, a failure that concerns only the file of leader epochs in `epochs_error`."""
        try:
            if self.directory is not None:
                # First, for a segment must not be cut on the disk while one that follows on it is still there.
                self._sync_directories(self.directory)
            for file in self._log_files:
                file.fsync()
            for path in self._other_paths:
                if self.open_error is None:
                    self._sync_other(path)
        except OSError as error:
            self.sync_error = error
            with suppress(OSError):
                mark_failed_sync(self._files, self._log_directory)
        finally:
            for file in self._log_files:
                file.close()
        if self._epochs is not None:
            self._write_epochs(self._epochs)
        self.is_complete = True

    def _write_epochs(self, epochs: EpochWrite) -> None:
        if self.sync_error is not None or self.open_error is not None:
            epochs.discard()
            return
        try:
            epochs.run()
        except OSError as error:
            self.epochs_error = error

    def _sync_directories(self, directory: Path) -> None:
        try:
            self._files.sync_directory(directory)
            self._files.sync_directory(directory.parent)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self.open_error = error

    def _sync_other(self, path: Path) -> None:
        try:
            if not self._files.exists(path):
                return
            file = self._files.open(path, create=False)
        except FileNotFoundError:
            # The loop has removed it in between.
            return
        except OSError as error:
            self.open_error = error
            return
        try:
            file.fsync()
        finally:
            file.close()


class Durability:
    """What of one log is durable, and what has to be synced when."""

    def __init__(
        self,
        local: LocalLog,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochCache,
        epoch_file: LeaderEpochCheckpointFile,
        recovery_point: int,
    ) -> None:
        self.flushed_offset: int = recovery_point
        self.sync_required_offset: int = recovery_point
        self.oldest_unflushed_ms = 0
        self._local = local
        self._snapshots = snapshots
        self._epochs = epochs
        self._epoch_file = epoch_file

    @property
    def needs_flush(self) -> bool:
        """Whether acknowledgements wait: of offsets below `sync_required_offset`, until `flushed_offset` is there."""
        return self.flushed_offset < self.sync_required_offset

    def is_flush_overdue(self, now_wall_ms: int) -> bool:
        """Whether to flush although no acknowledgement waits: for `flush.ms`, or because a segment is complete."""
        local, segments = self._local, self._local.segments.all
        if self.flushed_offset < local.active.base_offset:
            return True
        # Its records may be durable: from a flush just before it was complete. Its indexes are not then.
        if len(segments) > 1 and not segments[-2].is_flushed:
            return True
        return local.waits_for_sync and self.flushed_offset < local.log_end_offset and self._is_sync_due(now_wall_ms)

    def _is_sync_due(self, now_wall_ms: int) -> bool:
        local = self._local
        config = local.config
        return (
            local.log_end_offset - self.flushed_offset >= config.flush_messages
            or now_wall_ms - self.oldest_unflushed_ms >= config.flush_ms
        )

    def maybe_require_sync(self, now_wall_ms: int) -> None:
        """Have acknowledgements of what is written wait, if a sync is due."""
        if self._is_sync_due(now_wall_ms):
            self.sync_required_offset = self._local.log_end_offset

    def truncate_from_end(self, log_end_offset: int) -> None:
        self.flushed_offset = min(self.flushed_offset, log_end_offset)
        self.sync_required_offset = min(self.sync_required_offset, log_end_offset)

    def begin_epochs_write(self) -> EpochWrite | None:
        """What makes the epochs of all written records durable, in any thread; None if they are. Raises OSError."""
        return self._epoch_file.begin_write(self._epochs, self._local.log_end_offset)

    def close_deleted(self) -> None:
        """What is under way in a thread changes no file of a log that comes to be in the place of this one."""
        self._epoch_file.retire()

    def flush(self) -> int:
        """Make everything written durable, here and now; the recovery point, which is the log end offset."""
        work = self.begin_flush()
        work.run()
        self.finish_flush(work)
        return self.flushed_offset

    def begin_flush(self) -> FlushWork:
        """What to sync for all that is written by now. `run` it in a thread, then hand it to `finish_flush`.

        Raises KafkaStorageError, and nothing has changed then."""
        local = self._local
        if local.failure is not None:
            raise local.failure
        unflushed = [segment for segment in local.segments if not segment.is_flushed]
        paths = [path for segment in unflushed[:-1] for path in segment.index_paths()]
        paths += [self._snapshots.path(segment.base_offset) for segment in unflushed]
        log_files: list[File] = []
        try:
            log_files.extend(segment.file.duplicate() for segment in unflushed)
            epochs = self.begin_epochs_write()
        except OSError as error:
            for file in log_files:
                file.close()
            raise storage_error("flush", local.directory, error) from error
        changed, local.directory_changed = local.directory_changed, False
        if changed:
            # Whose log it is must be known as long as anything in it is promised to be there.
            paths.append(local.directory / PARTITION_METADATA)
        return FlushWork(
            local.files,
            local.directory,
            end_offset=local.log_end_offset,
            truncations=local.truncations,
            log_files=log_files,
            epochs=epochs,
            other_paths=paths,
            directory=local.directory if changed else None,
            name_changes=local.name_changes,
            flushed_segments=tuple(unflushed[:-1]),
        )

    def finish_flush(self, work: FlushWork) -> None:
        """Take note of what is durable now. A log that was truncated in between has to be flushed again.

        Raises KafkaStorageError if the flush failed. If a sync failed, the kernel may have dropped what it could not
        write, and the log refuses everything until it has been recovered. If a file could not be opened for want of
        descriptors, or the leader epochs could not be written, nothing is lost, and the next flush does it again.
        """
        local = self._local
        if not work.is_complete:
            local.directory_changed |= work.directory is not None
            raise KafkaStorageError(f"could not flush {local.directory}: the work was broken off")
        if work.sync_error is not None:
            raise local.fail(storage_error("flush", local.directory, work.sync_error)) from work.sync_error
        if work.truncations != local.truncations or (work.open_error is not None and work.directory is not None):
            local.directory_changed = True
        if work.open_error is not None:
            raise storage_error("flush", local.directory, work.open_error) from work.open_error
        if work.directory is not None:
            local.durable_name_changes = max(local.durable_name_changes, work.name_changes)
        if work.truncations != local.truncations:
            return
        if work.directory is not None:
            local.is_start_durable = True
        for segment in work.flushed_segments:
            segment.is_flushed = True
        if work.epochs_error is not None:
            raise storage_error("write the leader epochs of", local.directory, work.epochs_error) from work.epochs_error
        self.flushed_offset = max(self.flushed_offset, work.end_offset)


class Flushable(Protocol):
    """A log, as the flusher sees it."""

    @property
    def needs_flush(self) -> bool: ...

    def begin_flush(self) -> FlushWork: ...

    def finish_flush(self, work: FlushWork) -> None: ...


class Flusher:
    """Flushes the logs that ask for it. `on_flushed(log, error)` is called when a log got further, or failed: with
    KafkaStorageError, or with what only a bug can cause. It does not raise.

    After a sync that failed the log refuses everything: what the kernel could not write it may have dropped.
    """

    def __init__(self, submit: Submit, on_flushed: Callable[[Flushable, Exception | None], None]) -> None:
        self._submit = submit
        self._on_flushed = on_flushed
        self._waiting: dict[int, Flushable] = {}
        self._is_running = False

    def request(self, log: Flushable) -> None:
        """Flush `log` as soon as the flush that may be on its way is done. Asking twice is asking once."""
        self._waiting[id(log)] = log
        if not self._is_running:
            self._start()

    def _start(self) -> None:
        logs, self._waiting = list(self._waiting.values()), {}
        started: list[tuple[Flushable, FlushWork]] = []
        for log in logs:
            try:
                started.append((log, log.begin_flush()))
            except Exception as error:
                # The others are flushed all the same.
                self._on_flushed(log, error)
        if not started:
            return
        self._is_running = True
        self._submit(partial(run_all, [flush for _, flush in started]), lambda: self._finish(started))

    def _finish(self, started: list[tuple[Flushable, FlushWork]]) -> None:
        self._is_running = False
        for log, work in started:
            try:
                log.finish_flush(work)
            except Exception as error:
                self._on_flushed(log, error)
                continue
            if log.needs_flush:
                self._waiting[id(log)] = log
            self._on_flushed(log, None)
        if self._waiting and not self._is_running:
            self._start()


class Work(Protocol):
    def run(self) -> None: ...


def run_all(works: Iterable[Work]) -> None:
    """Each of them. Raises what one has raised, in an ExceptionGroup."""
    errors: list[Exception] = []
    for work in works:
        try:
            work.run()
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("some of the work was broken off", errors)


def mark_failed_sync(files: FileSystem, directory: Path) -> None:
    """Raises OSError where the disk takes not even that."""
    files.open(directory / FAILED_SYNC).close()


def write_again(files: FileSystem, directory: Path, paths: Iterable[Path]) -> None:
    """Of a log that is marked: put a synced copy in the place of each file. Raises OSError; the mark is there then."""
    for path in paths:
        _copy_in_place(files, path)
    files.sync_directory(directory)
    files.remove(directory / FAILED_SYNC)


def _copy_in_place(files: FileSystem, path: Path) -> None:
    aside = path.with_name(path.name + ".tmp")
    files.remove(aside)
    source, copy = files.open(path), files.open(aside)
    try:
        position = 0
        while content := source.pread(COPY_BYTES, position):
            copy.writev([content])
            position += len(content)
        copy.fsync()
    finally:
        source.close()
        copy.close()
    files.rename(aside, path)
