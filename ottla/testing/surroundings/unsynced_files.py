"""The files of a broker whose disk can lose what was never synced: those of `disk_files`, which keep its journal."""

from pathlib import Path
from typing import Final

from ottla.storage.files import AnyPath, OsFile, OsFileSystem, open_descriptor
from ottla.testing.surroundings.disk_files import DiskFile, DiskFileSystem, DiskState, FaultyFile
from ottla.testing.surroundings.unsynced import UnsyncedJournal


class JournaledFile(DiskFile):
    """As long as nothing is wrong with the disk. Appending is not slowed down: what is behind the synced end of a file
    is known by that end."""

    __slots__ = ()

    def truncate(self, size: int) -> None:
        _journal_of(self._disk).truncating(self._fd, size)
        DiskFile.truncate(self, size)

    def fsync(self) -> None:
        _journal_of(self._disk).syncing(self._fd)
        OsFile.fsync(self)


class FaultyJournaledFile(FaultyFile):
    """While something is wrong with the disk: a sync that fails, or still waits when the power goes, has synced
    nothing."""

    __slots__ = ()

    def truncate(self, size: int) -> None:
        _journal_of(self._disk).truncating(self._fd, size)
        FaultyFile.truncate(self, size)

    def fsync(self) -> None:
        self._disk.check("fsync", self.path)
        _journal_of(self._disk).syncing(self._fd)
        OsFile.fsync(self)


JOURNALED: Final = (JournaledFile, FaultyJournaledFile)


class JournaledFileSystem(DiskFileSystem):
    """`ottla.storage.files.FileSystem` for one broker."""

    def __init__(self, disk: DiskState) -> None:
        super().__init__(disk)
        self._journal = _journal_of(disk)

    def open(self, path: AnyPath, *, create: bool = True) -> OsFile:
        path = Path(path)
        with self._journal.changing():
            is_new = not path.exists()
            descriptor = open_descriptor(path, create=create)
            self._journal.opened(path, descriptor, is_new=is_new)
        return self._disk.opened(descriptor, path)

    def make_directory(self, path: Path) -> None:
        with self._journal.changing():
            missing = [each for each in (path, *path.parents) if not each.exists()]
            super().make_directory(path)
            for each in reversed(missing):
                self._journal.made(each)

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        source, target = Path(source), Path(target)
        with self._journal.changing(), self._journal.keeping(target) as kept:
            super().rename(source, target)
            self._journal.renamed(source, target, kept)

    def remove(self, path: AnyPath) -> None:
        path = Path(path)
        with self._journal.changing(), self._journal.keeping(path) as kept:
            super().remove(path)
            self._journal.removed(path, kept)

    def remove_directory(self, path: Path) -> None:
        with self._journal.changing():
            is_there = path.exists()
            super().remove_directory(path)
            if is_there:
                self._journal.unmade(path)

    def sync_directory(self, path: Path) -> None:
        if not self._disk.is_sound:
            self._disk.check("fsync", path)
        self._journal.syncing_directory(path)
        OsFileSystem.sync_directory(self, path)


def _journal_of(disk: DiskState) -> UnsyncedJournal:
    assert disk.journal is not None, "such files are of a disk with a journal"
    return disk.journal
