"""Producers that have not written lately, packed by the hundreds into buffers.

As objects, half a million producers are two million objects and 200 MB: the garbage collector goes through them for
hundreds of milliseconds, and to encode or to free them takes as long, while every client waits. Here a page has the
entries of its producers one after another, sorted by id, and all of them together are no more objects than there are
pages. No operation looks at more than one page, but for the list of pages, which is copied and searched as a whole.

Copies share pages: the one that changes a page makes its own first. So a copy is what another thread can read.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.storage.producer_entry import (
    BATCHES_BYTES,
    ProducerState,
    pack_batches,
    pack_entry,
    unpack_state,
)
from ottla.storage.producer_snapshot import ENTRY

PRODUCERS_PER_PAGE = 512
PAGES_PER_SLICE = 16


class ExpirySlice(NamedTuple):
    """What came of looking through some of the producers."""

    expired: list[int]
    """Their ids."""
    next_id: int | None
    """Where to go on; None when that was all."""


class _Page:
    __slots__ = ("batches", "entries", "ids", "newest_ms", "oldest_ms", "owner", "seen_ms")

    def __init__(
        self,
        owner: object,
        ids: "array[int]",
        entries: bytearray,
        seen_ms: "array[int]",
        batches: bytearray | None = None,
        seen_between: tuple[int, int] | None = None,
    ) -> None:
        self.owner = owner
        self.ids = ids
        """Rising. The other columns have the same order."""
        self.entries = entries
        self.seen_ms = seen_ms
        self.batches = batches
        """None while all entries say all."""
        # All were seen between these two.
        self.oldest_ms, self.newest_ms = seen_between or (min(seen_ms), max(seen_ms))

    def copy(self, owner: object) -> "_Page":
        batches = None if self.batches is None else self.batches[:]
        seen_between = (self.oldest_ms, self.newest_ms)
        return _Page(owner, self.ids[:], self.entries[:], self.seen_ms[:], batches, seen_between)

    def find(self, producer_id: int) -> int | None:
        at = bisect_left(self.ids, producer_id)
        return at if at < len(self.ids) and self.ids[at] == producer_id else None

    def state(self, at: int) -> ProducerState:
        size = ENTRY.size
        batches = None if self.batches is None else self.batches[at * BATCHES_BYTES : (at + 1) * BATCHES_BYTES]
        return unpack_state(self.entries[at * size : (at + 1) * size], self.seen_ms[at], batches)

    def insert(self, at: int, producer_id: int, state: ProducerState) -> None:
        packed = pack_batches(state)
        if packed is not None and self.batches is None:
            self.batches = bytearray(len(self.ids) * BATCHES_BYTES)
        if self.batches is not None:
            self.batches[at * BATCHES_BYTES : at * BATCHES_BYTES] = packed or bytes(BATCHES_BYTES)
        self.ids.insert(at, producer_id)
        self.entries[at * ENTRY.size : at * ENTRY.size] = pack_entry(producer_id, state)
        self.seen_ms.insert(at, state.seen_ms)
        self.oldest_ms = min(self.oldest_ms, state.seen_ms)
        self.newest_ms = max(self.newest_ms, state.seen_ms)

    def remove(self, at: int) -> None:
        del self.ids[at], self.seen_ms[at]
        del self.entries[at * ENTRY.size : (at + 1) * ENTRY.size]
        if self.batches is not None:
            del self.batches[at * BATCHES_BYTES : (at + 1) * BATCHES_BYTES]

    def split(self) -> "_Page":
        """Takes the upper half out."""
        half = len(self.ids) // 2
        batches = None if self.batches is None else self.batches[half * BATCHES_BYTES :]
        upper = _Page(self.owner, self.ids[half:], self.entries[half * ENTRY.size :], self.seen_ms[half:], batches)
        del self.ids[half:], self.seen_ms[half:], self.entries[half * ENTRY.size :]
        if self.batches is not None:
            del self.batches[half * BATCHES_BYTES :]
        return upper

    def expired(self, latest_ms: int, kept: AbstractSet[int]) -> list[int]:
        """The ids of those that were seen last at `latest_ms` or before, without those that are kept."""
        if self.newest_ms <= latest_ms and kept.isdisjoint(self.ids):
            return list(self.ids)
        return [
            producer_id
            for producer_id, seen_ms in zip(self.ids, self.seen_ms, strict=True)
            if seen_ms <= latest_ms and producer_id not in kept
        ]

    def without(self, gone: AbstractSet[int], owner: object) -> "_Page":
        stay = [at for at, producer_id in enumerate(self.ids) if producer_id not in gone]
        size = ENTRY.size
        batches = None
        if self.batches is not None:
            batches = bytearray().join(self.batches[at * BATCHES_BYTES : (at + 1) * BATCHES_BYTES] for at in stay)
        return _Page(
            owner,
            array("q", [self.ids[at] for at in stay]),
            bytearray().join(self.entries[at * size : (at + 1) * size] for at in stay),
            array("q", [self.seen_ms[at] for at in stay]),
            batches,
        )

    def ids_with_batches(self) -> Iterator[int]:
        if self.batches is not None:
            for at, producer_id in enumerate(self.ids):
                if self.batches[at * BATCHES_BYTES]:
                    yield producer_id


class ProducerPages:
    """States by producer id, which is not negative. Each id is put once, and taken before it is put again."""

    def __init__(self) -> None:
        self._pages: list[_Page] = []
        # A page has the ids from its own first one to that of the next page; the first page has all below, too.
        self._first_ids: list[int] = []
        # What has this mark belongs to these pages alone.
        self._owner = object()
        self._count = 0

    @classmethod
    def of_entries(cls, entries: memoryview, seen_ms: int) -> "ProducerPages":
        """From those of a snapshot. Of two that have the same producer id, the later one counts."""
        pages, size = cls(), ENTRY.size
        position_of = {fields[0]: n * size for n, fields in enumerate(ENTRY.iter_unpack(entries))}
        ids = sorted(position_of)
        for start in range(0, len(ids), PRODUCERS_PER_PAGE):
            some = array("q", ids[start : start + PRODUCERS_PER_PAGE])
            packed = bytearray().join(entries[position_of[each] : position_of[each] + size] for each in some)
            pages._pages.append(_Page(pages._owner, some, packed, array("q", [seen_ms]) * len(some)))
            pages._first_ids.append(some[0])
        pages._count = len(ids)
        return pages

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Ids, rising."""
        for page in self._pages:
            yield from page.ids

    def highest_below(self, end: int) -> int:
        """The highest id below `end`, or -1."""
        if not self._pages:
            return -1
        ids = self._pages[self._index_of(end - 1)].ids
        count = bisect_left(ids, end)
        return ids[count - 1] if count else -1

    def copy(self) -> "ProducerPages":
        copied = ProducerPages()
        copied._pages, copied._first_ids, copied._count = self._pages.copy(), self._first_ids.copy(), self._count
        self._owner = object()
        return copied

    def get(self, producer_id: int) -> ProducerState | None:
        if not self._pages:
            return None
        page = self._pages[self._index_of(producer_id)]
        at = page.find(producer_id)
        return None if at is None else page.state(at)

    def take(self, producer_id: int) -> ProducerState | None:
        """As `get`; it is not here any more then."""
        if not self._pages:
            return None
        n = self._index_of(producer_id)
        at = self._pages[n].find(producer_id)
        if at is None:
            return None
        page = self._own(n)
        state = page.state(at)
        page.remove(at)
        self._count -= 1
        if not page.ids:
            self._drop(n)
        return state

    def put(self, producer_id: int, state: ProducerState) -> None:
        n = self._index_of(producer_id) if self._pages else self._add_page(0, producer_id, state.seen_ms)
        page = self._own(n)
        if len(page.ids) >= PRODUCERS_PER_PAGE:
            if n == len(self._pages) - 1 and producer_id > page.ids[-1]:
                # Most ids rise: whole pages are left behind, not halves.
                n = self._add_page(n + 1, producer_id, state.seen_ms)
            else:
                upper = page.split()
                self._pages.insert(n + 1, upper)
                self._first_ids.insert(n + 1, upper.ids[0])
                n += producer_id >= upper.ids[0]
            page = self._pages[n]
        page.insert(bisect_left(page.ids, producer_id), producer_id, state)
        self._count += 1

    def entries(self) -> Iterator[Buffer]:
        """Those of each page."""
        return (page.entries for page in self._pages)

    def ids_with_batches(self) -> Iterator[int]:
        """Of the producers that have more batches than their entry says."""
        for page in self._pages:
            yield from page.ids_with_batches()

    def expire(self, latest_ms: int, kept: AbstractSet[int], from_id: int) -> ExpirySlice:
        """Drop those that were seen last at `latest_ms` or before and are not `kept`, in some pages from that of
        `from_id` on."""
        expired: list[int] = []
        looked_at, n = 0, self._index_of(from_id) if self._pages else 0
        while n < len(self._pages):
            page = self._pages[n]
            if page.oldest_ms <= latest_ms:
                if looked_at == PAGES_PER_SLICE:
                    return ExpirySlice(expired, page.ids[0])
                looked_at += 1
                gone = page.expired(latest_ms, kept)
                self._count -= len(gone)
                expired += gone
                if len(gone) == len(page.ids):
                    self._drop(n)
                    continue
                if gone:
                    self._pages[n] = page.without(set(gone), self._owner)
            n += 1
        return ExpirySlice(expired, None)

    def _index_of(self, producer_id: int) -> int:
        return max(bisect_right(self._first_ids, producer_id) - 1, 0)

    def _own(self, n: int) -> _Page:
        page = self._pages[n]
        if page.owner is not self._owner:
            page = self._pages[n] = page.copy(self._owner)
        return page

    def _add_page(self, n: int, first_id: int, seen_ms: int) -> int:
        page = _Page(self._owner, array("q"), bytearray(), array("q"), seen_between=(seen_ms, seen_ms))
        self._pages.insert(n, page)
        self._first_ids.insert(n, first_id)
        return n

    def _drop(self, n: int) -> None:
        del self._pages[n], self._first_ids[n]
