"""Which leader epoch began at which offset: what a replica compares with another to find where their logs part.

The cache is a list of (epoch, start offset), both columns strictly rising. It is as durable as the records it speaks
of: every change is handed to `save` before the records that need it are written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log. `save` is called with all entries after each change of them.

    `latest_epoch` is the newest one, or -1.
    """

    def __init__(self, entries: Iterable[EpochEntry], save: Callable[[list[EpochEntry]], None]) -> None:
        self._entries = rising_entries(entries)
        self._save = save
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNKNOWN_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Say that `epoch` begins at `start_offset`. Entries that contradict it go."""
        if self._entries and epoch == self._entries[-1].epoch and start_offset >= self._entries[-1].start_offset:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: (largest epoch known that is not above `epoch`, where it ended)."""
        entries = self._entries
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
        n = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[n - 1].epoch if n else UNKNOWN_EPOCH

    def truncate_from_end(self, offset: int) -> None:
        """The log now ends at `offset`."""
        self._replace(self._entries[: bisect_left(self._entries, offset, key=lambda entry: entry.start_offset)])

    def truncate_from_start(self, offset: int) -> None:
        """The log now starts at `offset`; the epoch that covers it begins there."""
        n = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if n and self._entries[n - 1].start_offset < offset:
            self._replace([EpochEntry(self._entries[n - 1].epoch, offset), *self._entries[n:]])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        if entries != self._entries:
            self._save(entries)
            self._entries = entries
            self._note_latest()


def rising_entries(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """The entries that make both columns rise, each one believed over those before it that contradict it."""
    rising: list[EpochEntry] = []
    for entry in entries:
        while rising and (rising[-1].epoch >= entry.epoch or rising[-1].start_offset >= entry.start_offset):
            rising.pop()
        rising.append(entry)
    return rising
