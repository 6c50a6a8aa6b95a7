"""The local files of one log: its segments, where they begin and end, settings, gaps, and a disk that failed.

Compaction leaves gaps, and a copy of a compacted log has those of its leader. In all other logs a missing offset means
damage. The file `ottla-no-gaps` in a log's directory says that none is missing: it is made with the log, and removed
before the first gap gets into it. A log without the file, one that Kafka wrote for instance, may have gaps anywhere;
between its segments only those that `compacted_ranges` lists, if there is a list.

The removal becomes durable with the flush that makes the gap durable. If the power fails before that, recovery may take
the gap for damage; then it cuts off nothing that a flush has promised.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.batch import crc32c
from ottla.storage.batch_scan import InvalidBatchError
from ottla.storage.compacted_ranges import begin_list
from ottla.storage.deletions import Deletions, LogRestart
from ottla.storage.files import NO_DESCRIPTORS, FileSystem, storage_error
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import LOG_SUFFIX, Segment


class Segments:
    """Never empty. The last segment is the active one: only it is appended to."""

    all: list[Segment]
    """In their order, for readers, which look into it for every fetch; only this class changes it."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._replace(sorted(segments, key=lambda segment: segment.base_offset))

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self.all))

    def __getitem__(self, n: int) -> Segment:
        return self.all[n]

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    def index_of(self, offset: int) -> int:
        """Which segment holds `offset`: the last one that begins at or before it, the first one if none does."""
        after = bisect_right(self._bases, offset)
        return after - 1 if after else 0

    def up_to_active(self) -> list[Segment]:
        """The inactive segments."""
        return self.all[:-1]

    def end_of(self, n: int, log_end_offset: int) -> int:
        """The offset with which the n-th segment ends."""
        return self._bases[n + 1] if n + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self.all or segment.base_offset > self._bases[-1], "segments are added in order"
        self.all.append(segment)
        self._bases.append(segment.base_offset)

    def exchange(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        """Take `old` out and put `new` in."""
        gone = set(map(id, old))
        kept = [segment for segment in self.all if id(segment) not in gone]
        self._replace(sorted([*kept, *new], key=lambda segment: segment.base_offset))

    def _replace(self, segments: list[Segment]) -> None:
        self.all = segments
        self._bases = [segment.base_offset for segment in segments]


NO_GAPS = "ottla-no-gaps"


class Gaps:
    """What one log knows of its gaps."""

    def __init__(self, files: FileSystem, directory: Path, *, until: int, is_marked: bool) -> None:
        self.until = until
        """Below this offset, others may be missing. Above it, none is."""
        self.is_marked = is_marked
        """Whether the file is there."""
        self._directory = directory
        self._files = files

    def note(self, until: int) -> bool:
        """Call before anything with a gap below `until` gets into the log; whether that removed the file.

        Raises OSError; nothing is noted then."""
        was_marked = self.is_marked
        if was_marked:
            begin_list(self._files, self._directory)
            self._files.remove(self._directory / NO_GAPS)
            self.is_marked = False
        self.until = max(self.until, until)
        return was_marked

    def truncate_from_end(self, log_end_offset: int) -> None:
        self.until = min(self.until, log_end_offset)


def mark_without_gaps(files: FileSystem, directory: Path) -> None:
    """For a log that is being made. Raises OSError."""
    files.open(f"{directory}/{NO_GAPS}").close()


def _nothing() -> None:
    pass


class NamesSync:
    """Makes the names of a log's files durable."""

    def __init__(self, files: FileSystem, directory: Path, name_changes: int) -> None:
        self.name_changes = name_changes
        self.error: OSError | None = None
        self._files = files
        self._directory = directory

    def run(self) -> None:
        """In any thread. What goes wrong is kept in `error`."""
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error


class LocalLog:
    """The files of one log, without what is known of their records."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Segments,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.segments = segments
        self.active = segments.active
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.next_offset = log_end_offset
        """Where the next batch goes: the log end offset, with what is queued counted in."""
        self.deletions = Deletions(files)
        self.failure: KafkaStorageError | None = None
        self.truncations: int = 0
        """How often segments were truncated, deleted or replaced. What was prepared before that no longer fits."""
        self.directory_changed = False
        """Whether names of files are not durable yet."""
        self.name_changes: int = 0
        """How often names of files have changed."""
        self.durable_name_changes: int = 0
        self.when_segment_begins: Callable[[], None] = _nothing
        self.is_start_durable = False
        """Whether the names of the segments say, durably, that the log begins with the first one."""
        self.may_have_transactions = True
        """Whether a transaction may not be over; to be asked of the producers."""
        self._roll_jitter_ms = 0
        self._restart: LogRestart | None = None
        self.configure(config)
        self.set_active(self.active)

    def stop_watching(self) -> None:
        """Nothing is called any more when a segment begins."""
        self.when_segment_begins = _nothing

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.index_interval = config.index_interval_bytes
        self.segment_bytes = config.segment_bytes
        self.waits_for_sync = config.waits_for_sync
        self._limit_active()

    # Segments

    def create_segment(self, base_offset: int) -> Segment:
        """Raises OSError, with no file of the segment left behind: the segment before it may yet grow past its base
        offset, and recovery would take it for the place where the log ends."""
        self.finish_restart()
        try:
            return Segment.create(self.files, self.directory, base_offset)
        except OSError:
            try:
                for path in Segment(self.files, self.directory, base_offset).existing_paths():
                    self.files.remove(path)
            except OSError as error:
                self.fail(storage_error("remove an incomplete segment of", self.directory, error))
            raise

    def restart_at(self, offset: int) -> None:
        """Go on with an empty segment in place of all others. Raises OSError; nothing has changed then."""
        self.finish_restart()
        old = list(self.segments)
        self._restart = LogRestart(self.files, self.directory, self.deletions, old, offset)
        self.segments.exchange(old, [self._restart.new])
        self.set_active(self._restart.new)
        self.log_start_offset = offset
        with suppress(OSError):
            self.finish_restart()

    def finish_restart(self) -> None:
        """Remove what a restart has left. Raises OSError; call it again then."""
        if self._restart is not None:
            self._restart.finish()
            self._restart = None
            self.names_changed()

    def set_active(self, segment: Segment) -> None:
        self.active = segment
        segment.is_flushed = False
        self.names_changed()
        # Spreads the rolling of many partitions that began together, the same way on every run.
        name = f"{self.topic}-{self.partition}-{segment.base_offset}".encode()
        self._roll_jitter_ms = crc32c(name) % (self.config.segment_jitter_ms + 1)
        self._limit_active()

    def names_changed(self) -> None:
        self.directory_changed = True
        self.name_changes += 1

    @property
    def has_durable_names(self) -> bool:
        return self.durable_name_changes == self.name_changes

    def begin_names_sync(self) -> "NamesSync":
        """What makes the names durable; `run` it in a thread, then hand it to `finish_names_sync`.

        Raises KafkaStorageError."""
        if self.failure is not None:
            raise self.failure
        try:
            # A segment for which the disk had no room may have no file yet.
            _ = self.active.file
        except OSError as error:
            raise storage_error("open", self.active.path(LOG_SUFFIX), error) from error
        return NamesSync(self.files, self.directory, self.name_changes)

    def finish_names_sync(self, work: "NamesSync") -> None:
        """Raises KafkaStorageError. What has failed to be synced may be lost though a later sync succeeds."""
        if work.error is None:
            self.durable_name_changes = max(self.durable_name_changes, work.name_changes)
            return
        error = storage_error("sync the directory", self.directory, work.error)
        if work.error.errno not in NO_DESCRIPTORS:
            self.fail(error)
        raise error from work.error

    def sync_names(self) -> None:
        """Call before a segment begins: after a loss of power it must not be there without those before it.

        Raises KafkaStorageError."""
        if not self.has_durable_names:
            work = self.begin_names_sync()
            work.run()
            self.finish_names_sync(work)

    def _limit_active(self) -> None:
        self.active.limit_index(self.config.segment_index_bytes)
        self.roll_after_ms = self.config.roll_after_ms - self._roll_jitter_ms

    def set_end(self, end_offset: int) -> None:
        self.log_end_offset = self.next_offset = end_offset

    def schedule_delete(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a segment that leaves the log, and close it. Raises OSError; nothing has changed then."""
        self.deletions.schedule_delete(segment.existing_paths(), due_ms)
        segment.close_deleted()

    # Failing

    def fail(self, error: KafkaStorageError) -> KafkaStorageError:
        """Refuse all writes from now on; only opening the log again, with recovery, helps."""
        self.failure = self.failure or error
        return self.failure

    def attempt(self, action: str, change: Callable[[], None]) -> None:
        """A change that leaves the log whole wherever it stops: when the disk refuses, it may be tried again."""
        if self.failure is not None:
            raise self.failure
        try:
            change()
        except OSError as error:
            raise storage_error(action, self.directory, error) from error
        except InvalidBatchError as error:
            raise self.fail(storage_error(action, self.directory, error)) from error

    def guard(self, action: str, change: Callable[[], None]) -> None:
        """A change that must not stop half-way: if it does, only recovery can find out what the log is."""
        if self.failure is not None:
            raise self.failure
        try:
            change()
        except (OSError, InvalidBatchError) as error:
            raise self.fail(storage_error(action, self.directory, error)) from error
