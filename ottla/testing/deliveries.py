"""How far consumers were given each partition, and where the batches begin and end that they were given."""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, TypeVar

from ottla.protocol.records.batch import BATCH_HEADER_SIZE, BATCH_LENGTH_MIN, LENGTH_OVERHEAD, MAGIC

DELIVERIES_KEPT = 100_000
"""Partitions."""
# Of a header: base offset, length, magic, last offset delta.
_SPAN: Final = Struct(">qi4xb6xi")

_OFFSET_BYTES: Final = 8
"""A batch begins with its base offset."""

K = TypeVar("K")
V = TypeVar("V")


class Deliveries:
    """Of all consumers together: in a group each partition has one."""

    def __init__(self) -> None:
        # By topic id, or by name in versions that have no ids, and partition: the first offset that was delivered, and
        # the one after the last.
        self._ranges: dict[tuple[bytes | str, int], tuple[int, int]] = {}

    def note(self, response: Any) -> None:
        """A FetchResponse that goes to a client."""
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for partition in topic.partitions:
                found = _range_of(partition.records)
                if found is not None:
                    place = key, partition.partition_index
                    start, end = self._ranges.get(place, found)
                    keep_last(self._ranges, place, (min(start, found[0]), max(end, found[1])), DELIVERIES_KEPT)

    def end(self, name: str, topic_id: bytes, partition: int) -> int:
        """The offset after the last one delivered; 0 where nothing was."""
        return self.range(name, topic_id, partition)[1]

    def range(self, name: str, topic_id: bytes, partition: int) -> tuple[int, int]:
        """The first offset that was delivered, and the one after the last; both are 0 where nothing was."""
        found = [self._ranges[each] for each in ((name, partition), (topic_id, partition)) if each in self._ranges]
        return (min(start for start, _ in found), max(end for _, end in found)) if found else (0, 0)

    def clear(self) -> None:
        self._ranges.clear()


def _range_of(records: "bytes | memoryview | list[memoryview] | None") -> tuple[int, int] | None:
    """The base offset of the first batch, and the offset after the last, which is that of the last buffer; None without
    records."""
    if not records:
        return None
    first, last = (records[0], records[-1]) if isinstance(records, list) else (records, records)
    ends = [end for _, end in batch_spans(last)]
    return (int.from_bytes(first[:_OFFSET_BYTES], "big"), ends[-1]) if ends else None


def batch_spans(buffer: Any) -> Iterator[tuple[int, int]]:
    """The base offset of each whole batch and the offset after its last record, up to one that is cut off or no batch
    that a client could read."""
    unpack, position, end = _SPAN.unpack_from, 0, len(buffer)
    while position + BATCH_HEADER_SIZE <= end:
        base_offset, length, magic, delta = unpack(buffer, position)
        position += LENGTH_OVERHEAD + length
        if length < BATCH_LENGTH_MIN or magic != MAGIC or position > end:
            return
        yield base_offset, base_offset + delta + 1


def keep_last(kept: dict[K, V], key: K, value: V, count: int) -> None:
    """Adds an entry, as the last one; beyond so many the one goes that was added longest ago."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > count:
        del kept[next(iter(kept))]
