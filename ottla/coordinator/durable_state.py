"""What the log says: the state of a partition that survives a restart, and the one way to change it.

`DurableState.replay` is called with every record when the partition is loaded, and again with every record that this
coordinator appended itself, once the high watermark has passed it. Nothing else changes this state, so a coordinator
that has served for a month and one that has just loaded its log hold the same (invariant I-17).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from sys import intern
from typing import Final, NamedTuple, TypeAlias

from ottla.coordinator.records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataKey,
    OffsetCommitKey,
    UnreadRecord,
    parse_group_metadata_value,
    parse_key,
    parse_offset_commit_value,
)

TopicPartition: TypeAlias = tuple[str, int]

OFFSETS_PER_SLICE: Final = 512
"""Of a transaction that ends; each takes some two microseconds."""


class LoggedOffset(NamedTuple):
    """A committed offset and where in the log it stands: of two, the later in the log wins."""

    committed: CommittedOffset
    record_offset: int
    is_transactional: bool = False
    """It was committed in a transaction: its group reads what is committed, so that it ends at the last stable offset.
    """


class PendingOffsets:
    """Offsets of transactions whose markers are still to come. Readers see none of them (docs/semantics §9.3)."""

    __slots__ = ("_by_producer", "_producers")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetCommitKey, LoggedOffset]] = {}
        # Invariant: the same, by group and partition: the ids of the producers that have an offset for it.
        self._producers: dict[str, dict[TopicPartition, tuple[int, ...]]] = {}

    def put(self, producer_id: int, key: OffsetCommitKey, logged: LoggedOffset) -> None:
        """Of two of one producer, the later in the log stays."""
        offsets = self._by_producer.setdefault(producer_id, {})
        present = offsets.get(key)
        if present is None:
            partitions = self._producers.setdefault(key.group_id, {})
            partition = (key.topic, key.partition)
            partitions[partition] = (*partitions.get(partition, ()), producer_id)
        if present is None or present.record_offset < logged.record_offset:
            offsets[key] = logged

    def take(self, producer_id: int) -> Iterator[tuple[OffsetCommitKey, LoggedOffset]]:
        """All of the producer, which has none of them any more."""
        for key, logged in self._by_producer.pop(producer_id, {}).items():
            self._forget_producer(producer_id, key)
            yield key, logged

    def remove(self, key: OffsetCommitKey) -> None:
        """Of all producers."""
        for producer_id in self._producers.get(key.group_id, {}).get((key.topic, key.partition), ()):
            self._forget_producer(producer_id, key)
            offsets = self._by_producer[producer_id]
            del offsets[key]
            if not offsets:
                del self._by_producer[producer_id]

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self._producers.get(group_id, ())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._producers

    def group_ids(self) -> Iterator[str]:
        yield from self._producers

    def partitions_of(self, group_id: str) -> Iterator[TopicPartition]:
        yield from self._producers.get(group_id, ())

    def _forget_producer(self, producer_id: int, key: OffsetCommitKey) -> None:
        partitions = self._producers[key.group_id]
        partition = (key.topic, key.partition)
        others = tuple(each for each in partitions[partition] if each != producer_id)
        if others:
            partitions[partition] = others
            return
        del partitions[partition]
        if not partitions:
            del self._producers[key.group_id]


class Skipped(NamedTuple):
    records: int
    first_record_offset: int


@dataclass(slots=True)
class DurableState:
    """What the log says, as far as it was replayed."""

    metadata: dict[str, GroupMetadata] = field(default_factory=dict[str, GroupMetadata])
    offsets: dict[str, dict[TopicPartition, LoggedOffset]] = field(
        default_factory=dict[str, dict[TopicPartition, LoggedOffset]]
    )
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    skipped: dict[str, Skipped] = field(default_factory=dict[str, Skipped])
    """Records that are not ours to read, by reason."""

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        """Apply one record. `producer_id` is given for records of a transactional batch.

        Raises `DecodeError` when the bytes are not what their version says.
        """
        parsed = parse_key(key)
        match parsed:
            case OffsetCommitKey():
                if producer_id is None:
                    self._replay_offset(parsed, value, record_offset)
                else:
                    self._replay_pending(parsed, value, record_offset, producer_id)
            case GroupMetadataKey(group_id):
                self._replay_metadata(group_id, value, record_offset)
            case UnreadRecord(reason):
                self._skip(reason, record_offset)

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:
        """Apply a transaction's marker: its pending offsets become visible together, or vanish. Yields after each
        slice of them; it is one change all the same, and nothing else may be asked or replayed in between."""
        for number, (key, logged) in enumerate(self.pending.take(producer_id), 1):
            if commit:
                self._merge(key, logged)
            if not number % OFFSETS_PER_SLICE:
                yield

    def knows(self, group_id: str) -> bool:
        return group_id in self.metadata or group_id in self.offsets or self.pending.has_group(group_id)

    def group_ids(self) -> Iterator[str]:
        yield from dict.fromkeys((*self.metadata, *self.offsets, *self.pending.group_ids()))

    def _replay_offset(self, key: OffsetCommitKey, value: bytes | None, record_offset: int) -> None:
        if value is None:
            self._remove_offset(key)
            return
        committed = parse_offset_commit_value(value)
        if committed is None:
            self._skip("offset commit value of an unknown version", record_offset)
        else:
            self._merge(key, LoggedOffset(committed, record_offset))

    def _replay_pending(self, key: OffsetCommitKey, value: bytes | None, record_offset: int, producer_id: int) -> None:
        if value is None:
            # It waits for no marker. Only another broker can have written one.
            self._remove_offset(key)
            return
        committed = parse_offset_commit_value(value)
        if committed is None:
            self._skip("transactional offset commit value of an unknown version", record_offset)
        else:
            self.pending.put(producer_id, key, LoggedOffset(committed, record_offset, is_transactional=True))

    def _replay_metadata(self, group_id: str, value: bytes | None, record_offset: int) -> None:
        if value is None:
            self.metadata.pop(group_id, None)
            return
        metadata = parse_group_metadata_value(value)
        if metadata is None:
            self._skip("group metadata value of an unknown version", record_offset)
        else:
            self.metadata[group_id] = metadata

    def _merge(self, key: OffsetCommitKey, logged: LoggedOffset) -> None:
        offsets = self.offsets.setdefault(key.group_id, {})
        present = offsets.get((key.topic, key.partition))
        if present is None or present.record_offset <= logged.record_offset:
            # One name for all of a topic's offsets, in all groups: a record has one of its own.
            offsets[intern(key.topic), key.partition] = logged

    def _remove_offset(self, key: OffsetCommitKey) -> None:
        """Also what transactions have for it: their markers must not bring it back."""
        self.pending.remove(key)
        offsets = self.offsets.get(key.group_id)
        if offsets is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self.offsets[key.group_id]

    def _skip(self, reason: str, record_offset: int) -> None:
        records, first = self.skipped.get(reason, Skipped(0, record_offset))
        self.skipped[reason] = Skipped(records + 1, first)
