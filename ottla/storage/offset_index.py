"""The offset index of a segment: which batch ends at which offset, one entry every few kilobytes.

A file holds entries of 8 bytes, big-endian: the offset of a batch's last record relative to the segment's base offset
(int32), and the position of that batch in the log file (int32). Both columns rise, so one entry is kept as one 64-bit
number and looking up is a bisection over an array of them.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt

ENTRY_SIZE = 8
_POSITION_MASK = 0xFFFFFFFF


class OffsetIndex:
    """Entries in memory; the owner of the segment reads and writes the file."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = array("Q")

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, relative_offset: int, position: int) -> None:
        """Entries come in rising order; relative offsets below 2**31."""
        self._entries.append(relative_offset << 32 | position)

    def entry(self, n: int) -> tuple[int, int]:
        """(relative offset, position) of the n-th entry."""
        packed = self._entries[n]
        return packed >> 32, packed & _POSITION_MASK

    def entry_before(self, relative_offset: int) -> tuple[int, int] | None:
        """Where to begin scanning for a record: the last indexed batch that ends at or before it, if any."""
        n = bisect_right(self._entries, relative_offset << 32 | _POSITION_MASK)
        return self.entry(n - 1) if n else None

    def count_below(self, position: int) -> int:
        """How many entries name batches that begin below `position`."""
        return bisect_left(self._entries, position, key=lambda packed: packed & _POSITION_MASK)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries."""
        del self._entries[length:]

    def to_bytes(self) -> bytes:
        return big_endian(self._entries)

    @classmethod
    def from_bytes(cls, content: bytes, log_size: int) -> "OffsetIndex | None":
        """The index in a file's content, or None if that cannot be the index of a log file of `log_size` bytes.

        Zero bytes after the last entry are those that Kafka preallocates in an active segment.
        """
        if len(content) % ENTRY_SIZE:
            return None
        index = cls()
        entries = -(-len(content.rstrip(b"\0")) // ENTRY_SIZE)
        index._entries = from_big_endian("Q", content[: entries * ENTRY_SIZE])
        return index if index._is_sane(log_size) else None

    def _is_sane(self, log_size: int) -> bool:
        entries = self._entries
        if not entries:
            return True
        offset, position = self.entry(len(entries) - 1)
        rising = all(map(lt, entries, islice(entries, 1, None)))
        return rising and offset < 2**31 and position < log_size


def big_endian(items: "array[int]") -> bytes:
    if sys.byteorder == "little":
        items = array(items.typecode, items)
        items.byteswap()
    return items.tobytes()


def from_big_endian(typecode: str, content: bytes) -> "array[int]":
    items: array[int] = array(typecode, content)
    if sys.byteorder == "little":
        items.byteswap()
    return items
