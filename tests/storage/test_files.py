"""The operating system's files do what the room relies on, and the fake disk does the same."""

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.files import IOV_MAX, File, FileSystem, OsFileSystem, write_atomically
from tests.fakes.disk import LOOKS, NEED_DESCRIPTORS, FakeDisk, Loss

FILE_SYSTEMS = [OsFileSystem, FakeDisk]


@pytest.fixture(params=FILE_SYSTEMS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    files: FileSystem = request.param()
    files.make_directory(tmp_path)
    return files


def test_buffers_are_appended_in_order_however_many(files: FileSystem, tmp_path: Path) -> None:
    file = files.open(tmp_path / "f")
    buffers = [b"%d," % n for n in range(IOV_MAX * 2 + 5)]

    assert file.writev(buffers) == len(b"".join(buffers))

    assert file.pread(1 << 20, 0) == b"".join(buffers)
    file.writev([b"end"])
    assert file.pread(3, file.size() - 3) == b"end"


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFileSystem().open(tmp_path / "f")
    writev, write = os.writev, os.write
    monkeypatch.setattr(os, "writev", lambda fd, buffers: writev(fd, [b"".join(map(bytes, buffers))[:5]]))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))

    assert file.writev([b"abc", memoryview(b"defg"), bytearray(b"hij")]) == 10

    assert file.pread(100, 0) == b"abcdefghij"


def test_reading_past_the_end_gives_what_there_is(files: FileSystem, tmp_path: Path) -> None:
    file = files.open(tmp_path / "f")
    file.writev([b"abc"])
    buffer = bytearray(10)

    assert file.pread(10, 1) == b"bc"
    assert file.readinto_nowait(buffer, 1) == 2
    assert file.readinto_nowait(buffer, 3) == 0
    assert buffer[:2] == b"bc"


def test_a_duplicate_outlives_the_file_it_was_made_from(files: FileSystem, tmp_path: Path) -> None:
    file = files.open(tmp_path / "f")
    file.writev([b"abc"])
    other = file.duplicate()
    file.close()
    files.remove(tmp_path / "f")

    assert other.pread(3, 0) == b"abc"


def test_file_that_is_not_to_be_made_has_to_be_there(files: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "f", create=False)
    assert files.list_directory(tmp_path) == []

    files.open(tmp_path / "f").writev([b"abc"])
    assert files.open(tmp_path / "f", create=False).pread(3, 0) == b"abc"


def test_names_are_listed_renamed_and_removed(files: FileSystem, tmp_path: Path) -> None:
    files.make_directory(tmp_path / "d")
    files.open(tmp_path / "d" / "b").close()
    files.open(tmp_path / "d" / "a").close()
    files.rename(tmp_path / "d" / "a", tmp_path / "d" / "c")
    files.rename(tmp_path / "d", tmp_path / "e")

    assert files.list_directory(tmp_path / "e") == ["b", "c"]
    files.remove(tmp_path / "e" / "gone")
    files.remove(tmp_path / "e" / "b")
    files.remove(tmp_path / "e" / "c")
    files.remove_directory(tmp_path / "e")
    assert not files.exists(tmp_path / "e")
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "e" / "b")
    with pytest.raises(FileNotFoundError):
        files.size(tmp_path / "x")


def test_a_lock_is_held_by_one(files: FileSystem, tmp_path: Path) -> None:
    lock = files.lock(tmp_path / ".lock")
    assert lock is not None
    assert files.lock(tmp_path / ".lock") is None
    lock.release()
    assert files.lock(tmp_path / ".lock") is not None


def test_fake_refuses_what_needs_a_descriptor(tmp_path: Path) -> None:
    """EMFILE hits the same operations of the real one."""
    real = OsFileSystem()
    file = real.open(tmp_path / "f")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest free number is the limit.
    lowest = os.open(tmp_path, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        refused = _refused(real, file, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert refused == dict.fromkeys(NEED_DESCRIPTORS, errno.EMFILE)


def test_fake_fails_once_for_each_failure_that_is_set(tmp_path: Path) -> None:
    disk = FakeDisk()
    disk.make_directory(tmp_path)
    file = disk.open(tmp_path / "f")
    for operation in (*NEED_DESCRIPTORS, *LOOKS, "pread"):
        disk.fail(operation, OSError(errno.EIO, "bad"))

    refused = _refused(disk, file, tmp_path)

    assert refused == dict.fromkeys((*NEED_DESCRIPTORS, *LOOKS, "pread"), errno.EIO)
    assert _refused(disk, file, tmp_path) == {}


def test_file_of_which_the_disk_says_nothing_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFileSystem()
    files.open(tmp_path / "f")
    assert not files.exists(tmp_path / "g")
    assert not files.exists(tmp_path / "f" / "within-a-file")
    monkeypatch.setattr(os, "stat", refuse)

    with pytest.raises(OSError, match="bad"):
        files.exists(tmp_path / "f")


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "bad")


def _refused(files: FileSystem, file: File, directory: Path) -> dict[str, int | None]:
    """Operations that end in an error, and its number."""
    path = directory / "f"
    operations: dict[str, Callable[[], object]] = {
        "open": lambda: files.open(path),
        "read_bytes": lambda: files.read_bytes(path),
        "duplicate": file.duplicate,
        "list_directory": lambda: files.list_directory(directory),
        "sync_directory": lambda: files.sync_directory(directory),
        "size": lambda: files.size(path),
        "modified_ms": lambda: files.modified_ms(path),
        "exists": lambda: files.exists(path),
        "pread": lambda: file.pread(1, 0),
    }
    refused: dict[str, int | None] = {}
    for name, operation in operations.items():
        try:
            operation()
        except OSError as error:
            refused[name] = error.errno
    return refused


@pytest.mark.parametrize("loss", list(Loss))
def test_file_replaced_atomically_is_old_or_new_after_any_crash(loss: Loss) -> None:
    """T-21"""
    disk, path = FakeDisk(), Path("/d/f")
    disk.make_directory(path.parent)
    write_atomically(disk, path, b"old")
    begin = len(disk.journal)
    write_atomically(disk, path, b"new")

    for operations in range(begin, len(disk.journal) + 1):
        found = FakeDisk.after(disk.journal[:operations], loss, seed=operations).read_bytes(path)
        assert found in (b"old", b"new")
    assert found == b"new"


def test_the_fake_forgets_what_was_not_synced() -> None:
    disk, path = FakeDisk(), Path("/d/f")
    disk.make_directory(path.parent)
    file = disk.open(path)
    file.writev([b"kept"])
    file.fsync()
    file.writev([b"lost"])
    assert not FakeDisk.after(disk.journal, Loss.UNSYNCED).exists(path)
    disk.sync_directory(path.parent)

    assert FakeDisk.after(disk.journal, Loss.UNSYNCED).read_bytes(path) == b"kept"
    assert FakeDisk.after(disk.journal, Loss.NOTHING).read_bytes(path) == b"keptlost"
