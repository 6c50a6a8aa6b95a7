"""What clients may make as much of as they like and a coordinator need not keep: the oldest goes first.

A member id that was handed out and has not come back, a group that was asked for and has neither members nor offsets:
Kafka keeps such things for a time that the client says, or until its next look for expired offsets. A client that makes
thousands of them per second, with names of 32 KiB, would take all memory in that time. None is needed: a client that
comes back to what is gone gets UNKNOWN_MEMBER_ID, and begins again.

    handed out    a-1  a-2  b-1  c-1 ...  z-9        4 MiB in all
    next          a-2  b-1  c-1 ...  z-9  y-1        a-1 had to go
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

ENTRY_BYTES: Final = 512
"""What one takes beside its names, roughly."""
BYTES_PER_WIDE_CHARACTER: Final = 4

K = TypeVar("K", bound=Hashable)


class OldestFirst(Generic[K]):
    """Keys in the order in which they came, with what they take in memory.

    What has to go is for the caller to take out of its own books: `overflow` names it."""

    __slots__ = ("_bytes", "_bytes_max", "_sizes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Not a plain one, which looks through the places of all that have gone to find its first.
        self._sizes: OrderedDict[K, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, key: K, *names: str) -> None:
        """As the newest; `names` are what it keeps in memory."""
        self.discard(key)
        size = ENTRY_BYTES + sum(_size_of(name) for name in names)
        self._sizes[key] = size
        self._bytes += size

    def discard(self, key: K) -> None:
        self._bytes -= self._sizes.pop(key, 0)

    def overflow(self) -> Iterator[K]:
        """Takes the oldest out, one after the other, until the others take no more than they may."""
        while self._bytes > self._bytes_max:
            key, size = self._sizes.popitem(last=False)
            self._bytes -= size
            yield key

    def clear(self) -> None:
        self._sizes.clear()
        self._bytes = 0


def _size_of(name: str) -> int:
    return len(name) if name.isascii() else BYTES_PER_WIDE_CHARACTER * len(name)
