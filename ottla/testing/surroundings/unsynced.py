"""What a power cut takes from the disk of a broker: all that was never synced.

The files have what was written, so what is kept here is only how things were when they were last synced: of a file how
long it was and what was cut off since, of a directory which names have changed. What a change would take away for good,
a file that is removed or replaced, gets a name in a directory beside that of the broker. `lose` undoes all of it.

A file counts as synced as far as it had been written when its sync began, a name when that of its directory did. When
the power is off, nothing is synced any more, whatever threads of the broker are still about to do.
"""

import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from ottla.storage.segment import LOG_SUFFIX

HELD_BYTES_MAX: Final = 64 << 20
"""Of one disk, of what was cut off and removed: in memory, and in files that have no other name."""
COPY_BYTES: Final = 1 << 20

_FileKey = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True)
class _Content:
    """What a file has had at its last sync."""

    intact_bytes: int
    """So many at the begin of the file are as they were synced."""
    cut: bytes = b""
    """What was synced behind them, and was cut off since."""


@dataclass(slots=True, eq=False)
class _Directory:
    """One of those whose names may be unsynced; another one may have its path later."""

    path: Path


class _Kind(Enum):
    CREATED = auto()
    MADE = auto()
    RENAMED = auto()
    REMOVED = auto()
    UNMADE = auto()


class _NameChange(NamedTuple):
    """Of a name in a directory, which was not synced since."""

    kind: _Kind
    directory: _Directory
    name: str
    new_name: str = ""
    kept: Path | None = None
    """Another name of the file that this one was removed of, or that was replaced."""
    child: _Directory | None = None
    """Of a directory: the one that was made, renamed or removed."""


@dataclass(frozen=True, slots=True)
class DiskLoss:
    """What a power cut took."""

    record_bytes: int
    """Of logs."""
    partitions: frozenset[str]
    """`orders-0`: those whose logs have lost something."""


