"""Making records durable: group commit for all logs of a data directory.

An fsync takes as long as hundreds of appends, and one covers whatever was written before it. So at most one flush is
on its way; every log that asks meanwhile joins the next one. The syncing itself runs in the directory's thread, on
descriptors of its own; before and after it the log is touched only by the thread that owns it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.epoch_file import EpochWrite
from ottla.storage.errors import NO_DESCRIPTORS
from ottla.storage.files import File, FileSystem
from ottla.storage.segment import Segment

Submit: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`submit(work, done)` runs `work()` in the data directory's thread, then `done()` in the owner's. Neither raises."""


class FlushWork:
    """What must reach the disk so that a log is durable below `end_offset`."""

    def __init__(
        self,
        files: FileSystem,
        *,
        end_offset: int,
        cuts: int,
        log_files: list[File],
        epochs: EpochWrite | None,
        other_paths: list[Path],
        directory: Path | None,
        flushed_segments: tuple[Segment, ...],
    ) -> None:
        self.end_offset = end_offset
        self.cuts = cuts
        self.flushed_segments = flushed_segments
        self.directory = directory
        self.sync_error: OSError | None = None
        self.open_error: OSError | None = None
        self.epochs_error: OSError | None = None
        self._files = files
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
                if self.open_error is None and self._files.exists(path):
                    self._sync_other(path)
        except OSError as error:
            self.sync_error = error
        finally:
            for file in self._log_files:
                file.close()
        if self._epochs is not None and self.sync_error is None and self.open_error is None:
            try:
                self._epochs()
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
            file = self._files.open(path)
        except OSError as error:
            self.open_error = error
            return
        try:
            file.fsync()
        finally:
            file.close()


class Flushable(Protocol):
    """A log, as the flusher sees it."""

    @property
    def needs_flush(self) -> bool: ...

    def begin_flush(self) -> FlushWork: ...

    def finish_flush(self, work: FlushWork) -> None: ...


class Flusher:
    """Flushes the logs that ask for it. `on_flushed(log, error)` tells whoever waits that a log got further, or failed.

    After a sync that failed the log refuses everything: what the kernel could not write it may have dropped.
    """

    def __init__(self, submit: Submit, on_flushed: Callable[[Flushable, KafkaStorageError | None], None]) -> None:
        self._submit = submit
        self._on_flushed = on_flushed
        self._waiting: dict[int, Flushable] = {}
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        return not self._is_running and not self._waiting

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
            except KafkaStorageError as error:
                self._on_flushed(log, error)
        if not started:
            return
        self._is_running = True

        def work() -> None:
            for _, flush in started:
                flush.run()

        self._submit(work, lambda: self._finish(started))

    def _finish(self, started: list[tuple[Flushable, FlushWork]]) -> None:
        self._is_running = False
        for log, work in started:
            try:
                log.finish_flush(work)
            except KafkaStorageError as error:
                self._on_flushed(log, error)
                continue
            if log.needs_flush:
                self._waiting[id(log)] = log
            self._on_flushed(log, None)
        if self._waiting and not self._is_running:
            self._start()
