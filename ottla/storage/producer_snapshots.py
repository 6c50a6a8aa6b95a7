"""The `<offset>.snapshot` files of one log: which there are, and how they are written.

A snapshot may be late: what it has can be read from an older one and from the batches after that. So these batches stay
until it is there (`is_missing`).
"""

from pathlib import Path
from typing import NamedTuple

from ottla.storage.files import File, FileSystem, write_atomically
from ottla.storage.producer_snapshot import encode_snapshot
from ottla.storage.producer_table import ProducerTable
from ottla.storage.segment import SNAPSHOT_SUFFIX, file_name

INT64_MAX = (1 << 63) - 1


class SnapshotWrite:
    """Writes a snapshot under a name that no start takes for one, and makes it durable."""

    def __init__(self, offset: int, producers: ProducerTable, aside: Path, file: File) -> None:
        self.offset = offset
        self.aside = aside
        self.error: OSError | None = None
        self.is_complete = False
        self.is_stale = False
        """The log was truncated below its offset since."""
        self._producers = producers
        self._file = file

    def run(self) -> None:
        """In any thread, once. What goes wrong is kept in `error`."""
        try:
            self._file.writev(encode_snapshot(self._producers.entries()))
            self._file.fsync()
            self.is_complete = True
        except OSError as error:
            self.error = error
        finally:
            self._file.close()


class _Unwritten(NamedTuple):
    offset: int
    producers: ProducerTable
    """Those below it."""


class ProducerSnapshots:
    """Knows which snapshots there are, and which is still to be written. Methods raise OSError."""

    def __init__(self, files: FileSystem, directory: Path, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        # The newest that is left to `begin_write`.
        self._unwritten: _Unwritten | None = None
        self._under_way: SnapshotWrite | None = None
        # These, and older ones that the newest has taken the place of.
        self._missing: set[int] = set()

    def newest_first(self, at_most: int) -> list[int]:
        """Offsets of the snapshots that do not look beyond `at_most`."""
        return [offset for offset in reversed(self._offsets) if offset <= at_most]

    def has(self, offset: int) -> bool:
        return offset in self._offsets

    def read(self, offset: int) -> bytes:
        return self._files.read_bytes(f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")

    def write(self, offset: int, content: bytes) -> None:
        """Not synced: losing it costs a longer scan."""
        write_atomically(self._files, self.path(offset), content, sync=False)
        self._add(offset)

    def remove(self, offset: int) -> None:
        self.forget_late(offset, offset)
        if offset in self._offsets:
            self._files.remove(self.path(offset))
            self._offsets.remove(offset)

    def remove_above(self, offset: int) -> None:
        """What was known about records that are gone from the end of the log."""
        self.forget_late(first=offset + 1)
        for above in [known for known in self._offsets if known > offset]:
            self.remove(above)

    def keep_only(self, offsets: set[int]) -> None:
        """Remove all but those and the newest."""
        for stray in [known for known in self._offsets[:-1] if known not in offsets]:
            self.remove(stray)

    def path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)

    # Those that are late.

    @property
    def has_unwritten(self) -> bool:
        """Whether there is one to begin with."""
        return self._unwritten is not None

    def is_missing(self, offset: int) -> bool:
        """Whether segments below this offset have to stay: a snapshot of it is to come, or was left out for a later
        one. Not if the disk has refused it."""
        return offset in self._missing

    def note_missing(self, offsets: list[int]) -> None:
        """Those without a snapshot."""
        self._missing.update(set(offsets).difference(self._offsets))

    def write_later(self, offset: int, producers: ProducerTable) -> None:
        """`producers` are those below `offset`. Takes the place of an older one that was not begun."""
        self._unwritten = _Unwritten(offset, producers)
        self._missing.add(offset)

    def begin_write(self) -> SnapshotWrite | None:
        """What writes the newest; `run` it in a thread, then hand it to `finish_write`. None: there is none to write,
        or another is being written."""
        if self._unwritten is None or self._under_way is not None:
            return None
        (offset, producers), self._unwritten = self._unwritten, None
        path = self.path(offset)
        aside = path.with_name(path.name + ".tmp")
        try:
            self._files.remove(aside)
            # Opened here: of two logs that were one after the other in this directory, the later one has the name.
            file = self._files.open(aside)
        except OSError:
            self._missing.discard(offset)
            raise
        self._under_way = SnapshotWrite(offset, producers, aside, file)
        return self._under_way

    def finish_write(self, write: SnapshotWrite) -> bool:
        """Whether there is another snapshot now. What could not be written is not tried again, the next may be."""
        self._under_way = None
        if not write.is_stale:
            self._missing.discard(write.offset)
            if write.is_complete:
                self._files.rename(write.aside, self.path(write.offset))
                self._add(write.offset)
                return True
        self._files.remove(write.aside)
        if write.error is not None:
            raise write.error
        return False

    def forget_late(self, first: int = 0, last: int = INT64_MAX) -> None:
        """Those of these offsets are not to be written."""
        if self._unwritten is not None and first <= self._unwritten.offset <= last:
            self._unwritten = None
        if self._under_way is not None and first <= self._under_way.offset <= last:
            self._under_way.is_stale = True
        self._missing = {offset for offset in self._missing if not first <= offset <= last}

    def _add(self, offset: int) -> None:
        self._missing.discard(offset)
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])
