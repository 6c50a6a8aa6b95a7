"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (docs/semantics §9).

A commit is visible once the log has it, to everybody at the same time. Who may commit, and when, is decided by the
group; the offsets themselves are in the partition's durable state.
"""

from dataclasses import dataclass

from ottla.coordinator import sessions
from ottla.coordinator.append_errors import commit_error, group_error
from ottla.coordinator.durable import TopicPartition
from ottla.coordinator.effects import CoordinatorRecord
from ottla.coordinator.events import CommitOffsets, DeleteOffsets, FetchOffsets, OffsetToCommit, TopicsDeleted
from ottla.coordinator.facts import OffsetsCommitted, OffsetsRemoved, StoreFailed
from ottla.coordinator.group import Group
from ottla.coordinator.hashing import java_length
from ottla.coordinator.identity import identity_error
from ottla.coordinator.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetCommitKey,
    build_offset_commit_key,
    build_offset_commit_value,
    parse_key,
)
from ottla.coordinator.results import (
    CommitResult,
    DeleteOffsetsResult,
    FetchedOffset,
    FetchResult,
    PartitionError,
)
from ottla.coordinator.states import COMPLETING_REBALANCE, DEAD, EMPTY
from ottla.coordinator.subscriptions import consumes, subscribed_topics
from ottla.coordinator.tombstones import append_tombstones, tombstones
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode

# Commit


def commit_offsets(turn: Turn, event: CommitOffsets) -> None:
    group = turn.groups.get(event.group_id)
    error = _error_without_group(event) if group is None else _error_in(group, event)
    if error is not None:
        turn.reply(event.token, all_partitions(event, error))
        return
    member = None if group is None else group.members.get(event.member_id)
    if member is not None:
        sessions.renew(turn, member)
    metadata_max = turn.config.offset_metadata_max_bytes
    errors = [_metadata_error(offset, metadata_max) for offset in event.offsets]
    accepted = [offset for offset, error in zip(event.offsets, errors, strict=True) if not error]
    result = CommitResult(
        tuple(
            PartitionError(offset.topic, offset.partition, error)
            for offset, error in zip(event.offsets, errors, strict=True)
        )
    )
    if accepted:
        records = [_commit_record(turn, event, offset) for offset in accepted]
        turn.append(event.group_id, records, CommitStored(event, result, len(accepted)))
    else:
        turn.reply(event.token, result)


def all_partitions(event: CommitOffsets, error: ErrorCode) -> CommitResult:
    return CommitResult(tuple(PartitionError(offset.topic, offset.partition, error) for offset in event.offsets))


def _error_without_group(event: CommitOffsets) -> ErrorCode | None:
    """A client that assigns partitions to itself makes a *simple* group by committing."""
    if event.generation < 0:
        return None
    if event.supports_group_id_not_found:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _error_in(group: Group, event: CommitOffsets) -> ErrorCode | None:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if event.generation < 0 and group.state is EMPTY:
        return None
    if event.generation < 0 and not event.member_id and event.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = identity_error(group, event.member_id, event.group_instance_id)
    if error is not None:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # While joins are collected the old generation may still commit: members must be able to before they rejoin. Then a
    # member must first learn what it has been assigned.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is COMPLETING_REBALANCE else None


def _metadata_error(offset: OffsetToCommit, metadata_max: int) -> ErrorCode:
    too_large = java_length(offset.metadata or "") > metadata_max
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE


def _commit_record(turn: Turn, event: CommitOffsets, offset: OffsetToCommit) -> CoordinatorRecord:
    expires = event.retention_time_ms >= 0
    committed = CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        commit_timestamp_ms=turn.wall_ms,
        expire_timestamp_ms=turn.wall_ms + event.retention_time_ms if expires else NO_TIMESTAMP,
    )
    key = build_offset_commit_key(event.group_id, offset.topic, offset.partition)
    return CoordinatorRecord(key, build_offset_commit_value(committed))


@dataclass(frozen=True, slots=True)
class CommitStored:
    event: CommitOffsets
    result: CommitResult
    stored: int

    def completed(self, turn: Turn) -> None:
        turn.observe(OffsetsCommitted(self.event.group_id, self.event.member_id, self.stored))
        turn.reply(self.event.token, self.result)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.reply(self.event.token, all_partitions(self.event, commit_error(error)))


# Fetch


def fetch_offsets(turn: Turn, event: FetchOffsets) -> None:
    """Always from what the log says, and in every state of the group: no offset is no error."""
    stored = turn.durable.offsets.get(event.group_id, {})
    wanted: list[TopicPartition]
    if event.topics is None:
        wanted = list(stored)
    else:
        wanted = [(topic, partition) for topic, partitions in event.topics for partition in partitions]
    fetched = tuple(_fetch(turn, event, topic, partition) for topic, partition in wanted)
    turn.reply(event.token, FetchResult(ErrorCode.NONE, fetched))


def _fetch(turn: Turn, event: FetchOffsets, topic: str, partition: int) -> FetchedOffset:
    if event.require_stable and _is_unstable(turn, event.group_id, topic, partition):
        return FetchedOffset(topic, partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    logged = turn.durable.offsets.get(event.group_id, {}).get((topic, partition))
    if logged is None:
        return FetchedOffset(topic, partition)
    committed = logged.committed
    return FetchedOffset(topic, partition, committed.offset, committed.leader_epoch, committed.metadata)


def _is_unstable(turn: Turn, group_id: str, topic: str, partition: int) -> bool:
    """Something newer is on its way: an undecided transaction's offset, or a commit that the log does not have yet."""
    if turn.durable.has_undecided_offsets(group_id, (topic, partition)):
        return True
    return turn.appends.is_pending(build_offset_commit_key(group_id, topic, partition))


