"""The states of all producers of a partition, by their ids.

Those that wrote lately are objects at hand (`recent`), for each batch of theirs asks for one and makes another. Beyond
some thousand, the ones that came first are packed into pages, and are objects again when they write again.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, islice

from ottla.protocol.primitives import Buffer
from ottla.storage.producer_entry import ProducerState, pack_entry
from ottla.storage.producer_pages import ExpirySlice, ProducerPages

RECENT_MAX = 1024
PACKED_AT_ONCE = 64
GIVEN_IDS_END = 1 << 62
"""Brokers give producer ids from 0 on. One from here on is a client's own invention: were it taken for one that was
given, none would be left."""


class ProducerTable(Mapping[int, ProducerState]):
    """As a mapping it is for readers. The one that appends takes states, puts them into `recent`, and calls
    `pack_oldest` when there are more than `recent_max` of them."""

    __slots__ = ("_pages", "recent", "recent_max")

    def __init__(self, pages: ProducerPages | None = None) -> None:
        self.recent: dict[int, ProducerState] = {}
        """None of them is in the pages."""
        self.recent_max = RECENT_MAX + PACKED_AT_ONCE
        self._pages = pages if pages is not None else ProducerPages()

    @classmethod
    def of_entries(cls, entries: memoryview, seen_ms: int) -> "ProducerTable":
        """From those of a snapshot, whose producers were all seen at `seen_ms`."""
        return cls(ProducerPages.of_entries(entries, seen_ms))

    def __len__(self) -> int:
        return len(self.recent) + len(self._pages)

    def __iter__(self) -> Iterator[int]:
        return chain(self._pages, self.recent)

    def __getitem__(self, producer_id: int) -> ProducerState:
        state = self.find(producer_id)
        if state is None:
            raise KeyError(producer_id)
        return state

    @property
    def highest_given_id(self) -> int:
        """Below GIVEN_IDS_END; -1 without any."""
        recent = max((each for each in self.recent if each < GIVEN_IDS_END), default=-1)
        return max(recent, self._pages.highest_below(GIVEN_IDS_END))

    def find(self, producer_id: int) -> ProducerState | None:
        return self.recent.get(producer_id) or self._pages.get(producer_id)

    def find_packed(self, producer_id: int) -> ProducerState | None:
        """As `find`, of a producer that is not among the recent ones."""
        return self._pages.get(producer_id)

    def take_packed(self, producer_id: int) -> ProducerState | None:
        """As `find_packed`, to put it into `recent`: it is nowhere then."""
        return self._pages.take(producer_id)

    def pack_oldest(self) -> None:
        """Work that grows with the number of producers put into `recent` since the last time."""
        count = len(self.recent) - RECENT_MAX
        for producer_id, state in sorted(islice(self.recent.items(), max(count, 0))):
            del self.recent[producer_id]
            self._pages.put(producer_id, state)

    def copy(self) -> "ProducerTable":
        """As it is now, for any thread. Takes a moment, however many there are."""
        copied = ProducerTable(self._pages.copy())
        copied.recent.update(self.recent)
        return copied

    def entries(self) -> Iterator[Buffer]:
        """All of them, as they stand in a snapshot, in pieces."""
        yield from self._pages.entries()
        if self.recent:
            yield b"".join(pack_entry(producer_id, state) for producer_id, state in sorted(self.recent.items()))

    def ids_with_batches(self) -> Iterator[int]:
        """Of those that have batches of which a snapshot would say nothing, and perhaps of others."""
        return chain(self._pages.ids_with_batches(), self.recent)

    def expire(self, latest_ms: int, kept: AbstractSet[int], from_id: int | None) -> ExpirySlice:
        """Forget those that were seen last at `latest_ms` or before and are not `kept`, in some of the pages from that
        of `from_id` on. None begins, with the recent ones."""
        expired: list[int] = []
        if from_id is None:
            from_id = 0
            for producer_id, state in list(self.recent.items()):
                if state.seen_ms <= latest_ms and producer_id not in kept:
                    del self.recent[producer_id]
                    expired.append(producer_id)
        packed = self._pages.expire(latest_ms, kept, from_id)
        return ExpirySlice(expired + packed.expired, packed.next_id)
