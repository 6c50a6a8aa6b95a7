"""What a power cut takes from files, beside the disk of the simulation, which knows it for every operation."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.files import FileSystem
from ottla.testing.surroundings.disk_files import DiskFailure, DiskState
from ottla.testing.surroundings.unsynced import DiskLoss, UnsyncedJournal
from ottla.testing.surroundings.unsynced_files import JOURNALED, JournaledFileSystem
from tests.fakes.disk import FakeDisk, Loss

NAMES = ("a", "b")
PLACES = ("", "one", "two")


class Disk:
    """A disk with a journal, in a directory of the machine."""

    def __init__(self, root: Path, held_bytes_max: int = 1 << 20) -> None:
        self.filled = 0
        self.root = root
        self.root.mkdir()
        self.journal = UnsyncedJournal(root, self._fill, held_bytes_max=held_bytes_max)
        self.state = DiskState(root, _nothing, kinds=JOURNALED, journal=self.journal)
        self.files = JournaledFileSystem(self.state)

    def _fill(self) -> None:
        self.filled += 1

    def lose(self) -> DiskLoss:
        return self.journal.lose(_nothing)

    def tree(self) -> dict[str, bytes | None]:
        """By path; None of a directory."""
        found = self.root.rglob("*")
        return {str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes() for path in found}


def _nothing(descriptor: int) -> None:
    del descriptor


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "broker-0")


def written(files: FileSystem, path: Path, content: bytes, *, sync: bool = False) -> None:
    file = files.open(path)
    file.writev([content])
    if sync:
        file.fsync()
    file.close()


def synced(disk: Disk, name: str, content: bytes) -> Path:
    """A file that is on the disk, with its name."""
    path = disk.root / name
    written(disk.files, path, content, sync=True)
    disk.files.sync_directory(path.parent)
    return path


def test_unsynced_end_of_a_file_is_lost(disk: Disk) -> None:
    disk.files.make_directory(disk.root / "orders-0")
    disk.files.sync_directory(disk.root)
    path = synced(disk, "orders-0/0.log", b"abc")
    written(disk.files, path, b"def")

    loss = disk.lose()

    assert disk.tree() == {"orders-0": None, "orders-0/0.log": b"abc"}
    assert loss == DiskLoss(3, frozenset({"orders-0"}))
    assert disk.lose() == DiskLoss(0, frozenset())


def test_name_is_lost_though_its_file_was_synced(disk: Disk) -> None:
    synced(disk, "0.log", b"abc")
    written(disk.files, disk.root / "1.log", b"def", sync=True)

    disk.lose()

    assert disk.tree() == {"0.log": b"abc"}


def test_truncated_end_comes_back(disk: Disk) -> None:
    path = synced(disk, "0.log", b"abcdef")
    file = disk.files.open(path)
    for size in (4, 2):
        file.truncate(size)
        file.writev([b"xyz"])

    disk.lose()

    assert path.read_bytes() == b"abcdef"


def test_truncation_that_was_synced_stays(disk: Disk) -> None:
    path = synced(disk, "0.log", b"abcdef")
    file = disk.files.open(path)
    file.truncate(2)
    file.duplicate().fsync()
    file.writev([b"xyz"])

    disk.lose()

    assert path.read_bytes() == b"ab"


def test_renamed_directory_has_its_old_name_again(disk: Disk) -> None:
    old, aside = disk.root / "orders-0", disk.root / "orders-0.1-delete"
    disk.files.make_directory(old)
    disk.files.sync_directory(disk.root)
    synced(disk, "orders-0/0.log", b"abc")
    disk.files.rename(old, aside)
    disk.files.remove(aside / "0.log")
    disk.files.remove_directory(aside)
    disk.files.make_directory(old)
    written(disk.files, old / "0.log", b"other", sync=True)
    disk.files.sync_directory(old)

    disk.lose()

    assert disk.tree() == {"orders-0": None, "orders-0/0.log": b"abc"}


def test_removed_directory_stays_away_once_its_parent_is_synced(disk: Disk) -> None:
    disk.files.make_directory(disk.root / "orders-0")
    disk.files.sync_directory(disk.root)
    path = synced(disk, "orders-0/0.log", b"abc")
    disk.files.remove(path)
    disk.files.remove_directory(path.parent)
    disk.files.sync_directory(disk.root)

    disk.lose()

    assert disk.tree() == {}
    assert not any(disk.root.parent.glob("unsynced-*/*"))


def test_sync_that_ends_after_the_power_is_off_saves_nothing(disk: Disk) -> None:
    path = synced(disk, "0.log", b"abc")
    file = disk.files.open(path)
    file.writev([b"def"])
    disk.journal.cut_power()
    file.fsync()
    written(disk.files, disk.root / "new", b"x")
    disk.files.sync_directory(disk.root)

    disk.lose()

    assert disk.tree() == {"0.log": b"abc"}
    file.writev([b"ghi"])
    file.fsync()
    disk.lose()
    assert disk.tree() == {"0.log": b"abcghi"}


def test_sync_that_fails_saves_nothing(disk: Disk) -> None:
    path = synced(disk, "0.log", b"abc")
    file = disk.files.open(path)
    file.writev([b"def"])
    disk.files.remove(path)
    disk.state.failures.append(DiskFailure("fsync", "*", None))
    disk.state.apply()
    with pytest.raises(OSError, match="fsync failed"):
        file.fsync()
    with pytest.raises(OSError, match="fsync failed"):
        disk.files.sync_directory(disk.root)

    disk.lose()

    assert disk.tree() == {"0.log": b"abc"}


def test_more_than_is_held_is_said_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "broker-0", held_bytes_max=5)
    path, other = synced(disk, "0.log", b"abcd"), synced(disk, "1.log", b"efgh")
    disk.files.remove(path)
    assert not disk.journal.is_full
    disk.files.open(other).truncate(1)

    assert (disk.journal.is_full, disk.filled) == (True, 1)
    assert not any(tmp_path.glob("unsynced-*/*"))
    disk.files.remove(other)
    assert disk.filled == 1
    disk.journal.all_synced()
    assert not disk.journal.is_full


def test_what_is_synced_is_held_no_more(disk: Disk) -> None:
    for _ in range(9):
        path = synced(disk, "0.log", b"x" * 300_000)
        file = disk.files.open(path)
        file.truncate(0)
        file.fsync()
        file.close()
        disk.files.remove(path)
        disk.files.sync_directory(disk.root)

    assert disk.filled == 0


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_change_that_fails_is_not_noted(disk: Disk, operation: str) -> None:
    path = synced(disk, "0.log", b"abc")
    directory = disk.root / "orders-0"
    disk.files.make_directory(directory)
    written(disk.files, directory / "a", b"x")
    with pytest.raises(OSError, match=r"orders-0"):
        disk.files.rename(path, directory) if operation == "rename" else disk.files.remove(directory)

    disk.lose()

    assert disk.tree() == {"0.log": b"abc"}


# The same operations on both disks: kind, directory, name, and a number.
OPERATIONS = st.tuples(
    st.sampled_from(("write", "write", "truncate", "sync", "sync", "rename", "remove", "rmdir", "syncdir", "syncdir")),
    st.sampled_from(PLACES),
    st.sampled_from(NAMES),
    st.integers(0, 6),
)


class Both:
    """Paths of two directories stand for each other. A directory that was removed is not made again."""

    def __init__(self, root: Path) -> None:
        self.disk = Disk(root)
        self.fake = FakeDisk()
        self.fake.make_directory(root)
        for parent in root.parents:
            self.fake.sync_directory(parent)
        self._removed: set[str] = set()

    def do(self, kind: str, place: str, name: str, number: int) -> None:
        directory = self.disk.root / place
        if place in self._removed:
            return
        is_empty = place != "" and directory.is_dir() and not any(directory.iterdir())
        if kind == "rmdir":
            if is_empty:
                self._removed.add(place)
                self._on_both(lambda files: files.remove_directory(directory))
            return
        self._on_both(lambda files: files.make_directory(directory))
        path = directory / name
        if kind == "syncdir":
            self._on_both(lambda files: files.sync_directory(directory))
        elif kind == "write":
            self._on_both(lambda files: written(files, path, bytes([65 + number]) * number))
        elif path.exists():
            self._on_both(lambda files: _change(files, path, kind, number))

    def _on_both(self, action: Any) -> None:
        action(self.disk.files)
        action(self.fake)

    def fake_tree(self) -> dict[str, bytes | None]:
        left = FakeDisk.after(self.fake.journal, Loss.UNSYNCED)
        found: dict[str, bytes | None] = {}
        waiting = [self.disk.root]
        while waiting:
            directory = waiting.pop()
            for name in left.list_directory(directory):
                path = directory / name
                is_directory = left.is_directory(path)
                found[str(path.relative_to(self.disk.root))] = None if is_directory else left.read_bytes(path)
                waiting += [path] * is_directory
        return found


def _change(files: FileSystem, path: Path, kind: str, number: int) -> None:
    if kind == "rename":
        files.rename(path, path.with_name(NAMES[number % 2]))
    elif kind == "remove":
        files.remove(path)
    else:
        file = files.open(path)
        if kind == "truncate":
            file.truncate(min(number, file.size()))
        else:
            file.fsync()
        file.close()


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_loses_what_the_disk_of_the_simulation_loses(operations: list[tuple[str, str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        both = Both(Path(parent) / "broker-0")
        for operation in operations:
            both.do(*operation)

        expected = both.fake_tree()
        both.disk.lose()

        assert both.disk.tree() == expected
