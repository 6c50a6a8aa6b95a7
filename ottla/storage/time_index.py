"""The time index of a segment: the largest timestamp so far, and the offset that brought it.

A file holds entries of 12 bytes, big-endian: timestamp (int64) and relative offset of the last record of the batch
that holds it (int32). An entry is only made when the largest timestamp has grown, so both columns rise.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from operator import le, lt

from ottla.storage.offset_index import big_endian, from_big_endian

ENTRY_SIZE = 12
_HIGH, _LOW = (1, 0) if sys.byteorder == "little" else (0, 1)
"""Where the halves of a timestamp stand in memory."""


class TimeIndex:
    """Entries in memory; the owner of the segment reads and writes the file."""

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

    def count_below(self, relative_offset: int) -> int:
        """How many entries name records below that offset."""
        return bisect_left(self._offsets, relative_offset)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries."""
        del self._timestamps[length:]
        del self._offsets[length:]

    def to_bytes(self) -> bytes:
        # Word by word, for a large segment has hundreds of thousands of entries, and the loop waits.
        halves = array("I", self._timestamps.tobytes())
        words = array("I", bytes(len(self) * ENTRY_SIZE))
        words[0::3], words[1::3] = halves[_HIGH::2], halves[_LOW::2]
        words[2::3] = array("I", self._offsets.tobytes())
        return big_endian(words)

    @classmethod
    def from_bytes(cls, content: bytes) -> "TimeIndex | None":
        """The index in a file's content, or None if it is none. Preallocated zero bytes at the end do not count."""
        if len(content) % ENTRY_SIZE:
            return None
        index = cls()
        entries = -(-len(content.rstrip(b"\0")) // ENTRY_SIZE)
        words = from_big_endian("I", content[: entries * ENTRY_SIZE])
        halves = array("I", bytes(len(words) // 3 * 8))
        halves[_HIGH::2], halves[_LOW::2] = words[0::3], words[1::3]
        index._timestamps.frombytes(halves.tobytes())
        index._offsets.frombytes(words[2::3].tobytes())
        return index if _rises(index._timestamps) and _never_falls(index._offsets) else None


def _rises(column: Sequence[int]) -> bool:
    return all(map(lt, column, islice(column, 1, None)))


def _never_falls(column: Sequence[int]) -> bool:
    return all(map(le, column, islice(column, 1, None))) and (not column or column[0] >= 0)
