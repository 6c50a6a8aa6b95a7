"""OffsetCommit (docs/semantics §9.1, §9.2). Who may commit, and when, is decided by the group."""

from dataclasses import dataclass

from ottla.coordinator.events import CommitOffsets, OffsetToCommit
from ottla.coordinator.facts import OffsetsCommitted
from ottla.coordinator.group_context import Group, GroupContext
from ottla.coordinator.records import NO_TIMESTAMP, CommittedOffset, build_offset_commit_key, build_offset_commit_value
from ottla.coordinator.results import CommitResult, PartitionError, all_partitions, commit_error
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.hashing import java_length
from ottla.protocol.errors import ErrorCode


def commit_offsets(context: GroupContext, group: Group | None, event: CommitOffsets) -> bool:
    """Whether the commit as a whole is accepted. `group` is None for a group that does not exist yet."""
    error = _error_without_group(event) if group is None else group.offset_commit_error(event)
    if error is not None:
        context.reply(event.token, all_partitions(event, error))
        return False
    metadata_max = context.config.offset_metadata_max_bytes
    errors = [_metadata_error(offset, metadata_max) for offset in event.offsets]
    accepted = [offset for offset, error in zip(event.offsets, errors, strict=True) if not error]
    result = CommitResult(
        tuple(
            PartitionError(offset.topic, offset.partition, error)
            for offset, error in zip(event.offsets, errors, strict=True)
        )
    )
    if accepted:
        records = [_commit_record(context, event, offset) for offset in accepted]
        context.append(event.group_id, records, CommitStored(event, result, len(accepted)))
    else:
        context.reply(event.token, result)
    return True


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
    expires = event.retention_time_ms >= 0
    committed = CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        commit_timestamp_ms=context.wall_ms,
        expire_timestamp_ms=context.wall_ms + event.retention_time_ms if expires else NO_TIMESTAMP,
    )
    key = build_offset_commit_key(event.group_id, offset.topic, offset.partition)
    return CoordinatorRecord(key, build_offset_commit_value(committed))


@dataclass(frozen=True, slots=True)
class CommitStored:
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
