"""A disk in memory that remembers every operation and can be asked what a crash after any of them leaves behind.

`journal` holds the operations that change something. `FakeDisk.after(journal, loss)` is the disk as a later process
finds it: with `Loss.NOTHING` everything is there, as after the kill of a process; with `Loss.UNSYNCED` only what was
synced, contents by `fsync` of the file and names by `sync_directory`, as after a power failure; with `Loss.SOME` a part
of the unsynced contents is there too, cut at random places; with `Loss.TORN` unsynced contents may have holes and zeros
at their end, and the changes of names in a directory end anywhere, in their order, as in a journal of a file system.
With `Loss.UNORDERED` each change of a name is there or not by itself. Between files no order is kept.

An `fsync` that fails drops what it should have written, as Linux does: the page cache still has it, a later `fsync`
succeeds, and after a power failure there are zeros.
"""

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ottla.storage.files import AnyPath


class Loss(Enum):
    NOTHING = auto()
    UNSYNCED = auto()
    SOME = auto()
    TORN = auto()
    UNORDERED = auto()


HOLE_BYTES = 64
"""Smaller than a page, as the files of tests are smaller than real ones."""
NEED_DESCRIPTORS = ("open", "read_bytes", "duplicate", "list_directory", "sync_directory")
"""What a process without descriptors cannot do."""
LOOKS = ("size", "modified_ms", "exists")
"""What a bad disk may refuse to say of a file, and needs no descriptor."""

Operation = tuple[Any, ...]
_METHODS = {
    "write": "_write",
    "truncate": "_truncate",
    "fsync": "_fsync",
    "failed fsync": "_fsync_failed",
    "create": "_create",
    "mkdir": "_mkdir",
    "rename": "_rename",
    "remove": "_remove",
    "rmdir": "_rmdir",
    "syncdir": "_syncdir",
}


@lru_cache(4_096)
def _place(path: str) -> tuple[str, str]:
    """The directory and the name in it, as `Path` says them."""
    directory, _, name = path.rpartition("/")
    return directory or ("/" if path.startswith("/") else "."), name


@dataclass
class _Inode:
    number: int
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """From and to: what a failed `fsync` should have written."""

    def on_disk(self) -> bytes:
        """What an `fsync` of now makes durable."""
        content = bytearray(self.content)
        for start, end in self.dropped:
            content[start:end] = bytes(max(min(end, len(content)) - start, 0))
        return bytes(content)


