"""Tombstones, in as many batches as it takes.

A group may have offsets of more partitions than fit into one batch of the log, and all of them may go at once: when
they expire, when a topic or the group is deleted. Unlike a commit this need not happen whole: what a crash leaves is
what an earlier moment left, and goes the next time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.coordinator.durable import TopicPartition
from ottla.coordinator.effects import CoordinatorRecord
from ottla.coordinator.facts import StoreFailed
from ottla.coordinator.records import build_offset_commit_key
from ottla.coordinator.turn import AfterAppend, Turn
from ottla.protocol.errors import ErrorCode

BATCH_BYTES: Final = 256 * 1024
"""A quarter of what a batch may have by default; `message.max.bytes` is seldom lowered as far."""
RECORD_OVERHEAD_BYTES: Final = 20
"""Length, timestamp and offset of a record, at most."""


def tombstones(group_id: str, partitions: Sequence[TopicPartition]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(build_offset_commit_key(group_id, *partition), None) for partition in partitions]


def append_tombstones(turn: Turn, group_id: str, records: Sequence[CoordinatorRecord], after: AfterAppend) -> None:
    """`after` hears of the last batch; the high watermark passes it after all the others."""
    *earlier, last = _batches(records)
    for batch in earlier:
        turn.append(group_id, batch, EarlierTombstones(group_id))
    turn.append(group_id, last, after)


def _batches(records: Sequence[CoordinatorRecord]) -> Iterator[list[CoordinatorRecord]]:
    batch: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        record_size = len(record.key) + RECORD_OVERHEAD_BYTES
        if batch and size + record_size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_size
    yield batch


@dataclass(frozen=True, slots=True)
class EarlierTombstones:
    group_id: str

    def completed(self, turn: Turn) -> None:
        """Nobody waits for a part."""

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.observe(StoreFailed(self.group_id, -1, "a part of the removal of offsets", error))
