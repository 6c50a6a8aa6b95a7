"""Offsets are removed: by request (OffsetDelete), with their topic, or as expired (docs/semantics §9.6, §9.7).

A group may have offsets of more partitions than fit into one batch of the log, and all of them may go at once: their
tombstones are appended in as many batches as it takes, one in each slice of the step. Unlike a commit this need not
happen whole: what a crash leaves is what an earlier moment left, and goes the next time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
from ottla.coordinator.events import DeleteOffsets, TopicsDeleted
from ottla.coordinator.facts import OffsetsRemoved, StoreFailed
from ottla.coordinator.group_context import Group, GroupContext
from ottla.coordinator.offsets.fetch import has_open_commit, partitions_with_offsets
from ottla.coordinator.records import NO_TIMESTAMP, build_offset_commit_key
from ottla.coordinator.results import DeleteOffsetsResult, PartitionError, group_error
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.step_context import AfterAppend
from ottla.protocol.errors import ErrorCode

BATCH_BYTES: Final = 16 * 1024
"""Some 250 tombstones, which take two milliseconds. `message.max.bytes` is seldom lowered as far."""
PARTITIONS_PER_SLICE: Final = 1024
"""To look at one takes some 2 µs."""
RECORD_OVERHEAD_BYTES: Final = 20
"""Length, timestamp and offset of a record, at most."""


def delete_offsets(context: GroupContext, event: DeleteOffsets) -> None:
    group = context.live_group(event.group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
    if group is None or error is not None:
        assert error is not None, "an unknown group has an error"
        context.reply(event.token, DeleteOffsetsResult(error))
        return
    context.run(_delete_each(context, group, event))


def _delete_each(context: GroupContext, group: Group, event: DeleteOffsets) -> Iterator[None]:
    """A tombstone is written also where no offset is: a coordinator that was deposed, and does not know it yet, may
    lack one that its successor has. It must not say that this is gone; what it appends is never committed."""
    present = set(partitions_with_offsets(context, event.group_id))
    subscribed = group.subscribed_topics(context.durable.metadata.get(event.group_id))
    partitions: list[PartitionError] = []
    deleted: list[TopicPartition] = []
    for topic, indexes in event.topics:
        is_subscribed = subscribed is None or topic in subscribed
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        for index in indexes:
            partitions.append(PartitionError(topic, index, error))
            if not is_subscribed:
                deleted.append((topic, index))
            if not len(partitions) % PARTITIONS_PER_SLICE:
                yield
    result = DeleteOffsetsResult(ErrorCode.NONE, tuple(partitions))
    if deleted:
        after = OffsetsDeleted(event, result, len(present.intersection(deleted)))
        yield from append_tombstones(context, event.group_id, tombstones(event.group_id, deleted), after)
    else:
        context.reply(event.token, result)


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Follows the tombstones of a request."""

    event: DeleteOffsets
    result: DeleteOffsetsResult
    removed: int

    def completed(self, context: GroupContext) -> None:
        if self.removed:
            context.observe(
                OffsetsRemoved(group_id=self.event.group_id, partitions=self.removed, reason="deleted by request")
            )
        context.reply(self.event.token, self.result)

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        context.reply(self.event.token, DeleteOffsetsResult(group_error(error)))


def forget_topics(context: GroupContext, event: TopicsDeleted) -> None:
    """The offsets of deleted topics go, in every group, whatever it is doing."""
    context.run(_forget_in_each(context, frozenset(event.topics)))


def _forget_in_each(context: GroupContext, topics: frozenset[str]) -> Iterator[None]:
    durable = context.durable
    groups = (*durable.offsets, *durable.pending.group_ids(), *context.appends.pending_owners())
    for group_id in dict.fromkeys(groups):
        removed = [partition for partition in partitions_with_offsets(context, group_id) if partition[0] in topics]
        if removed:
            yield from drop_offsets(context, group_id, removed, "topic deleted")


def drop_offsets(context: GroupContext, group_id: str, partitions: list[TopicPartition], reason: str) -> Iterator[None]:
    """Yields after each slice."""
    after = OffsetsDropped(group_id, len(partitions), reason)
    yield from append_tombstones(context, group_id, tombstones(group_id, partitions), after)


@dataclass(frozen=True, slots=True)
class OffsetsDropped:
    """No request waits for it, and if it fails the next round tries again."""

    group_id: str
    removed: int
    reason: str

    def completed(self, context: GroupContext) -> None:
        context.observe(OffsetsRemoved(group_id=self.group_id, partitions=self.removed, reason=self.reason))

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        context.observe(
            StoreFailed(group_id=self.group_id, generation=-1, what=f"removal of offsets: {self.reason}", error=error)
        )


# Expiry


def expired_partitions(context: GroupContext, group: Group) -> list[TopicPartition]:
    """An offset expires `offsets.retention.minutes` after its group stopped using it, or at the moment that an old
    client has given with its commit. It stays as long as something newer for its partition is on its way."""
    offsets = context.durable.offsets.get(group.group_id)
    topics_kept = group.topics_kept()
    if not offsets or topics_kept is None:
        return []
    return [
        (topic, partition)
        for (topic, partition), logged in offsets.items()
        if topic not in topics_kept
        and context.wall_ms >= _expiry_ms(context, group, logged)
        and not has_open_commit(context, group.group_id, topic, partition)
        and not context.durable.pending.has(group.group_id, (topic, partition))
    ]


def _expiry_ms(context: GroupContext, group: Group, logged: LoggedOffset) -> int:
    committed = logged.committed
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return committed.expire_timestamp_ms
    return group.expiry_base_ms(committed.commit_timestamp_ms) + context.config.offsets_retention_ms


# Tombstones


def tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> Iterator[CoordinatorRecord]:
    return (CoordinatorRecord(build_offset_commit_key(group_id, *partition), None) for partition in partitions)


def append_tombstones(
    context: GroupContext, group_id: str, records: Iterable[CoordinatorRecord], after: AfterAppend
) -> Iterator[None]:
    """`after` waits for the last batch; the high watermark passes it after all the others. Yields after each other
    one."""
    batch: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        record_size = len(record.key) + RECORD_OVERHEAD_BYTES
        if batch and size + record_size > BATCH_BYTES:
            context.append(group_id, batch, EarlierTombstones(group_id))
            yield
            batch, size = [], 0
        batch.append(record)
        size += record_size
    context.append(group_id, batch, after)


@dataclass(frozen=True, slots=True)
class EarlierTombstones:
    """Follows tombstones that more of them come after."""

    group_id: str

    def completed(self, context: GroupContext) -> None:
        """No request waits for a part."""

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        context.observe(
            StoreFailed(group_id=self.group_id, generation=-1, what="a part of the removal of offsets", error=error)
        )
