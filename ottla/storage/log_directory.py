"""A data directory: whose it is, the logs in it, and the checkpoints that say what is known of them.

Opening takes the lock, makes sure that the directory belongs to this cluster and node, notes whether the broker was
stopped cleanly, removes that mark, and loads every log. Only `close(clean=True)` sets the mark again.

    meta.properties                     cluster id, node id, directory id
    recovery-point-offset-checkpoint    below it, records are known to be on the disk
    replication-offset-checkpoint       high watermarks
    log-start-offset-checkpoint         where deletion has got to
    cleaner-offset-checkpoint           where compaction has got to
    .kafka_cleanshutdown                the mark
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.protocol.errors import KafkaStorageError
from ottla.storage import checkpoints
from ottla.storage.checkpoints import TopicPartition
from ottla.storage.deletions import DueDeletions
from ottla.storage.files import FileSystem, Lock, OsFileSystem, reason_of, storage_error, write_atomically, write_file
from ottla.storage.found_log import FoundLog
from ottla.storage.interrupted_work import Notices
from ottla.storage.local_log import mark_without_gaps
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_start_file import LogStartCheckpoint, LogStartFile
from ottla.storage.meta_properties import DataDirectoryError, MetaProperties, claim
from ottla.storage.recovery import LogHistory, RecoveryProgress, find_log

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
DELETE_SUFFIX, STRAY_SUFFIX = "-delete", "-stray"
FILE_NAME_BYTES_MAX = 255

ConfigOf = Callable[[str], LogConfig]
"""The settings of a topic."""


class LogFill(Protocol):
    """Files of another log, for new ones."""

    @property
    def known(self) -> FoundLog | None:
        """What is in them, once it was found."""
        ...

    @known.setter
    def known(self, found: FoundLog) -> None: ...

    def put(self, directory: Path) -> LogHistory:
        """Into the directory of a log. Gives the history of the log. Raises OSError."""
        ...


class Checkpoint(NamedTuple):
    """A checkpoint file, made but not yet written."""

    files: FileSystem
    path: Path
    content: bytes

    def write(self) -> None:
        """Replace the file, durably; from any thread. Raises KafkaStorageError."""
        try:
            write_atomically(self.files, self.path, self.content)
        except OSError as error:
            raise storage_error("write", self.path, error) from error


class _Deleted(NamedTuple):
    topic_id: bytes | None
    due_ms: int


class LogDirectory:
    """All logs of a broker. `LogDirectory.open` makes one; `close` ends it."""

    def __init__(
        self,
        path: Path,
        files: FileSystem,
        lock: Lock,
        meta_properties: MetaProperties,
        config_of: ConfigOf,
        *,
        notices: Notices,
        when_clean: Callable[[], None],
        when_lost: Callable[[], None],
    ) -> None:
        self.path = path
        self.name = str(path.absolute())
        """As clients know it: they do not know where the broker was started."""
        self.meta_properties = meta_properties
        self.was_closed_cleanly = False
        self.has_lost_records = False
        """Whether recovery cut off what may have been acknowledged."""
        self.highest_producer_id = -1
        """Of the producers that the logs knew when they were loaded (`ProducerTable.highest_given_id`)."""
        self._files = files
        self._lock = lock
        self._config_of = config_of
        self._notices = notices
        self._when_clean = when_clean
        self._when_lost = when_lost
        self._progress = RecoveryProgress()
        self._logs: dict[TopicPartition, Log] = {}
        # Why a log could not be closed, None for those that were.
        self._closed: dict[Log, KafkaStorageError | None] = {}
        # Directories of deleted logs that still have the names of logs.
        self._not_renamed: dict[Path, _Deleted] = {}
        self._removed: list[tuple[int, Path]] = []
        self._removed_count = 0
        self._log_starts = LogStartFile(files, path / checkpoints.LOG_START_OFFSETS)
        self.fills: dict[TopicPartition, LogFill] = {}
        """Of logs that are to be created next with the files of a copy, and not empty."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node_id: int,
        cluster_id: str | None,
        new_id: Callable[[], str],
        config_of: ConfigOf,
        now_wall_ms: int,
        files: FileSystem | None = None,
        notices: Notices = lambda _: None,
        when_clean: Callable[[], None] = lambda: None,
        when_lost: Callable[[], None] = lambda: None,
        progress: RecoveryProgress | None = None,
    ) -> "LogDirectory":
        """Open the directory, or make it, and load all logs.

        `cluster_id` None takes the directory's own, and for a new directory one from `new_id`, which draws random
        ids in Kafka's text form. `notices` gets a sentence about everything recovery found amiss. `when_clean` is
        called where the mark of a clean shutdown was found, before the mark is removed, and `when_lost` before the
        first record is cut off that may have been acknowledged. `progress` shows how far it is. Raises
        DataDirectoryError with one sentence for the user."""
        disk: FileSystem = files if files is not None else OsFileSystem()
        try:
            disk.make_directory(path)
            lock = disk.lock(path / LOCK_FILE)
        except OSError as error:
            raise DataDirectoryError(f"cannot use data directory {path}: {reason_of(error)}") from error
        if lock is None:
            raise DataDirectoryError(f"data directory {path} is in use by another broker")
        try:
            meta = claim(disk, path, node_id=node_id, cluster_id=cluster_id, new_id=new_id)
            directory = cls(
                path, disk, lock, meta, config_of, notices=notices, when_clean=when_clean, when_lost=when_lost
            )
            directory._progress = progress or directory._progress
            directory._load(now_wall_ms)
        except OSError as error:
            lock.release()
            raise DataDirectoryError(f"cannot use data directory {path}: {reason_of(error)}") from error
        except BaseException:
            lock.release()
            raise
        return directory

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log by (topic, partition)."""
        return self._logs

    def create_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_wall_ms: int) -> Log:
        """A new log: empty, or with what `fills` has for it. Raises KafkaStorageError."""
        assert (topic, partition) not in self._logs, f"{topic}-{partition} is there already"
        directory = Path(f"{self.path}/{topic}-{partition}")
        if self._log_starts.may_have_line_of((topic, partition)):
            # Of a log that was deleted. After a crash it would cut off records of this one.
            self.log_start_checkpoint().write()
        try:
            if self._files.exists(directory):
                # Of a log that was deleted, or that could not be created. None of its records may come into this one.
                self._put_aside(directory, now_wall_ms + config.file_delete_delay_ms)
            self._files.make_directory(directory)
            found = self._begin(directory, self.fills.pop((topic, partition), None), config, topic_id)
            metadata = checkpoints.build_partition_metadata(topic_id)
            # Synced with the first flush: should it be lost before, or a part of it, the cluster's metadata knows the
            # id, and `assign_topic_id` writes it again.
            write_file(self._files, f"{directory}/{checkpoints.PARTITION_METADATA}", metadata)
            log = found.log(self._files, directory, topic, partition, config, now_wall_ms)
        except OSError as error:
            raise storage_error("create", directory, error) from error
        self._logs[topic, partition] = log
        return log

    def _begin(self, directory: Path, fill: LogFill | None, config: LogConfig, topic_id: bytes) -> FoundLog:
        if fill is None:
            mark_without_gaps(self._files, directory)
            return self._find_log(directory, config, LogHistory(), topic_id)
        history = fill.put(directory)
        if fill.known is not None:
            return fill.known.in_directory(self._files, directory, topic_id)
        found = self._find_log(directory, config, history, topic_id)
        if found.was_closed:
            fill.known = found.in_directory(self._files, directory, topic_id)
        return found

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Give a log that carries no topic id the one it has in the cluster's metadata."""
        path = log.directory / checkpoints.PARTITION_METADATA
        try:
            write_atomically(self._files, path, checkpoints.build_partition_metadata(topic_id))
        except OSError as error:
            raise storage_error("write", path, error) from error
        log.topic_id = topic_id

    def delete_log(self, topic: str, partition: int, *, now_wall_ms: int) -> None:
        """Take the log out of the directory at once; its files go after `file.delete.delay.ms`.

        Raises KafkaStorageError if the directory keeps its name; that is tried again with `take_due_deletions`, and
        before another log gets the name."""
        log = self._logs.pop((topic, partition))
        log.close_deleted()
        due_ms = now_wall_ms + log.config.file_delete_delay_ms
        self._not_renamed[log.directory] = _Deleted(log.topic_id, due_ms)
        try:
            self._put_aside(log.directory, due_ms)
        except OSError as error:
            raise storage_error("delete", log.directory, error) from error

    def set_stray_aside(self, topic: str, partition: int) -> Path:
        """Take out a log whose replicas are all elsewhere. Its files stay, under a name like Kafka's stray logs.
        Raises KafkaStorageError if the directory keeps its name, and then the log stays."""
        log, number = self._logs[topic, partition], 1
        while self._files.exists(target := self._name_aside(log.directory, number, STRAY_SUFFIX)):
            number += 1
        try:
            self._files.rename(log.directory, target)
        except OSError as error:
            raise storage_error("set aside", log.directory, error) from error
        self._logs.pop((topic, partition)).close_deleted()
        return target

    def _put_aside(self, directory: Path, due_ms: int) -> None:
        self._removed_count += 1
        target = self._name_aside(directory, self._removed_count, DELETE_SUFFIX)
        self._files.rename(directory, target)
        self._not_renamed.pop(directory, None)
        self._removed.append((due_ms, target))

    def _name_aside(self, directory: Path, number: int, suffix: str) -> Path:
        ending = f".{number}{suffix}"
        return Path(f"{self.path}/{directory.name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}")

    def has_log_of(self, topic_ids: Collection[bytes]) -> set[bytes]:
        """Those of the topics whose files are here, in a log or under the name of one that was deleted."""
        here = {log.topic_id for log in self._logs.values()}
        here.update(deleted.topic_id for deleted in self._not_renamed.values())
        return {topic_id for topic_id in topic_ids if topic_id in here}

    def take_due_deletions(self, now_wall_ms: int) -> DueDeletions | None:
        """Files that may be removed by now; `run` it in a thread, then hand it to `finish_deletions`. None if there
        are none."""
        for directory, deleted in list(self._not_renamed.items()):
            with suppress(OSError):
                self._put_aside(directory, deleted.due_ms)
        paths = [path for log in self._logs.values() for path in log.deletions.take_due(now_wall_ms)]
        paths += [path for due_ms, path in self._removed if due_ms <= now_wall_ms]
        self._removed = [(due_ms, path) for due_ms, path in self._removed if due_ms > now_wall_ms]
        return DueDeletions(self._files, paths) if paths else None

    def finish_deletions(self, deletions: DueDeletions, now_wall_ms: int) -> None:
        """What could not be removed is due again. Raises KafkaStorageError if there is any."""
        self._removed += [(now_wall_ms, path) for path in deletions.failed]
        if deletions.error is not None:
            raise storage_error("remove", deletions.failed[-1], deletions.error)

    # Checkpoints: made of what is known now, written when and where the caller likes, each file by one at a time.

    def withdraw_recovery_points(self) -> None:
        """Remove the checkpoint, durably, from any thread: then a start after a crash looks at all there is, and
        believes nothing. Raises KafkaStorageError."""
        path = self.path / checkpoints.RECOVERY_POINTS
        try:
            self._files.remove(path)
            self._files.sync_directory(self.path)
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def recovery_point_checkpoint(self) -> "Checkpoint":
        return self._checkpoint(
            checkpoints.RECOVERY_POINTS, {key: log.flushed_offset for key, log in self._logs.items()}
        )

    def high_watermark_checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> "Checkpoint":
        """Logs that are not used yet keep what the file said."""
        restored = {key: log.restored_high_watermark for key, log in self._logs.items()}
        return self._checkpoint(checkpoints.HIGH_WATERMARKS, restored | dict(high_watermarks))

    def log_start_checkpoint(self) -> LogStartCheckpoint:
        """Logs that begin with their first segment need no line, if a crash cannot bring back one before it."""
        starts = {
            key: log.log_start_offset
            for key, log in self._logs.items()
            if log.log_start_offset > (log.segments[0].base_offset if log.is_start_durable else 0)
        }
        return self._log_starts.content(starts)

    def cleaner_checkpoint(self) -> "Checkpoint":
        cleaned = {key: log.cleaned_offset for key, log in self._logs.items() if log.cleaned_offset}
        return self._checkpoint(checkpoints.CLEANED_OFFSETS, cleaned)

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> "Checkpoint":
        return Checkpoint(self._files, self.path / name, checkpoints.build_offsets(offsets))

    # Closing

    def close_logs(self, logs: Iterable[Log]) -> None:
        """The part of a clean close that takes long, for some of the logs: those of different calls may be closed in
        different threads, once they are not used any more. `close` reports those that failed."""
        for log in logs:
            try:
                log.close()
                self._closed[log] = None
            except KafkaStorageError as error:
                self._closed[log] = error

    def close(self, *, clean: bool = True) -> None:
        """Let go of the directory. A clean close makes all logs durable first and sets the mark that says so; it raises
        KafkaStorageError, and sets no mark, if something could not be made durable."""
        try:
            if clean:
                self._close_logs()
        finally:
            for log in self._logs.values():
                log.release()
            self._lock.release()

    def _close_logs(self) -> None:
        self.close_logs([log for log in self._logs.values() if log not in self._closed])
        self.recovery_point_checkpoint().write()
        self.log_start_checkpoint().write()
        self.cleaner_checkpoint().write()
        for error in self._closed.values():
            if error is not None:
                raise error
        if not any(log.failure for log in self._logs.values()):
            path = self.path / CLEAN_SHUTDOWN_FILE
            try:
                write_atomically(self._files, path, b'{"version":0,"brokerEpoch":-1}')
            except OSError as error:
                raise storage_error("write", path, error) from error

    # Loading

    def _load(self, now_wall_ms: int) -> None:
        mark = self.path / CLEAN_SHUTDOWN_FILE
        self.was_closed_cleanly = self._files.exists(mark)
        if self.was_closed_cleanly:
            self._when_clean()
            # Before anything is loaded: after a crash from here on, the files may not be believed again.
            self._files.remove(mark)
            self._files.sync_directory(self.path)
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        histories = self._histories(recovery_points)
        names = self._files.list_directory(self.path)
        self._progress.logs_total = sum(partition_of(name) is not None for name in names)
        for name in names:
            path = self.path / name
            if not self._files.is_directory(path):
                continue
            if name.endswith(DELETE_SUFFIX):
                self._remove_deleted(path)
                continue
            key = partition_of(name)
            if key is None:
                self._notices(f"{path} is no log of a partition and is left alone")
                continue
            history = histories(key)
            config = self._config_of(key[0])
            found = self._find_log(path, config, history)
            log = self._logs[key] = found.log(self._files, path, *key, config, now_wall_ms)
            self.highest_producer_id = max(self.highest_producer_id, log.producers.states.highest_given_id)
            self._progress.logs_opened += 1
        self._lower_recovery_points(recovery_points)

    def _remove_deleted(self, path: Path) -> None:
        deletion = DueDeletions(self._files, [path])
        deletion.run()
        if deletion.error is not None:
            self._notices(f"{path} of a deleted log could not be removed: {reason_of(deletion.error)}")

    def _lower_recovery_points(self, claimed: Mapping[TopicPartition, int]) -> None:
        """What comes to stand where records were lost is not durable because those were."""
        flushed = {key: log.flushed_offset for key, log in self._logs.items()}
        if any(offset > flushed.get(key, 0) for key, offset in claimed.items()):
            checkpoint = self.recovery_point_checkpoint()
            write_atomically(self._files, checkpoint.path, checkpoint.content)

    def _find_log(self, path: Path, config: LogConfig, history: LogHistory, topic_id: bytes | None = None) -> FoundLog:
        return find_log(
            self._files,
            path,
            config=config,
            history=history,
            notices=self._notices,
            when_lost=self._lose_records,
            progress=self._progress,
            topic_id=topic_id,
        )

    def _lose_records(self) -> None:
        if not self.has_lost_records:
            self._when_lost()
        self.has_lost_records = True

    def _histories(self, recovery_points: Mapping[TopicPartition, int]) -> Callable[[TopicPartition], LogHistory]:
        starts = self._read_offsets(checkpoints.LOG_START_OFFSETS)
        self._log_starts.found(starts)
        high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        cleaned = self._read_offsets(checkpoints.CLEANED_OFFSETS)

        def history(key: TopicPartition) -> LogHistory:
            return LogHistory(
                was_closed_cleanly=self.was_closed_cleanly,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=starts.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                cleaned_until=cleaned.get(key, 0),
            )

        return history

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = self.path / name
        try:
            content = self._files.read_bytes(path)
            # Kafka begins with an empty file.
            return checkpoints.parse_offsets(content) if content else {}
        except FileNotFoundError:
            return {}
        except ValueError as error:
            self._notices(f"{path} is not readable ({error}) and counts as missing")
            return {}


def partition_of(directory_name: str) -> TopicPartition | None:
    """Topic and partition of the log in a directory `<topic>-<partition>`."""
    topic, dash, partition = directory_name.rpartition("-")
    if not topic or not dash or not partition.isdecimal():
        return None
    return topic, int(partition)
