"""The files of one broker on a disk that can be made to fail.

As long as nothing is wrong with the disk, a file does what `OsFile` does, by the same functions; it knows its path, and
says before it changes, for snapshots that may have hard links of it. When something comes into force, the files that
are open become `FaultyFile`s, and those opened then are; they become `DiskFile`s again when the disk is healed.
"""

import errno
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from ottla.storage.files import AnyPath, Buffer, OsFile, OsFileSystem, open_descriptor

if TYPE_CHECKING:
    from ottla.testing.surroundings.unsynced import DiskLoss, UnsyncedJournal

OPERATIONS: Final = ("fsync", "write", "read")


@dataclass
class DiskFailure:
    """An operation that fails with an input/output error."""

    operation: str
    match: str
    """A pattern for paths in the data directory: `orders-0/*`."""
    left: int | None
    """How many times; None: for good."""


class DiskState:
    """What is wrong with the disk of one broker. Changed on the brokers' loop, asked from it and from threads."""

    def __init__(
        self,
        directory: Path,
        before_change: Callable[[int], None],
        *,
        kinds: "tuple[type[DiskFile], type[DiskFile]] | None" = None,
        journal: "UnsyncedJournal | None" = None,
    ) -> None:
        """`before_change` is called with the descriptor of a file that is about to be written or truncated. `kinds` are
        those of files while the disk is sound and while it is not, where they keep a `journal`."""
        self.directory = directory
        self.before_change = before_change
        self._kinds = kinds or (DiskFile, FaultyFile)
        self.journal = journal
        self.loses_at_kill = False
        """The next kill of its broker is a power cut."""
        self._power_cuts = 0
        self._files: WeakSet[DiskFile] = WeakSet()
        self._lock = threading.Lock()
        self._loop_thread = threading.get_ident()
        self.room_bytes: int | None = None
        """None: not limited."""
        self.fsync_ms: float = 0
        self.failures: list[DiskFailure] = []
        # Set while nothing has to wait.
        self._goes_on = threading.Event()
        self._goes_on.set()

    @property
    def is_sound(self) -> bool:
        return self.room_bytes is None and not self.fsync_ms and not self.failures and not self.is_stalled

    @property
    def is_stalled(self) -> bool:
        return not self._goes_on.is_set()

    def opened(self, descriptor: int, path: AnyPath) -> "DiskFile":
        with self._lock:
            file = self._kind(descriptor, path, self)
            self._files.add(file)
        return file

    @property
    def boot_id(self) -> str | None:
        """Of the machine, which starts again after a power cut; None: as the kernel says."""
        return f"after power cut {self._power_cuts}" if self._power_cuts else None

    def lose(self) -> "DiskLoss":
        """A power cut, whose broker does not run any more. Raises OSError."""
        assert self.journal is not None, "it is known what is not synced"
        self.loses_at_kill = False
        self._power_cuts += 1
        return self.journal.lose(self.before_change)

    def stall(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def heal(self) -> None:
        self.room_bytes, self.fsync_ms, self.loses_at_kill = None, 0, False
        self.failures.clear()
        self.go_on()
        self.apply()

    def apply(self) -> None:
        """What was changed is in force for the files that are open."""
        with self._lock:
            for file in self._files:
                file.__class__ = self._kind

    @property
    def _kind(self) -> "type[DiskFile]":
        sound, faulty = self._kinds
        return sound if self.is_sound else faulty

    # Asked by files.

    def check(self, operation: str, path: AnyPath) -> None:
        """Raises OSError for an operation that fails."""
        self._wait(operation)
        name = str(path).removeprefix(f"{self.directory}/")
        with self._lock:
            for failure in self.failures:
                if failure.operation == operation and failure.left != 0 and fnmatchcase(name, failure.match):
                    if failure.left is not None:
                        failure.left -= 1
                    raise OSError(errno.EIO, f"{operation} failed, as a test wants it", str(path))

    def would_wait(self) -> bool:
        """Whether a read has to wait for the disk."""
        return self.is_stalled

    def take_room(self, wanted: int) -> int:
        """How many of so many bytes still fit."""
        with self._lock:
            if self.room_bytes is None:
                return wanted
            taken = min(wanted, self.room_bytes)
            self.room_bytes -= taken
            return taken

    def _wait(self, operation: str) -> None:
        """Only in threads: all brokers share the loop. What is written there goes to the page cache, which takes it
        from a disk that does not answer too."""
        if threading.get_ident() == self._loop_thread:
            return
        self._goes_on.wait()
        if operation == "fsync" and self.fsync_ms:
            sleep(self.fsync_ms / 1000)


class DiskFile(OsFile):
    """A file while nothing is wrong with the disk."""

    __slots__ = ("__weakref__", "_disk", "path")

    def __init__(self, descriptor: int, path: AnyPath, disk: DiskState) -> None:
        super().__init__(descriptor)
        self.path = path
        self._disk = disk

    def writev(self, buffers: Sequence[Buffer]) -> int:
        self._disk.before_change(self._fd)
        return OsFile.writev(self, buffers)

    def truncate(self, size: int) -> None:
        self._disk.before_change(self._fd)
        OsFile.truncate(self, size)

    def duplicate(self) -> OsFile:
        return self._disk.opened(os.dup(self._fd), self.path)


class FaultyFile(DiskFile):
    """While something is wrong with the disk. It may be a `DiskFile` again before a call of it has ended: so functions
    of `OsFile` are called by name."""

    __slots__ = ()

    def writev(self, buffers: Sequence[Buffer]) -> int:
        self._disk.before_change(self._fd)
        self._disk.check("write", self.path)
        total = sum(map(len, buffers))
        room = self._disk.take_room(total)
        if room == total:
            return OsFile.writev(self, buffers)
        OsFile.writev(self, [b"".join(buffers)[:room]])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def pread(self, size: int, position: int) -> bytes:
        self._disk.check("read", self.path)
        return OsFile.pread(self, size, position)

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int:
        if self._disk.would_wait():
            raise BlockingIOError(errno.EAGAIN, "the disk does not answer")
        self._disk.check("read", self.path)
        return OsFile.readinto_nowait(self, buffer, position)

    def fsync(self) -> None:
        self._disk.check("fsync", self.path)
        OsFile.fsync(self)


class DiskFileSystem(OsFileSystem):
    """`ottla.storage.files.FileSystem` for one broker."""

    def __init__(self, disk: DiskState) -> None:
        self._disk = disk

    def open(self, path: AnyPath, *, create: bool = True) -> OsFile:
        return self._disk.opened(open_descriptor(path, create=create), path)

    def read_bytes(self, path: AnyPath) -> bytes:
        if not self._disk.is_sound:
            self._disk.check("read", path)
        return super().read_bytes(path)

    def sync_directory(self, path: Path) -> None:
        if not self._disk.is_sound:
            self._disk.check("fsync", path)
        super().sync_directory(path)


@contextmanager
def descriptor_to_change(path: Path) -> Generator[int]:
    """To change a file as a failing disk does, behind the back of those who have it open."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def flip_bit(path: Path, position: int) -> None:
    """The lowest bit of one byte."""
    with descriptor_to_change(path) as descriptor:
        byte = os.pread(descriptor, 1, position)
        os.pwrite(descriptor, bytes([byte[0] ^ 1]), position)


def cut_end(path: Path, size: int) -> None:
    """The last `size` bytes go, or all there are."""
    with descriptor_to_change(path) as descriptor:
        os.ftruncate(descriptor, max(os.fstat(descriptor).st_size - size, 0))
