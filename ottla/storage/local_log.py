"""What the parts of one log share: segments, where they begin and end, settings, and a disk that failed."""

from collections.abc import Callable
from pathlib import Path

from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.crc import crc32c
from ottla.storage.config import LogConfig
from ottla.storage.deletions import Deletions
from ottla.storage.errors import storage_error
from ottla.storage.files import FileSystem
from ottla.storage.scan import InvalidBatchError
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments


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
        self._roll_jitter_ms = 0
        self.configure(config)
        self.set_active(self.active)

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
        try:
            return Segment.create(self.files, self.directory, base_offset)
        except OSError:
            try:
                for path in Segment(self.files, self.directory, base_offset).existing_paths():
                    self.files.remove(path)
            except OSError as error:
                self.fail(storage_error("remove an incomplete segment of", self.directory, error))
            raise

    def set_active(self, segment: Segment) -> None:
        self.active = segment
        segment.is_flushed = False
        self.directory_changed = True
        # Spreads the rolling of many partitions that began together, the same way on every run.
        name = f"{self.topic}-{self.partition}-{segment.base_offset}".encode()
        self._roll_jitter_ms = crc32c(name) % (self.config.segment_jitter_ms + 1)
        self._limit_active()

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
            raise self.fail(storage_error(action, self.directory, OSError(str(error)))) from error

    def guard(self, action: str, change: Callable[[], None]) -> None:
        """A change that must not stop half-way: if it does, only recovery can find out what the log is."""
        if self.failure is not None:
            raise self.failure
        try:
            change()
        except (OSError, InvalidBatchError) as error:
            cause = error if isinstance(error, OSError) else OSError(str(error))
            raise self.fail(storage_error(action, self.directory, cause)) from error