# Delete


def delete_offsets(turn: Turn, event: DeleteOffsets) -> None:
    group = turn.live_group(event.group_id)
    if group is None:
        turn.reply(event.token, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if group.state is not EMPTY and not consumes(group):
        turn.reply(event.token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
        return
    subscribed = subscribed_topics(group)
    present = set(partitions_with_offsets(turn, event.group_id))
    partitions: list[PartitionError] = []
    records: list[CoordinatorRecord] = []
    for topic, indexes in event.topics:
        is_free = subscribed is not None and topic not in subscribed
        error = ErrorCode.NONE if is_free else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        partitions += [PartitionError(topic, index, error) for index in indexes]
        if is_free:
            records += tombstones(event.group_id, [(topic, index) for index in indexes if (topic, index) in present])
    result = DeleteOffsetsResult(ErrorCode.NONE, tuple(partitions))
    if records:
        append_tombstones(turn, event.group_id, records, OffsetsDeleted(event, result, len(records)))
    else:
        turn.reply(event.token, result)


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    event: DeleteOffsets
    result: DeleteOffsetsResult
    removed: int

    def completed(self, turn: Turn) -> None:
        turn.observe(OffsetsRemoved(self.event.group_id, self.removed, "deleted by request"))
        turn.reply(self.event.token, self.result)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.reply(self.event.token, DeleteOffsetsResult(group_error(error)))


def forget_topics(turn: Turn, event: TopicsDeleted) -> None:
    """The offsets of deleted topics go, in every group, whatever it is doing."""
    topics = frozenset(event.topics)
    for group_id in dict.fromkeys((*turn.durable.offsets, *turn.appends.pending_group_ids())):
        doomed = [partition for partition in partitions_with_offsets(turn, group_id) if partition[0] in topics]
        if doomed:
            drop_offsets(turn, group_id, doomed, "topic deleted")


def partitions_with_offsets(turn: Turn, group_id: str) -> list[TopicPartition]:
    """Those that the log has an offset for, then those whose offset is on its way."""
    partitions = dict.fromkeys(turn.durable.offsets.get(group_id, {}))
    for key in map(parse_key, turn.appends.pending_keys(group_id)):
        if isinstance(key, OffsetCommitKey):
            partitions[key.topic, key.partition] = None
    return list(partitions)


def drop_offsets(turn: Turn, group_id: str, partitions: list[TopicPartition], reason: str) -> None:
    after = OffsetsDropped(group_id, len(partitions), reason)
    append_tombstones(turn, group_id, tombstones(group_id, partitions), after)


@dataclass(frozen=True, slots=True)
class OffsetsDropped:
    """Nobody waits for it, and if it fails the next round tries again."""

    group_id: str
    removed: int
    reason: str

    def completed(self, turn: Turn) -> None:
        turn.observe(OffsetsRemoved(self.group_id, self.removed, self.reason))

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.observe(StoreFailed(self.group_id, -1, f"removal of offsets: {self.reason}", error))
