"""What the log says: the state of a partition that survives a restart, and the one way to change it.

`DurableState.replay` is called with every record when the partition is loaded, and again with every record that this
coordinator appended itself, once the high watermark has passed it. Nothing else changes this state, so a coordinator
that has served for a month and one that has just loaded its log hold the same (invariant I-17).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

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


class LoggedOffset(NamedTuple):
    """A committed offset and where in the log it stands: of two, the later in the log wins."""

    committed: CommittedOffset
    record_offset: int


class Skipped(NamedTuple):
    records: int
    first_record_offset: int


@dataclass(slots=True)
class DurableState:
    metadata: dict[str, GroupMetadata] = field(default_factory=dict[str, GroupMetadata])
    offsets: dict[str, dict[TopicPartition, LoggedOffset]] = field(
        default_factory=dict[str, dict[TopicPartition, LoggedOffset]]
    )
    transactional: dict[int, dict[OffsetCommitKey, LoggedOffset]] = field(
        default_factory=dict[int, dict[OffsetCommitKey, LoggedOffset]]
    )
    """Offsets of transactions that are not decided yet, by producer id."""
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
                    self._replay_transactional(parsed, value, record_offset, producer_id)
            case GroupMetadataKey(group_id):
                self._replay_metadata(group_id, value, record_offset)
            case UnreadRecord(reason):
                self._skip(reason, record_offset)

    def replay_control(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction's marker: its pending offsets become visible together, or vanish."""
        for key, logged in self.transactional.pop(producer_id, {}).items():
            if commit:
                self._merge(key, logged)

    def knows(self, group_id: str) -> bool:
        return group_id in self.metadata or group_id in self.offsets

    def group_ids(self) -> Iterator[str]:
        yield from self.metadata
        yield from (group_id for group_id in self.offsets if group_id not in self.metadata)

    def has_undecided_offsets(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        return any(
            key.group_id == group_id and partition in (None, (key.topic, key.partition))
            for keys in self.transactional.values()
            for key in keys
        )

    def _replay_offset(self, key: OffsetCommitKey, value: bytes | None, record_offset: int) -> None:
        if value is None:
            self._remove_offset(key)
            return
        committed = parse_offset_commit_value(value)
        if committed is None:
            self._skip("offset commit value of an unknown version", record_offset)
        else:
            self._merge(key, LoggedOffset(committed, record_offset))

    def _replay_transactional(
        self, key: OffsetCommitKey, value: bytes | None, record_offset: int, producer_id: int
    ) -> None:
        committed = None if value is None else parse_offset_commit_value(value)
        if committed is None:
            self._skip("transactional offset commit without a readable value", record_offset)
        else:
            self.transactional.setdefault(producer_id, {})[key] = LoggedOffset(committed, record_offset)

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
            offsets[key.topic, key.partition] = logged

    def _remove_offset(self, key: OffsetCommitKey) -> None:
        offsets = self.offsets.get(key.group_id)
        if offsets is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self.offsets[key.group_id]

    def _skip(self, reason: str, record_offset: int) -> None:
        records, first = self.skipped.get(reason, Skipped(0, record_offset))
        self.skipped[reason] = Skipped(records + 1, first)
