"""The indexes of a segment: which batch ends at which offset, which offset brought the largest timestamp, what was
aborted.

A file of the offset index holds entries of 8 bytes, big-endian: the offset of a batch's last record relative to the
segment's base offset (int32), and the position of that batch in the log file (int32). There is one every few kilobytes.
Both columns rise, so one entry is kept as one 64-bit number and looking up is a bisection over an array of them.

A file of the time index holds entries of 12 bytes, big-endian: timestamp (int64) and relative offset of the last record
of the batch that holds it (int32). An entry is only made when the largest timestamp has grown, so both columns rise.

The transaction index has the aborted transactions whose marker the segment has: entries of 34 bytes, big-endian,
version (int16, 0), producer id, first offset, last offset and last stable offset (int64 each), in the order of their
last offsets. A segment without aborted transactions has no file. A reader of committed records gets, with records, the
list of aborted transactions that may overlap them: it is searched from the segment of the first record upwards, for an
entry stands where its marker is, after all records of its transaction. The search may stop at the first entry whose
last stable offset is not below the end of what is read: every transaction that begins before has its entry by then.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import le, lt
from struct import Struct

from ottla.storage.transactions import AbortedTxn

OFFSET_ENTRY_SIZE = 8
_POSITION_MASK = 0xFFFFFFFF
_HIGH, _LOW = (1, 0) if sys.byteorder == "little" else (0, 1)
"""Where the halves of a number of 64 bits stand in memory."""


class OffsetIndex:
    """Entries in memory; the segment reads and writes the file."""

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
        entries = self._entries
        n = bisect_right(entries, relative_offset << 32 | _POSITION_MASK)
        return (entries[n - 1] >> 32, entries[n - 1] & _POSITION_MASK) if n else None

    def count_below(self, position: int) -> int:
        """How many entries name batches that begin below `position`."""
        return bisect_left(self._entries, position, key=lambda packed: packed & _POSITION_MASK)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries."""
        # A thread may be searching those that there were.
        self._entries = self._entries[:length]

    def to_bytes(self) -> bytes:
        return big_endian(self._entries)

    @classmethod
    def from_bytes(cls, content: bytes, log_size: int) -> "OffsetIndex | None":
        """The index in a file's content, or None if that cannot be the index of a log file of `log_size` bytes.

        Zero bytes after the last entry are those that Kafka preallocates in an active segment.
        """
        if len(content) % OFFSET_ENTRY_SIZE:
            return None
        index = cls()
        entries = -(-len(content.rstrip(b"\0")) // OFFSET_ENTRY_SIZE)
        index._entries = from_big_endian("Q", content[: entries * OFFSET_ENTRY_SIZE])
        return index if index._is_sane(log_size) else None

    def copy(self) -> "OffsetIndex":
        copied = OffsetIndex()
        copied._entries = self._entries[:]
        return copied

    def _is_sane(self, log_size: int) -> bool:
        entries = self._entries
        if not entries:
            return True
        offset, position = self.entry(len(entries) - 1)
        positions = array("I", entries.tobytes())[_LOW::2]
        # No entry is made for a segment's first batch.
        rising = positions[0] > 0 and _rises(entries) and _rises(positions)
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


TIME_ENTRY_SIZE = 12


class TimeIndex:
    """Entries in memory; the segment reads and writes the file."""

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
            self._offsets.append(relative_offset)
            self._timestamps.append(timestamp)

    def offset_before(self, timestamp: int) -> int:
        """The relative offset from which to scan for a record at or after `timestamp`.

        All records up to the one of the last entry below `timestamp` are older.
        """
        # In this order: the loop may come in between, and there are never more timestamps than offsets.
        offsets = self._offsets
        n = bisect_left(self._timestamps, timestamp)
        return offsets[n - 1] if n else 0

    def count_below(self, relative_offset: int) -> int:
        """How many entries name records below that offset."""
        return bisect_left(self._offsets, relative_offset)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries."""
        # A thread may be searching those that there were.
        self._timestamps = self._timestamps[:length]
        self._offsets = self._offsets[:length]

    def to_bytes(self) -> bytes:
        # Word by word, for a large segment has hundreds of thousands of entries, and the loop waits.
        halves = array("I", self._timestamps.tobytes())
        words = array("I", bytes(len(self) * TIME_ENTRY_SIZE))
        words[0::3], words[1::3] = halves[_HIGH::2], halves[_LOW::2]
        words[2::3] = array("I", self._offsets.tobytes())
        return big_endian(words)

    @classmethod
    def from_bytes(cls, content: bytes) -> "TimeIndex | None":
        """The index in a file's content, or None if it is none. Preallocated zero bytes at the end do not count."""
        if len(content) % TIME_ENTRY_SIZE:
            return None
        index = cls()
        entries = -(-len(content.rstrip(b"\0")) // TIME_ENTRY_SIZE)
        words = from_big_endian("I", content[: entries * TIME_ENTRY_SIZE])
        halves = array("I", bytes(len(words) // 3 * 8))
        halves[_HIGH::2], halves[_LOW::2] = words[0::3], words[1::3]
        index._timestamps.frombytes(halves.tobytes())
        index._offsets.frombytes(words[2::3].tobytes())
        return index if _rises(index._timestamps) and _never_falls(index._offsets) else None

    def copy(self) -> "TimeIndex":
        copied = TimeIndex()
        copied._timestamps, copied._offsets = self._timestamps[:], self._offsets[:]
        return copied


def _rises(column: Sequence[int]) -> bool:
    return all(map(lt, column, islice(column, 1, None)))


def _never_falls(column: Sequence[int]) -> bool:
    return all(map(le, column, islice(column, 1, None))) and (not column or column[0] >= 0)


_ABORTED_ENTRY = Struct(">hqqqq")
_TRANSACTION_INDEX_VERSION = 0


def parse_transaction_index(content: bytes, base_offset: int) -> list[AbortedTxn] | None:
    """None if that cannot be the index of the segment at `base_offset`. A torn entry at the end is left out."""
    entries: list[AbortedTxn] = []
    whole = len(content) - len(content) % _ABORTED_ENTRY.size
    for version, *fields in _ABORTED_ENTRY.iter_unpack(memoryview(content)[:whole]):
        entry = AbortedTxn(*fields)
        before = entries[-1].last_offset if entries else base_offset - 1
        if (
            version != _TRANSACTION_INDEX_VERSION
            or entry.last_offset <= before
            or entry.first_offset > entry.last_offset
        ):
            return None
        entries.append(entry)
    return entries


def build_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    return b"".join(_ABORTED_ENTRY.pack(_TRANSACTION_INDEX_VERSION, *entry) for entry in entries)


def aborted_between(indexes: Iterable[Sequence[AbortedTxn]], first_offset: int, end_offset: int) -> list[AbortedTxn]:
    """Those that may have records from `first_offset` up to `end_offset`, which is not included.

    `indexes` are those of the segments from that of `first_offset` on, and are looked at one after the other."""
    found: list[AbortedTxn] = []
    for entries in indexes:
        for entry in entries:
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found
    return found
