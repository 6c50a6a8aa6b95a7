"""The partitions of a transaction: a set that shares with the one before it what has not changed.

A transaction may have tens of thousands of partitions, and each one that is added writes a record with all of them. So
they are kept as the record has them: the topics in order, the partitions of each as sorted integers, with the bytes of
those beside them. To add one costs a copy of the dictionary of topics and of the integers of one topic.
"""

import sys
from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias, TypeVar

from ottla.protocol.primitives import build_uvarint

Participant: TypeAlias = tuple[str, int]
"""Topic and partition that a transaction writes to."""

T = TypeVar("T")

# Beyond, two sorted runs are sorted again, which takes as long as it takes to copy them.
_INSERTED_ONE_BY_ONE: Final = 16
_NO_TAGS: Final = b"\x00"


class _Partitions:
    """Those of one topic, which are not changed any more."""

    __slots__ = ("_encoded", "indexes")

    def __init__(self, indexes: "array[int]") -> None:
        self.indexes = indexes
        self._encoded: bytes | None = None

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self.indexes, index)
        return at < len(self.indexes) and self.indexes[at] == index

    def with_added(self, added: Iterable[int]) -> "_Partitions":
        """With those of them that are not here yet."""
        new = [index for index in added if index not in self]
        if len(new) > _INSERTED_ONE_BY_ONE:
            return _Partitions(array("i", sorted(self.indexes.tolist() + sorted(new))))
        indexes = self.indexes[:]
        for index in new:
            insort(indexes, index)
        return _Partitions(indexes)

    def encoded(self, topic: str) -> bytes:
        """As value version 1 has the topic."""
        if self._encoded is None:
            name = topic.encode()
            head = build_uvarint(len(name) + 1) + name + build_uvarint(len(self.indexes) + 1)
            self._encoded = head + self.big_endian() + _NO_TAGS
        return self._encoded

    def encoded_0(self, topic: str) -> bytes:
        name = topic.encode()
        return len(name).to_bytes(2, "big") + name + len(self.indexes).to_bytes(4, "big") + self.big_endian()

    def big_endian(self) -> bytes:
        indexes = self.indexes
        if sys.byteorder == "little":
            indexes = indexes[:]
            indexes.byteswap()
        return indexes.tobytes()


class Participants(AbstractSet[Participant]):
    """An immutable set. It is iterated in order, topic by topic."""

    __slots__ = ("_count", "_topics")

    def __init__(self, topics: Mapping[str, _Partitions]) -> None:
        """`topics` are in order, and each has a partition."""
        self._topics = topics
        self._count = sum(len(each.indexes) for each in topics.values())

    @classmethod
    def of(cls, partitions: Iterable[Participant]) -> "Participants":
        if isinstance(partitions, Participants):
            return partitions
        return NO_PARTICIPANTS.with_added(partitions)

    @classmethod
    def of_topics(cls, topics: Iterable[tuple[str, Sequence[int]]]) -> "Participants":
        """As a record has them. A topic may come more than once."""
        found: dict[str, _Partitions] = {}
        for topic, indexes in topics:
            before = found.get(topic)
            if before is not None:
                found[topic] = before.with_added(set(indexes))
            elif indexes:
                found[topic] = _Partitions(array("i", sorted(set(indexes))))
        return cls(dict(sorted(found.items())))

    def with_added(self, partitions: Iterable[Participant]) -> "Participants":
        added: dict[str, set[int]] = defaultdict(set)
        for topic, index in partitions:
            added[topic].add(index)
        topics = dict(self._topics)
        has_new = False
        for topic, indexes in added.items():
            there = topics.get(topic)
            has_new |= there is None
            topics[topic] = (there or _NO_PARTITIONS).with_added(indexes)
        if has_new:
            topics = dict(sorted(topics.items()))
        return Participants(topics)

    def topics(self) -> Iterator[str]:
        """In order."""
        return iter(self._topics)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def by_topic(self) -> dict[str, list[int]]:
        return {topic: each.indexes.tolist() for topic, each in self._topics.items()}

    def encoded(self, version: int) -> bytes:
        """As the array of a value of this version, with its length."""
        topics = self._topics.items()
        if version:
            return build_uvarint(len(topics) + 1) + b"".join([each.encoded(topic) for topic, each in topics])
        return len(topics).to_bytes(4, "big") + b"".join([each.encoded_0(topic) for topic, each in topics])

    def has_grown_from(self, other: "Participants") -> bool:
        """Whether all of `other` are here. What both share is not looked at."""
        if len(self) < len(other):
            return False
        for topic, before in other._topics.items():
            now = self._topics.get(topic)
            if now is not before and (now is None or not set(before.indexes).issubset(now.indexes)):
                return False
        return True

    def __contains__(self, participant: object) -> bool:
        match participant:
            case (str() as topic, int() as index):
                return index in self._topics.get(topic, _NO_PARTITIONS)
            case _:
                return False

    def __iter__(self) -> Iterator[Participant]:
        for topic, each in self._topics.items():
            for index in each.indexes:
                yield topic, index

    def __len__(self) -> int:
        return self._count

    @classmethod
    def _from_iterable(cls, it: Iterable[T]) -> AbstractSet[T]:
        """What operators give."""
        return frozenset(it)

    def __repr__(self) -> str:
        return f"Participants({self.by_topic()})"


_NO_PARTITIONS: Final = _Partitions(array("i"))
NO_PARTICIPANTS: Final = Participants({})
