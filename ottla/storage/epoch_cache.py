"""Which leader epoch began at which offset: what a replica compares with another to find where their logs part.

The cache is a list of (epoch, start offset), both columns strictly rising. It lives in memory; `epoch_file` says when
it is written down.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log. `latest_epoch` is the newest one, or -1."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._replace(rising_entries(entries))

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def below(self, offset: int) -> list[EpochEntry]:
        """The entries that begin below `offset`."""
        return entries_below(self._entries, offset)

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
        self._replace(self.below(offset))

    def truncate_from_start(self, offset: int) -> None:
        """The log now starts at `offset`; the epoch that covers it begins there."""
        n = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if n and self._entries[n - 1].start_offset < offset:
            self._replace([EpochEntry(self._entries[n - 1].epoch, offset), *self._entries[n:]])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNKNOWN_EPOCH


def entries_below(entries: list[EpochEntry], offset: int) -> list[EpochEntry]:
    return entries[: bisect_left(entries, offset, key=lambda entry: entry.start_offset)]


def rising_entries(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """The entries that make both columns rise, each one believed over those before it that contradict it."""
    rising: list[EpochEntry] = []
    for entry in entries:
        while rising and (rising[-1].epoch >= entry.epoch or rising[-1].start_offset >= entry.start_offset):
            rising.pop()
        rising.append(entry)
    return rising
