"""The time index of a segment: the largest timestamp so far, and the offset that brought it.

A file holds entries of 12 bytes, big-endian: timestamp (int64) and relative offset of the last record of the batch
that holds it (int32). An entry is only made when the largest timestamp has grown, so both columns rise.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct

ENTRY_SIZE = 12
_ENTRY = Struct(">qi")


class TimeIndex:
    """Entries in memory; whoever owns the segment reads and writes the file."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, relative offset) of the last entry."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else None

    def entry(self, n: int) -> tuple[int, int]:
        return self._timestamps[n], self._offsets[n]

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add the entry unless the timestamp says nothing new."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp)
            self._offsets.append(relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """The relative offset from which to scan for a record at or after `timestamp`.

        All records up to the one of the last entry below `timestamp` are older.
        """
        n = bisect_left(self._timestamps, timestamp)
        return self._offsets[n - 1] if n else 0

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries."""
        del self._timestamps[length:]
        del self._offsets[length:]

    def to_bytes(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def from_bytes(cls, content: bytes) -> "TimeIndex | None":
        """The index in a file's content, or None if it is none. Preallocated zero bytes at the end do not count."""
        if len(content) % ENTRY_SIZE:
            return None
        index = cls()
        entries = list(_ENTRY.iter_unpack(content))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        index._timestamps.extend(timestamp for timestamp, _ in entries)
        index._offsets.extend(offset for _, offset in entries)
        return index if _rises(index._timestamps) and _never_falls(index._offsets) else None


def _rises(column: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(column))


def _never_falls(column: Sequence[int]) -> bool:
    return all(a <= b for a, b in pairwise(column)) and (not column or column[0] >= 0)
