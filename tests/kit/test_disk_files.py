"""The file system in front of the real one: plain while the disk is sound, failing as the disk is made to."""

import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla.storage.files import OsFile
from ottla.testing.surroundings.disk_files import DiskFailure, DiskFileSystem, DiskState, FaultyFile, cut_end, flip_bit
from ottla.testing.surroundings.disks import DiskError, _position_of

# Those that change no file that a snapshot may have a name of.
OPERATIONS = ("pread", "readinto_nowait", "fsync", "size", "close")


@pytest.fixture
def disk(tmp_path: Path) -> DiskState:
    return DiskState(tmp_path, lambda descriptor: None)


@pytest.fixture
def files(disk: DiskState) -> DiskFileSystem:
    return DiskFileSystem(disk)


def test_files_of_a_sound_disk_do_what_plain_files_do(files: DiskFileSystem, tmp_path: Path) -> None:
    kind = type(files.open(tmp_path / "a"))
    assert all(getattr(kind, name) is getattr(OsFile, name) for name in OPERATIONS)


def test_open_files_fail_and_are_plain_again(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    file = files.open(tmp_path / "a")
    disk.room_bytes = 3
    disk.apply()
    assert isinstance(file, FaultyFile)

    with pytest.raises(OSError, match="No space left") as raised:
        file.writev([b"ab", b"cd"])

    assert raised.value.errno == errno.ENOSPC
    assert files.read_bytes(tmp_path / "a") == b"abc"
    disk.heal()
    assert not isinstance(file, FaultyFile)
    assert file.writev([b"d"]) == 1


def test_room_is_that_of_all_files(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    disk.room_bytes = 5
    disk.apply()
    assert files.open(tmp_path / "a").writev([b"abc"]) == 3

    with pytest.raises(OSError, match="No space left"):
        files.open(tmp_path / "b").writev([b"def"])

    assert files.read_bytes(tmp_path / "b") == b"de"


def test_failures_are_counted_and_matched_by_path(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    log, other = files.open(tmp_path / "orders-0" / "0.log"), files.open(tmp_path / "other")
    disk.failures.append(DiskFailure("fsync", "orders-0/*", 2))
    disk.apply()

    for file in (log, log.duplicate()):
        with pytest.raises(OSError, match="fsync failed") as raised:
            file.fsync()
        assert raised.value.errno == errno.EIO
    log.fsync()
    other.fsync()


def test_every_way_to_read_fails(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    file = files.open(tmp_path / "a")
    disk.failures.append(DiskFailure("read", "*", None))
    disk.apply()
    for read in (lambda: file.pread(1, 0), lambda: file.readinto_nowait(bytearray(1), 0)):
        with pytest.raises(OSError, match="read failed"):
            read()
    with pytest.raises(OSError, match="read failed"):
        files.read_bytes(tmp_path / "a")
    disk.failures[:] = [DiskFailure("fsync", "*", None)]
    with pytest.raises(OSError, match="fsync failed"):
        files.sync_directory(tmp_path)


def test_stalled_disk_holds_threads_up_and_not_the_loop(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    file = files.open(tmp_path / "a")
    disk.stall()
    disk.apply()
    done = threading.Event()

    def sync() -> None:
        file.fsync()
        done.set()

    thread = threading.Thread(target=sync)
    thread.start()
    assert file.writev([b"a"]) == 1
    with pytest.raises(BlockingIOError):
        file.readinto_nowait(bytearray(1), 0)
    assert not done.is_set()

    disk.heal()

    thread.join(20)
    assert done.is_set()


def test_slow_syncs_are_slow_in_threads(files: DiskFileSystem, disk: DiskState, tmp_path: Path) -> None:
    waits: list[float] = []
    file = files.open(tmp_path / "a")
    disk.fsync_ms = 250
    disk.apply()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.testing.surroundings.disk_files.sleep", waits.append)
        file.fsync()
        thread = threading.Thread(target=file.fsync)
        thread.start()
        thread.join(20)

    assert waits == [0.25]


def test_damage_is_done_to_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abcd")

    flip_bit(path, 1)
    cut_end(path, 1)

    assert path.read_bytes() == b"acc"
    cut_end(path, 9)
    assert path.read_bytes() == b""


class Scanned(NamedTuple):
    """Of a batch in a segment, what the search for it looks at."""

    position: int
    header: SimpleNamespace


def test_batch_is_found_by_any_of_its_offsets_and_no_other() -> None:
    batches = [(0, 10, 14), (90, 20, 20), (200, 21, 29)]
    scanned = [
        Scanned(position, SimpleNamespace(base_offset=base, last_offset=last)) for position, base, last in batches
    ]
    segment: Any = SimpleNamespace(
        anchor_for=lambda _: SimpleNamespace(position=0), batches_from=lambda _: iter(scanned)
    )

    assert [_position_of(segment, offset) for offset in (10, 12, 14, 20, 21, 29)] == [0, 0, 0, 90, 200, 200]
    for removed in (9, 15, 19, 30):
        with pytest.raises(DiskError, match=f"offset {removed} is not there any more"):
            _position_of(segment, removed)
