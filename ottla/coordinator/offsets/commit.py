"""OffsetCommit and TxnOffsetCommit (docs/semantics §9.1 to §9.3). Who may commit, and when, is decided by the group."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.coordinator.events import CommitOffsets, OffsetToCommit
from ottla.coordinator.facts import OffsetsCommitted
from ottla.coordinator.group_context import Group, GroupContext
from ottla.coordinator.records import (
    LAST_TIMESTAMP,
    NO_TIMESTAMP,
    CommittedOffset,
    build_offset_commit_key,
    build_offset_commit_value,
)
from ottla.coordinator.results import CommitResult, PartitionError, all_partitions, commit_error
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.hashing import java_length
from ottla.protocol.errors import ErrorCode

OFFSETS_PER_SLICE: Final = 256
"""The record of one takes less than 10 µs."""


def commit_offsets(context: GroupContext, group: Group | None, event: CommitOffsets) -> bool:
    """Whether the commit as a whole is accepted. `group` is None for a group that does not exist yet."""
    error = _error_without_group(event) if group is None else group.offset_commit_error(event)
    if error is not None:
        context.reply(event.token, all_partitions(event, error))
        return False
    context.run(_store(context, event))
    return True


def _store(context: GroupContext, event: CommitOffsets) -> Iterator[None]:
    metadata_max = context.config.offset_metadata_max_bytes
    results: list[PartitionError] = []
    records: list[CoordinatorRecord] = []
    for number, offset in enumerate(event.offsets, 1):
        error = _metadata_error(offset, metadata_max)
        results.append(PartitionError(offset.topic, offset.partition, error))
        if not error:
            records.append(_commit_record(context, event, offset))
        if not number % OFFSETS_PER_SLICE:
            yield
    result = CommitResult(tuple(results))
    after = CommitStored(event, result, len(records))
    if not records:
        if event.offsets:
            # As in Kafka, a simple group is there when it commits, though nothing of that can be stored.
            context.create_empty(event.group_id)
        context.reply(event.token, result)
    elif event.producer is None:
        context.append(event.group_id, records, after)
    else:
        context.append_in_transaction(event.group_id, records, after, event.producer, event.guard)


def _error_without_group(event: CommitOffsets) -> ErrorCode | None:
    """A client that assigns partitions to itself makes a *simple* group by committing."""
    if event.generation < 0:
        return None
    if event.supports_group_id_not_found:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _metadata_error(offset: OffsetToCommit, metadata_max: int) -> ErrorCode:
    too_large = java_length(offset.metadata or "") > metadata_max
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE


def _commit_record(context: GroupContext, event: CommitOffsets, offset: OffsetToCommit) -> CoordinatorRecord:
    expire_timestamp_ms = NO_TIMESTAMP
    if event.retention_time_ms >= 0:
        expire_timestamp_ms = min(context.wall_ms + event.retention_time_ms, LAST_TIMESTAMP)
    committed = CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        commit_timestamp_ms=context.wall_ms,
        expire_timestamp_ms=expire_timestamp_ms,
    )
    key = build_offset_commit_key(event.group_id, offset.topic, offset.partition)
    return CoordinatorRecord(key, build_offset_commit_value(committed))


@dataclass(frozen=True, slots=True)
class CommitStored:
    """Follows the records of committed offsets."""

    event: CommitOffsets
    result: CommitResult
    stored: int

    def completed(self, context: GroupContext) -> None:
        context.observe(
            OffsetsCommitted(group_id=self.event.group_id, member_id=self.event.member_id, partitions=self.stored)
        )
        context.reply(self.event.token, self.result)

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        context.reply(self.event.token, all_partitions(self.event, commit_error(error)))
