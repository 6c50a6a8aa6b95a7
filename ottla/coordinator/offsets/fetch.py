"""OffsetFetch, and what else is asked about a group's offsets (docs/semantics §9.4).

Always from what the log says, and in every state of the group: no offset is no error. A commit is visible once the log
has it, to all readers at the same time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
from ottla.coordinator.events import FetchOffsets
from ottla.coordinator.group_context import Group, GroupContext
from ottla.coordinator.records import OffsetCommitKey, build_offset_commit_key, parse_key
from ottla.coordinator.results import FetchedOffset, FetchResult
from ottla.protocol.errors import ErrorCode

OFFSETS_PER_SLICE: Final = 512
"""Each takes one or two microseconds."""


def fetch_offsets(context: GroupContext, event: FetchOffsets) -> None:
    context.run(_fetch_each(context, event))


def _fetch_each(context: GroupContext, event: FetchOffsets) -> Iterator[None]:
    stored: Mapping[TopicPartition, LoggedOffset] = context.durable.offsets.get(event.group_id, {})
    requested: Iterable[TopicPartition]
    if event.topics is None:
        requested = list(stored)
    else:
        requested = ((topic, partition) for topic, partitions in event.topics for partition in partitions)
    fetched: list[FetchedOffset] = []
    for number, (topic, partition) in enumerate(requested, 1):
        if event.require_stable and _is_unstable(context, event.group_id, topic, partition):
            fetched.append(FetchedOffset(topic, partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            fetched.append(_fetched(topic, partition, stored.get((topic, partition))))
        if not number % OFFSETS_PER_SLICE:
            yield
    context.reply(event.token, FetchResult(ErrorCode.NONE, tuple(fetched)))


def _fetched(topic: str, partition: int, logged: LoggedOffset | None) -> FetchedOffset:
    if logged is None:
        return FetchedOffset(topic, partition)
    committed = logged.committed
    return FetchedOffset(topic, partition, committed.offset, committed.leader_epoch, committed.metadata)


def _is_unstable(context: GroupContext, group_id: str, topic: str, partition: int) -> bool:
    """Something newer is on its way: an undecided transaction's offset, or a commit that the log does not have yet."""
    return context.durable.pending.has(group_id, (topic, partition)) or has_open_commit(
        context, group_id, topic, partition
    )


def has_open_commit(context: GroupContext, group_id: str, topic: str, partition: int) -> bool:
    """A commit or a tombstone of this offset is on its way into the log."""
    return context.appends.is_pending(build_offset_commit_key(group_id, topic, partition))


def partitions_with_offsets(context: GroupContext, group_id: str) -> list[TopicPartition]:
    """Those that the log has an offset for, those that only transactions have one for, then those whose offset is on
    its way."""
    durable = context.durable
    partitions = dict.fromkeys((*durable.offsets.get(group_id, ()), *durable.pending.partitions_of(group_id)))
    for key in map(parse_key, context.appends.pending_keys(group_id)):
        if isinstance(key, OffsetCommitKey):
            partitions[key.topic, key.partition] = None
    return list(partitions)


def leaves_no_offset(context: GroupContext, group: Group, expired: list[TopicPartition]) -> bool:
    """Whether the group has no offset beside the expired ones, and none on its way."""
    kept = len(context.durable.offsets.get(group.group_id, {})) - len(expired)
    is_pending = context.durable.pending.has_group(group.group_id)
    return not kept and not is_pending and not context.appends.is_owner_pending(group.group_id)