class FakeFile:
    """An open file; closing forbids further use, as with a descriptor."""

    def __init__(self, disk: "FakeDisk", inode: _Inode) -> None:
        self._disk = disk
        self._inode: _Inode | None = inode
        disk.open_files.add(self)

    @property
    def inode(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed")
        return self._inode

    def writev(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        data = b"".join(buffers)
        failure = self._disk.take_failure("writev")
        if failure is not None:
            torn = data[: self._disk.torn_bytes]
            if torn:
                self._disk.do(("write", self.inode.number, torn))
            raise failure
        self._disk.do(("write", self.inode.number, data))
        return len(data)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.maybe_fail("pread")
        return bytes(self.inode.content[position : position + size])

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int:
        if self._disk.is_cold:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._disk.maybe_fail("truncate")
        if size != len(self.inode.content):
            self._disk.do(("truncate", self.inode.number, size))

    def fsync(self) -> None:
        failure = self._disk.take_failure("fsync")
        if failure is not None:
            self._disk.do(("failed fsync", self.inode.number))
            raise failure
        self._disk.do(("fsync", self.inode.number))

    def size(self) -> int:
        return len(self.inode.content)

    def duplicate(self) -> "FakeFile":
        self._disk.maybe_fail("duplicate")
        return FakeFile(self._disk, self.inode)

    def close(self) -> None:
        self._inode = None
        self._disk.open_files.discard(self)


class FakeLock:
    def __init__(self, disk: "FakeDisk", path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class FakeDisk:
    """A `FileSystem`. `fail(operation, error)` makes the next one of that name fail."""

    def __init__(self) -> None:
        self.journal: list[Operation] = []
        self.is_cold = False
        self.torn_bytes = 0
        self.locked: set[Path] = set()
        # A real file is closed too when nothing refers to it any more.
        self.open_files: WeakSet[FakeFile] = WeakSet()
        self._failures: dict[str, list[OSError]] = {}
        self._inodes: dict[int, _Inode] = {}
        # By directory, as text: a path is hashed and compared part by part, and each of its parents is made again.
        self._names: dict[str, dict[str, int | None]] = {}
        self._durable_names: dict[str, dict[str, int | None]] = {}
        # Of each directory, since it was synced: which names an operation has changed, and how.
        self._changed_names: dict[str, list[dict[str, int | None]]] = {}

    # Crashes and failures

    @classmethod
    def after(cls, journal: Sequence[Operation], loss: Loss = Loss.NOTHING, seed: int = 0) -> "FakeDisk":
        """The disk that a crash after these operations leaves."""
        disk = cls()
        for operation in journal:
            disk.do(operation)
        if loss is not Loss.NOTHING:
            disk._lose(loss, random.Random(seed))
        disk.journal = []
        return disk

    def _lose(self, loss: Loss, rng: random.Random) -> None:
        for inode in self._inodes.values():
            kept = bytes(inode.synced)
            content = inode.on_disk()
            if loss is not Loss.UNSYNCED and content[: len(kept)] == kept:
                kept += self._kept_of(content[len(kept) :], loss, rng)
            inode.content = bytearray(kept)
            inode.dropped.clear()
        if loss in (Loss.TORN, Loss.UNORDERED):
            in_order = loss is Loss.TORN
            self._names = {directory: self._torn_names(directory, rng, in_order) for directory in self._names}
        elif loss is Loss.UNSYNCED or rng.random() < 0.5:
            self._names = {directory: dict(names) for directory, names in self._durable_names.items()}
        self._changed_names.clear()
        self._forget_unreachable()

    def _kept_of(self, unsynced: bytes, loss: Loss, rng: random.Random) -> bytes:
        kept = bytearray(unsynced[: rng.randint(0, len(unsynced))])
        if loss in (Loss.TORN, Loss.UNORDERED):
            for position in range(0, len(kept), HOLE_BYTES):
                if rng.random() < 0.3:
                    hole = kept[position : position + HOLE_BYTES]
                    kept[position : position + len(hole)] = bytes(len(hole))
            if rng.random() < 0.3:
                # The file is longer than what was written of it.
                kept += bytes(rng.randint(0, len(unsynced) - len(kept)))
        return bytes(kept)

    def _torn_names(self, directory: str, rng: random.Random, in_order: bool) -> dict[str, int | None]:
        """Directories stay. Out of order, a change is there only with those before it that were of the same names."""
        names = dict(self._durable_names.get(directory, {}))
        changes = self._changed_names.get(directory, [])
        lost: set[str] = set()
        for change in changes[: rng.randint(0, len(changes))] if in_order else changes:
            if lost & change.keys() or (not in_order and rng.random() < 0.5):
                lost |= change.keys()
                continue
            for name, inode in change.items():
                if inode is None:
                    names.pop(name, None)
                else:
                    names[name] = inode
        names = {name: inode for name, inode in names.items() if inode is not None}
        return names | {name: None for name, inode in self._names[directory].items() if inode is None}

    def _forget_unreachable(self) -> None:
        """Directories whose own name was not durable are gone with all that is in them."""
        for directory in sorted(self._names, key=lambda path: len(Path(path).parts)):
            parent, name = _place(directory)
            if parent in self._names and name not in self._names[parent]:
                del self._names[directory]
        for directory, names in list(self._names.items()):
            for name, inode in list(names.items()):
                path = str(Path(directory, name))
                if inode is None and path not in self._names:
                    self._names.setdefault(path, {})

    def fail(self, operation: str, error: OSError, *, after: int = 0) -> None:
        """Let the next `operation` fail, or the one after `after` others."""
        self._failures.setdefault(operation, []).extend([*([None] * after), error])  # type: ignore[list-item]

    def take_failure(self, operation: str) -> OSError | None:
        queue = self._failures.get(operation)
        return queue.pop(0) if queue else None

    def maybe_fail(self, operation: str) -> None:
        failure = self.take_failure(operation)
        if failure is not None:
            raise failure

    @contextmanager
    def nothing_fails(self) -> Iterator[None]:
        """For who looks on: what is to fail waits for those that it is meant for."""
        failures, self._failures = self._failures, {}
        try:
            yield
        finally:
            self._failures = failures

    def flip_bit(self, path: Path, bit: int) -> None:
        """Damage a file as a bad sector does: no operation, no trace."""
        self._inode_at(path).content[bit // 8] ^= 1 << bit % 8

    # Operations

    def do(self, operation: Operation) -> None:
        """Perform one journal entry."""
        self.journal.append(operation)
        getattr(self, _METHODS[operation[0]])(*operation[1:])

    def _write(self, number: int, data: bytes) -> None:
        self._inodes[number].content += data

    def _truncate(self, number: int, size: int) -> None:
        inode = self._inodes[number]
        content = inode.content
        del content[size:]
        content.extend(bytes(size - len(content)))
        inode.dropped = [(start, min(end, size)) for start, end in inode.dropped if start < size]

    def _fsync(self, number: int) -> None:
        inode = self._inodes[number]
        inode.synced = inode.on_disk() if inode.dropped else bytes(inode.content)

    def _fsync_failed(self, number: int) -> None:
        inode = self._inodes[number]
        inode.dropped.append((len(inode.synced), len(inode.content)))

    def _create(self, path: Path, number: int) -> None:
        directory, name = _place(str(path))
        self._inodes[number] = _Inode(number)
        self._names[directory][name] = number
        self._changed(directory, {name: number})

    def _changed(self, directory: str, names: dict[str, int | None]) -> None:
        self._changed_names.setdefault(directory, []).append(names)

    def _mkdir(self, path: Path) -> None:
        self._names.setdefault(str(path), {})
        directory, name = _place(str(path))
        if directory != str(path) and directory in self._names:
            self._names[directory][name] = None

    def _rename(self, source: AnyPath, target: AnyPath) -> None:
        before, after = str(source), str(target)
        directory, name = _place(before)
        new_directory, new_name = _place(after)
        inode = self._names[directory].pop(name)
        self._names[new_directory][new_name] = inode
        if inode is not None:
            self._changed(new_directory, {name: None, new_name: inode})
        if inode is None:
            if before in self._changed_names:
                self._changed_names[after] = self._changed_names.pop(before)
            self._names[after] = self._names.pop(before)
            if before in self._durable_names:
                self._durable_names[after] = self._durable_names.pop(before)

    def _remove(self, path: AnyPath) -> None:
        directory, name = _place(str(path))
        del self._names[directory][name]
        self._changed(directory, {name: None})

    def _rmdir(self, path: Path) -> None:
        directory, name = _place(str(path))
        del self._names[str(path)]
        self._changed_names.pop(str(path), None)
        self._names[directory].pop(name, None)

    def _syncdir(self, path: Path) -> None:
        directory = str(path)
        self._durable_names[directory] = dict(self._names[directory])
        self._changed_names.pop(directory, None)

    def _number_at(self, path: AnyPath) -> int | None:
        """None where there is no file."""
        directory, name = _place(str(path))
        names = self._names.get(directory)
        return None if names is None else names.get(name)

    def _has_name(self, path: AnyPath) -> bool:
        directory, name = _place(str(path))
        return name in self._names.get(directory, ())

    def _inode_at(self, path: AnyPath) -> _Inode:
        number = self._number_at(path)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return self._inodes[number]

    # FileSystem

    def open(self, path: AnyPath, *, create: bool = True) -> FakeFile:
        self.maybe_fail("open")
        directory, name = _place(str(path))
        if directory not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        if create and name not in self._names[directory]:
            self.do(("create", path, len(self._inodes)))
        return FakeFile(self, self._inode_at(path))

    def exists(self, path: AnyPath) -> bool:
        self.maybe_fail("exists")
        return str(path) in self._names or self._has_name(path)

    def size(self, path: AnyPath) -> int:
        self.maybe_fail("size")
        return len(self._inode_at(path).content)

    def modified_ms(self, path: Path) -> int:
        self.maybe_fail("modified_ms")
        self._inode_at(path)
        return 0

    def read_bytes(self, path: AnyPath) -> bytes:
        self.maybe_fail("read_bytes")
        return bytes(self._inode_at(path).content)

    def list_directory(self, path: Path) -> list[str]:
        self.maybe_fail("list_directory")
        return sorted(self._names[str(path)])

    def is_directory(self, path: Path) -> bool:
        return str(path) in self._names

    def make_directory(self, path: Path) -> None:
        self.maybe_fail("make_directory")
        for part in [*reversed(path.parents), path]:
            if str(part) not in self._names:
                self.do(("mkdir", part))

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        self.maybe_fail("rename")
        if not self._has_name(source):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self.do(("rename", source, target))

    def remove(self, path: AnyPath) -> None:
        self.maybe_fail("remove")
        if self._has_name(path):
            self.do(("remove", path))

    def remove_directory(self, path: Path) -> None:
        if str(path) in self._names:
            if self._names[str(path)]:
                raise OSError(errno.ENOTEMPTY, "the directory is not empty", str(path))
            self.do(("rmdir", path))

    def sync_directory(self, path: Path) -> None:
        self.maybe_fail("sync_directory")
        if str(path) not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        self.do(("syncdir", path))

    def lock(self, path: Path) -> FakeLock | None:
        if path in self.locked:
            return None
        self.locked.add(path)
        return FakeLock(self, path)
