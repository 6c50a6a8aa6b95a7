"""What nobody needs any more: offsets that have expired, groups that are empty (docs/semantics §9.7, §10.3).

A group that is to go is Dead at once, so that nothing can happen to it while its tombstones are on their way into the
log. If they do not arrive, an Empty group with the same generation takes its place.
"""

from dataclasses import dataclass

from ottla.coordinator import rebalance
from ottla.coordinator.append_errors import group_error
from ottla.coordinator.durable import LoggedOffset, TopicPartition
from ottla.coordinator.effects import CoordinatorRecord
from ottla.coordinator.events import DeleteGroup
from ottla.coordinator.facts import Cause, OffsetsRemoved, StoreFailed
from ottla.coordinator.group import Group
from ottla.coordinator.offsets import drop_offsets, partitions_with_offsets
from ottla.coordinator.records import NO_TIMESTAMP, build_group_metadata_key, build_offset_commit_key
from ottla.coordinator.results import DeleteResult
from ottla.coordinator.states import DEAD, EMPTY, STABLE
from ottla.coordinator.subscriptions import consumes, subscribed_topics
from ottla.coordinator.tombstones import append_tombstones, tombstones
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode

EXPIRED = "expired"


def expire_offsets(turn: Turn) -> None:
    """One round over all groups."""
    for group in list(turn.groups.values()):
        if group.state is not DEAD:
            _expire_in(turn, group)


def _expire_in(turn: Turn, group: Group) -> None:
    expired = _expired_partitions(turn, group)
    if group.state is EMPTY and not group.pending_members and _leaves_nothing(turn, group, expired):
        _bury(turn, group, expired, GroupGone(group.successor(), EXPIRED, len(expired)))
    elif expired:
        drop_offsets(turn, group.group_id, expired, EXPIRED)


def _leaves_nothing(turn: Turn, group: Group, expired: list[TopicPartition]) -> bool:
    kept = len(turn.durable.offsets.get(group.group_id, {})) - len(expired)
    undecided = turn.durable.has_undecided_offsets(group.group_id)
    return not kept and not undecided and not turn.appends.is_group_pending(group.group_id)


def _expired_partitions(turn: Turn, group: Group) -> list[TopicPartition]:
    """Those without a newer commit on its way."""
    offsets = turn.durable.offsets.get(group.group_id)
    if not offsets or not _may_expire(group):
        return []
    topics_in_use = subscribed_topics(group) if group.state is STABLE else frozenset[str]()
    if topics_in_use is None:
        return []
    return [
        (topic, partition)
        for (topic, partition), logged in offsets.items()
        if topic not in topics_in_use
        and turn.wall_ms >= _expiry_ms(turn, group, logged)
        and not turn.appends.is_pending(build_offset_commit_key(group.group_id, topic, partition))
        and not turn.durable.has_undecided_offsets(group.group_id, (topic, partition))
    ]


def _may_expire(group: Group) -> bool:
    """In an Empty or simple group everything may; in a consuming one that is Stable, what it no longer reads."""
    return group.state is EMPTY or (group.state is STABLE and consumes(group))


def _expiry_ms(turn: Turn, group: Group, logged: LoggedOffset) -> int:
    committed = logged.committed
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return committed.expire_timestamp_ms
    # A group that was used has the whole retention from when it became empty; a simple one is never anything else.
    was_used = group.state is EMPTY and group.protocol_type is not None and group.state_timestamp_ms != NO_TIMESTAMP
    base_ms = group.state_timestamp_ms if was_used else committed.commit_timestamp_ms
    return base_ms + turn.config.offsets_retention_ms


# The end of a group


def delete_group(turn: Turn, event: DeleteGroup) -> None:
    group = turn.live_group(event.group_id)
    if group is None:
        turn.reply(event.token, DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND))
    elif group.state is not EMPTY:
        turn.reply(event.token, DeleteResult(ErrorCode.NON_EMPTY_GROUP))
    else:
        partitions = partitions_with_offsets(turn, group.group_id)
        _bury(turn, group, partitions, GroupGone(group.successor(), "deleted by request", len(partitions), event.token))


def _bury(turn: Turn, group: Group, partitions: list[TopicPartition], after: "GroupGone") -> None:
    for member_id in list(group.pending_members):
        rebalance.drop_pending_member(turn, group, member_id, Cause.GROUP_REMOVED)
    turn.transition(group, DEAD, after.reason)
    records = tombstones(group.group_id, partitions)
    if group.generation > 0 or group.group_id in turn.durable.metadata:
        records.append(CoordinatorRecord(build_group_metadata_key(group.group_id), None))
    if records:
        append_tombstones(turn, group.group_id, records, after)
    else:
        after.completed(turn)


@dataclass(frozen=True, slots=True)
class GroupGone:
    successor: Group
    """Takes the group's place if the tombstones fail."""
    reason: str
    offsets: int
    token: int | None = None

    def completed(self, turn: Turn) -> None:
        group_id = self.successor.group_id
        del turn.groups[group_id]
        turn.take_up_if_known(group_id)
        if self.offsets:
            turn.observe(OffsetsRemoved(group_id, self.offsets, self.reason))
        self._answer(turn, ErrorCode.NONE)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        group = self.successor
        turn.groups[group.group_id] = group
        turn.observe(StoreFailed(group.group_id, group.generation, "the end of the group", error))
        self._answer(turn, group_error(error))

    def _answer(self, turn: Turn, error: ErrorCode) -> None:
        if self.token is not None:
            turn.reply(self.token, DeleteResult(error))
