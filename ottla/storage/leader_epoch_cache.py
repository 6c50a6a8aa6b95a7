"""Which leader epoch began at which offset: what a replica compares with another to find where their logs part.

The cache is a list of (epoch, start offset), both columns strictly rising. It lives in memory.

`leader-epoch-checkpoint` has it on disk, written when a flush needs it and not before. The file may lag behind the
cache. What it must have, durably, are the epochs below the recovery point: recovery reads every batch above it and
takes the epochs from there, but believes what is below. So it is written by each flush that raises the recovery point
over an epoch that the file does not have, and by a compaction, which may remove the only batches that carry one.

An epoch without records is never written. No other replica can know it, for epochs travel with batches: no log can part
from this one there, and a leader that goes on in the same term begins it again at the log end.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla.storage import checkpoints
from ottla.storage.files import File, FileSystem

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log, in `entries`. `latest_epoch` is the newest one, or -1."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._replace(rising_entries(entries))

    def below(self, offset: int) -> list[EpochEntry]:
        """The entries that begin below `offset`."""
        return entries_below(self.entries, offset)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Say that `epoch` begins at `start_offset`. Entries that contradict it go."""
        if self.entries and epoch == self.entries[-1].epoch and start_offset >= self.entries[-1].start_offset:
            return
        kept = [entry for entry in self.entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: (largest epoch known that is not above `epoch`, where it ended)."""
        entries = self.entries
        if epoch == UNKNOWN_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        if epoch < entries[0].epoch:
            return epoch, entries[0].start_offset
        following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        return entries[following - 1].epoch, entries[following].start_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1 if the cache does not reach back to it."""
        n = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[n - 1].epoch if n else UNKNOWN_EPOCH

    def truncate_from_end(self, offset: int) -> None:
        """The log now ends at `offset`."""
        self._replace(self.below(offset))

    def forget_from(self, offset: int, before: Sequence[EpochEntry]) -> None:
        """Take back what was assigned at `offset`, where the log ends, or after it; `before` are the entries of before.

        One that begins at `offset` may be among those: the epoch of a leader that has no record of it yet."""
        self._replace([*self.below(offset), *(entry for entry in before if entry.start_offset == offset)])

    def truncate_from_start(self, offset: int) -> None:
        """The log now starts at `offset`; the epoch that covers it begins there."""
        if self.entries and self.entries[0].start_offset < offset:
            n = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
            self._replace([EpochEntry(self.entries[n - 1].epoch, offset), *self.entries[n:]])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: Iterable[EpochEntry]) -> None:
        # Never changed in place: who has read it knows what the entries were.
        self.entries: tuple[EpochEntry, ...] = tuple(entries)
        self.latest_epoch = self.entries[-1].epoch if self.entries else UNKNOWN_EPOCH


def entries_below(entries: Sequence[EpochEntry], offset: int) -> list[EpochEntry]:
    return list(entries[: bisect_left(entries, offset, key=lambda entry: entry.start_offset)])


def rising_entries(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """The entries that make both columns rise, each one believed over those before it that contradict it."""
    rising: list[EpochEntry] = []
    for entry in entries:
        while rising and (rising[-1].epoch >= entry.epoch or rising[-1].start_offset >= entry.start_offset):
            rising.pop()
        rising.append(entry)
    return rising


class EpochWrite:
    """Entries on their way to the file: `run` it, or `discard` it, in any thread."""

    def __init__(self, checkpoint: "LeaderEpochCheckpointFile", number: int, aside: str, file: File, content: bytes):
        self._checkpoint = checkpoint
        self._number = number
        self._aside = aside
        # None when it is over.
        self._file: File | None = file
        self._content = content

    def run(self) -> None:
        """Makes the entries durable. Raises OSError; nothing is left of it then."""
        assert self._file is not None, "it is run once"
        try:
            self._file.writev([self._content])
            self._file.fsync()
        except OSError:
            self.discard()
            raise
        self._close()
        self._checkpoint.finish_write(self._number, self._aside)

    def discard(self) -> None:
        """Nothing is left of it; it does nothing once `run` has begun to put the file in place."""
        if self._file is not None:
            self._close()
            self._checkpoint.drop(self._aside)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class LeaderEpochCheckpointFile:
    def __init__(self, files: FileSystem, directory: Path, stored: Sequence[EpochEntry]) -> None:
        """`stored` is what the file says."""
        self._files = files
        self._path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
        self._latest = list(stored)
        # Writes are numbered as they are begun; several may be under way, and the latest is to remain.
        self._begun: int = 0
        self._in_place: int = 0
        self._written: int = 0
        self._is_retired = False
        # Held where the name is given, and not while the disk writes: the loop waits for it.
        self._lock = threading.Lock()

    def begin_write(self, epochs: LeaderEpochCache, end_offset: int) -> EpochWrite | None:
        """What makes the epochs of all records durable, which end at `end_offset`; None if they are. Raises OSError;
        nothing has changed then."""
        entries = epochs.below(end_offset)
        if entries == entries_below(self._latest, end_offset) and self._written == self._begun:
            return None
        number = self._begun + 1
        aside = f"{self._path}.{number}.tmp"
        self._files.remove(aside)
        # Opened here: of two logs that were one after the other in this directory, the later one has the name.
        file = self._files.open(aside)
        self._begun, self._latest = number, entries
        return EpochWrite(self, number, aside, file, build_epochs(entries))

    def retire(self) -> None:
        """The log is deleted, and another may come to be in its place: nothing gets the file's name any more."""
        with self._lock:
            self._is_retired = True

    def finish_write(self, number: int, aside: str) -> None:
        """What is written aside takes the file's place, unless a later write is there, or the log is deleted. Raises
        OSError."""
        with self._lock:
            if self._is_retired:
                return
            if number > self._in_place:
                self._files.rename(aside, self._path)
                self._in_place = number
            else:
                self._files.remove(aside)
        # Also of a later one that has taken the place: it may not be durable yet.
        self._files.sync_directory(Path(self._path).parent)
        with self._lock:
            self._written = max(self._written, number)

    def drop(self, aside: str) -> None:
        """Whatever this cannot remove, opening the log does."""
        with self._lock, suppress(OSError):
            if not self._is_retired:
                self._files.remove(aside)


def build_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return checkpoints.build_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_epochs(content: bytes) -> list[EpochEntry]:
    """Raises ValueError."""
    return [EpochEntry(int(epoch), int(start)) for epoch, start in checkpoints.parse_lines(content, columns=2)]
