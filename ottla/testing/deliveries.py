"""How far consumers have been given the records of a topic, whether they committed that or not."""

from typing import Any

from ottla.protocol.records.batch import iterate_batches


class Deliveries:
    """Of all consumers together: in a group each partition has one."""

    def __init__(self) -> None:
        # By topic id, or by name in versions that have no ids, and partition: the offset after the last one delivered.
        self._ends: dict[tuple[bytes | str, int], int] = {}

    def note(self, response: Any) -> None:
        """A FetchResponse that goes to a client."""
        for topic in response.responses:
            key = topic.topic or topic.topic_id
            for partition in topic.partitions:
                end = _end_of(partition.records)
                if end is not None:
                    place = key, partition.partition_index
                    self._ends[place] = max(end, self._ends.get(place, 0))

    def end(self, name: str, topic_id: bytes, partition: int) -> int:
        """The offset after the last one delivered; 0 where nothing was."""
        return max(self._ends.get((name, partition), 0), self._ends.get((topic_id, partition), 0))

    def clear(self) -> None:
        self._ends.clear()


def _end_of(records: Any) -> int | None:
    """The offset after the last batch, which is that of the last buffer."""
    last = records[-1] if isinstance(records, list) and records else records
    if not last:
        return None
    end = None
    for _, header in iterate_batches(last):
        end = header.next_offset
    return end
