"""The file `log-start-offset-checkpoint`: where logs begin that do not begin with their first segment.

Recovery cuts off what lies below a log's start. So a line must not outlive its log: a topic of the same name may be
made at once, and a line of the one before it would cut off its records. Which lines the file may have is known at any
time, also while a thread writes it; and of two threads that write it, the one with the older content gives way.
"""

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from ottla.storage.checkpoints import TopicPartition, build_offsets
from ottla.storage.files import FileSystem, storage_error, write_atomically


class LogStartFile:
    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._made = 0
        # By the number of a content: the logs that it has lines of. That of the file is the first one, with those of
        # refused contents, which may have got there.
        self._lines: dict[int, Collection[TopicPartition]] = {0: frozenset()}

    def found(self, starts: Mapping[TopicPartition, int]) -> None:
        """What the file says now."""
        self._lines = {0: frozenset(starts)}

    def may_have_line_of(self, key: TopicPartition) -> bool:
        """Whether the file has one, or a content that is about to be written."""
        return any(key in lines for lines in tuple(self._lines.values()))

    def content(self, starts: Mapping[TopicPartition, int]) -> "LogStartCheckpoint":
        self._made += 1
        self._lines[self._made] = frozenset(starts)
        return LogStartCheckpoint(self, self._made, build_offsets(starts))

    def write(self, number: int, content: bytes) -> None:
        """Unless a newer content was written before. Raises KafkaStorageError."""
        with self._lock:
            if number < min(self._lines):
                return
            try:
                write_atomically(self._files, self._path, content)
            except OSError as error:
                self._merge(number)
                raise storage_error("write", self._path, error) from error
            for older in [each for each in tuple(self._lines) if each < number]:
                del self._lines[older]

    def _merge(self, number: int) -> None:
        """The file has the content that was refused, or the one before it."""
        before = min(self._lines)
        if before != number:
            self._lines[before] = frozenset((*self._lines[before], *self._lines[number]))
            del self._lines[number]


class LogStartCheckpoint:
    """A content of the file, made but not yet written."""

    def __init__(self, file: LogStartFile, number: int, content: bytes) -> None:
        self._file = file
        self._number = number
        self._content = content

    def write(self) -> None:
        """Replace the file, durably; from any thread. Raises KafkaStorageError."""
        self._file.write(self._number, self._content)