class UnsyncedJournal:
    """Of the files below one directory. All may be called from any thread."""

    def __init__(self, directory: Path, when_full: Callable[[], None], *, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        """`when_full` is called in whatever thread it happens in."""
        self._root = directory
        self._kept_dir = directory.with_name(f"unsynced-{directory.name}")
        self._when_full = when_full
        self._held_bytes_max = held_bytes_max
        self._held_bytes = 0
        self._lock = threading.RLock()
        self._contents: dict[_FileKey, _Content] = {}
        self._directories: dict[Path, _Directory] = {}
        # In the order in which they happened.
        self._changes: list[_NameChange] = []
        self._count = 0
        self._has_power = True
        self.is_full = False
        """More was cut off and removed than is held: what is synced is not known any more, until `all_synced`."""
        self.all_synced()

    def all_synced(self) -> None:
        """All counts as synced as it is now."""
        with self._lock:
            self._forget()
            self.is_full, self._has_power = False, True
            self._contents = {_key(found): _Content(found.st_size) for _, found in _files_below(self._root)}

    @contextmanager
    def changing(self) -> Generator[None]:
        """Around a change of names and its note."""
        with self._lock:
            yield

    # Files.

    def opened(self, path: Path, descriptor: int, *, is_new: bool) -> None:
        found = os.fstat(descriptor)
        if is_new:
            # A number that is used again is of another file.
            self._contents[_key(found)] = _Content(0)
            self._note(_NameChange(_Kind.CREATED, self._directory(path.parent), path.name))
        else:
            self._contents.setdefault(_key(found), _Content(found.st_size))

    def truncating(self, descriptor: int, size: int) -> None:
        """The file is about to be truncated."""
        with self._lock:
            content = self._contents.get(_key(os.fstat(descriptor)))
            if content is None or size >= content.intact_bytes or self.is_full:
                return
            cut = _read(descriptor, size, content.intact_bytes)
            content.intact_bytes, content.cut = size, cut + content.cut
            self._hold(len(cut))

    def syncing(self, descriptor: int) -> None:
        """The sync of a file is about to begin."""
        with self._lock:
            found = os.fstat(descriptor)
            content = self._contents.get(_key(found))
            if content is not None and self._has_power:
                self._held_bytes -= len(content.cut)
                content.intact_bytes, content.cut = found.st_size, b""

    # Names.

    @contextmanager
    def keeping(self, path: Path) -> Generator[Path | None]:
        """Another name of a file that loses this one in the body; None where it is none."""
        kept = self._kept(path)
        try:
            yield kept
        except BaseException:
            if kept is not None:
                kept.unlink(missing_ok=True)
            raise

    def _kept(self, path: Path) -> Path | None:
        if self.is_full or not path.is_file():
            return None
        self._kept_dir.mkdir(exist_ok=True)
        self._count += 1
        kept = self._kept_dir / str(self._count)
        os.link(path, kept)
        return kept

    def made(self, path: Path) -> None:
        child = self._directories[path] = _Directory(path)
        self._note(_NameChange(_Kind.MADE, self._directory(path.parent), path.name, child=child))

    def renamed(self, source: Path, target: Path, replaced: Path | None) -> None:
        assert source.parent == target.parent, "names move within a directory"
        child = self._directory(source) if target.is_dir() else None
        if child is not None:
            self._move(child, target)
        parent = self._directory(target.parent)
        self._note(_NameChange(_Kind.RENAMED, parent, source.name, target.name, kept=replaced, child=child))

    def removed(self, path: Path, kept: Path | None) -> None:
        if kept is not None:
            self._note(_NameChange(_Kind.REMOVED, self._directory(path.parent), path.name, kept=kept))

    def unmade(self, path: Path) -> None:
        child = self._directory(path)
        del self._directories[path]
        self._note(_NameChange(_Kind.UNMADE, self._directory(path.parent), path.name, child=child))

    def syncing_directory(self, path: Path) -> None:
        """The sync of a directory is about to begin."""
        with self._lock:
            synced = self._directories.get(path)
            if synced is not None and self._has_power:
                self._drop(synced)

    # The end.

    def cut_power(self) -> None:
        """Nothing is synced from now on."""
        with self._lock:
            self._has_power = False

    def lose(self, before_change: Callable[[int], None]) -> DiskLoss:
        """Takes what is not synced from the disk of a broker that does not run; what is left is synced. `before_change`
        is called with the descriptor of a file that is about to be truncated. Raises OSError."""
        with self._lock:
            before = _log_sizes(self._root)
            for change in reversed(self._changes):
                self._undo(change)
            self._changes.clear()
            for path, found in _files_below(self._root):
                content = self._contents.get(_key(found))
                if content is not None and (found.st_size != content.intact_bytes or content.cut):
                    _restore(path, content, before_change)
            after = _log_sizes(self._root)
            self.all_synced()
        lost = {path: size - after.get(path, 0) for path, size in before.items() if size > after.get(path, 0)}
        return DiskLoss(sum(lost.values()), frozenset(path.parent.name for path in lost))

    # Inside.

    def _directory(self, path: Path) -> _Directory:
        return self._directories.setdefault(path, _Directory(path))

    def _move(self, child: _Directory, target: Path) -> None:
        del self._directories[child.path]
        child.path = target
        self._directories[target] = child

    def _note(self, change: _NameChange) -> None:
        if self.is_full or not change.directory.path.is_relative_to(self._root):
            return
        self._changes.append(change)
        if change.kept is not None:
            self._hold(change.kept.stat().st_size)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > self._held_bytes_max:
            self._forget()
            self.is_full = True
            self._when_full()

    def _drop(self, synced: _Directory) -> None:
        """Its names are as they will be found."""
        dropped = [change for change in self._changes if change.directory is synced]
        self._changes = [change for change in self._changes if change.directory is not synced]
        for change in dropped:
            if change.kept is not None:
                self._held_bytes -= self._unlink(change.kept)
            if change.kind is _Kind.UNMADE and change.child is not None:
                self._drop(change.child)

    def _unlink(self, kept: Path) -> int:
        """How many bytes it had."""
        found = kept.stat()
        if found.st_nlink == 1:
            content = self._contents.pop(_key(found), None)
            self._held_bytes -= 0 if content is None else len(content.cut)
        kept.unlink()
        return found.st_size

    def _forget(self) -> None:
        self._changes.clear()
        self._directories.clear()
        for content in self._contents.values():
            content.cut = b""
        self._held_bytes = 0
        shutil.rmtree(self._kept_dir, ignore_errors=True)

    def _undo(self, change: _NameChange) -> None:
        parent = change.directory.path
        path = parent / change.name
        match change.kind:
            case _Kind.CREATED:
                path.unlink(missing_ok=True)
            case _Kind.MADE:
                shutil.rmtree(path, ignore_errors=True)
            case _Kind.RENAMED:
                target = parent / change.new_name
                target.rename(path)
                if change.child is not None:
                    change.child.path = path
                if change.kept is not None:
                    change.kept.rename(target)
            case _Kind.REMOVED:
                assert change.kept is not None, "what is removed is kept"
                change.kept.rename(path)
            case _Kind.UNMADE:
                path.mkdir()


def _key(found: os.stat_result) -> _FileKey:
    return found.st_dev, found.st_ino


def _files_below(root: Path) -> Iterable[tuple[Path, os.stat_result]]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            yield path, path.stat()


def _log_sizes(root: Path) -> dict[Path, int]:
    return {path: found.st_size for path, found in _files_below(root) if path.suffix == LOG_SUFFIX}


def _read(descriptor: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end and (data := os.pread(descriptor, min(end - start, COPY_BYTES), start)):
        parts.append(data)
        start += len(data)
    return b"".join(parts)


def _restore(path: Path, content: _Content, before_change: Callable[[int], None]) -> None:
    with path.open("r+b") as file:
        before_change(file.fileno())
        file.truncate(content.intact_bytes)
        file.seek(content.intact_bytes)
        file.write(content.cut)
