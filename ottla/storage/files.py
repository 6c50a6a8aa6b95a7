"""The file system as storage sees it: few operations, so that a fake disk can stand in for the real one.

Everything in this room that touches a disk goes through a `FileSystem` and the `File`s it opens. The operations are
those whose durability matters: a write is durable after `fsync` of its file, a name after `sync_directory` of the
directory it stands in. Errors are plain `OSError`s; the callers know what was being attempted and say so with
`storage_error`.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from ottla.protocol.errors import KafkaStorageError

Buffer: TypeAlias = bytes | bytearray | memoryview
AnyPath: TypeAlias = str | Path
"""Text where many are made, as for each log that is opened: a Path costs as much as a call of the kernel."""

IOV_MAX = os.sysconf("SC_IOV_MAX")
"""How many buffers the kernel takes in one writev."""

# Records and credentials are for the broker alone.
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class File(Protocol):
    """An open file that is read anywhere and written at its end."""

    def writev(self, buffers: Sequence[Buffer]) -> int:
        """Append all of the buffers, in order; the number of bytes. On an OSError any part may have been written."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file."""
        ...

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill `buffer` as far as bytes are at hand without waiting for the disk. Raises BlockingIOError for none."""
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def size(self) -> int: ...

    def duplicate(self) -> "File":
        """The same file under a descriptor of its own, for a thread that must not care who closes this one."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock held on a data directory until it is released or the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Where logs live. Paths are absolute or relative to the process, as the caller likes."""

    def open(self, path: AnyPath, *, create: bool = True) -> File:
        """The file at `path`, created empty if it is not there; without `create` that raises FileNotFoundError."""
        ...

    def exists(self, path: AnyPath) -> bool:
        """Raises OSError where the disk does not say: a file taken for gone would stay, and be found again."""
        ...

    def size(self, path: AnyPath) -> int:
        """Raises FileNotFoundError."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, in milliseconds of the wall clock. Raises FileNotFoundError."""
        ...

    def read_bytes(self, path: AnyPath) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def list_directory(self, path: Path) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def is_directory(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Make the directory and its parents; one that is there is fine."""
        ...

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        """Give the file or directory another name, replacing a file of that name."""
        ...

    def remove(self, path: AnyPath) -> None:
        """Remove the file; one that is gone is fine."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that is gone is fine."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make names created, changed and removed in the directory durable."""
        ...

    def lock(self, path: Path) -> Lock | None:
        """An exclusive lock on the file, or None while another process holds it."""
        ...


def write_atomically(files: FileSystem, path: AnyPath, content: bytes, *, sync: bool = True) -> None:
    """Replace the file at `path` so that a crash leaves the old content or the new, never a mixture.

    With `sync` the new content also survives a power failure from here on; without it, either content may come back.
    """
    aside = f"{path}.tmp"
    files.remove(aside)
    file = files.open(aside)
    try:
        file.writev([content])
        if sync:
            file.fsync()
    finally:
        file.close()
    files.rename(aside, path)
    if sync:
        files.sync_directory(Path(path).parent)


def write_file(files: FileSystem, path: AnyPath, content: bytes) -> None:
    """Write a file that is made again after a crash anyway: neither atomic nor synced."""
    file = files.open(path)
    try:
        file.truncate(0)
        file.writev([content])
    finally:
        file.close()


def sync_file(files: FileSystem, path: Path) -> None:
    """Raises FileNotFoundError."""
    file = files.open(path, create=False)
    try:
        file.fsync()
    finally:
        file.close()


class OsFile:
    """A file descriptor. It closes when it is forgotten, as Python's own files do."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def writev(self, buffers: Sequence[Buffer]) -> int:
        if len(buffers) > IOV_MAX:
            return sum(self.writev(buffers[i : i + IOV_MAX]) for i in range(0, len(buffers), IOV_MAX))
        written = os.writev(self._fd, buffers)
        total = sum(map(len, buffers))
        if written < total:
            self._write_rest(buffers, written)
        return total

    def _write_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """What a full disk, a signal or a limit of 2 GiB per call left over, one buffer after another."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            skipped = min(written, len(view))
            written -= skipped
            while skipped < len(view):
                count = os.write(self._fd, view[skipped:])
                if count == 0:
                    raise OSError(errno.EIO, "the device takes no more bytes")
                skipped += count

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._fd, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def readinto_nowait(self, buffer: bytearray | memoryview, position: int) -> int:
        try:
            return os.preadv(self._fd, [buffer], position, _NOWAIT)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # Some file systems (overlays, tmpfs on old kernels) cannot promise not to wait; reading is all there is.
            return os.preadv(self._fd, [buffer], position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        os.fsync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def duplicate(self) -> "OsFile":
        return OsFile(os.dup(self._fd))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def _rest_of(descriptor: int) -> bytes:
    """Of a file that grows, or of which the kernel did not give all at once."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def open_descriptor(path: AnyPath, *, create: bool = True) -> int:
    """Of the file at `path`, as `FileSystem.open` says: to read anywhere, and to write at the end."""
    return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0) | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)


class OsLock:
    """A BSD lock; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The operating system's files. New ones are their owner's alone; those that are there keep their modes."""

    def open(self, path: AnyPath, *, create: bool = True) -> OsFile:
        return OsFile(open_descriptor(path, create=create))

    def exists(self, path: AnyPath) -> bool:
        try:
            os.stat(path)  # noqa: PTH116 - a Path would be made of text
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: AnyPath) -> int:
        return os.stat(path).st_size  # noqa: PTH116 - as above

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def read_bytes(self, path: AnyPath) -> bytes:
        # Of small files, several for each log that is opened: the layers of Python's own files take longer than both.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            content = os.read(descriptor, size + 1)
            if len(content) != size:
                content += _rest_of(descriptor)
        finally:
            os.close(descriptor)
        return content

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - only the names: paths of them all take several times as long

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path) -> None:
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        os.replace(source, target)  # noqa: PTH105 - as above

    def remove(self, path: AnyPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - as above

    def remove_directory(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> OsLock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return OsLock(fd)


_REASONS = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EIO: "the device reports an input/output error",
    errno.EMFILE: "this process has too many files open",
    errno.ENFILE: "the system has too many files open",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "it is not a directory",
    errno.EEXIST: "there is a file of that name",
}


NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What opening a file may end in, and syncing one never does."""


def reason_of(error: OSError) -> str:
    """The cause in plain words, for the end of a sentence."""
    if error.errno in _REASONS:
        return _REASONS[error.errno]
    return error.strerror or str(error)


def storage_error(action: str, path: AnyPath, error: Exception) -> KafkaStorageError:
    """`storage_error("append to", path, error)`: the failure as clients get it and as the log says it. The error is
    the disk's, or says what is wrong with a file."""
    reason = reason_of(error) if isinstance(error, OSError) else str(error)
    return KafkaStorageError(f"could not {action} {path}: {reason}")
