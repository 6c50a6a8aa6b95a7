"""Groups and offsets that are not needed any more: expiry, DeleteGroups (docs/semantics §9.7, §10.3).

A group that is to go is Dead at once, so that nothing can happen to it while its tombstones are on their way into the
log. If they do not arrive, an Empty group with the same generation takes its place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ottla.coordinator.classic import rebalance
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import DEAD, EMPTY
from ottla.coordinator.durable_state import TopicPartition
from ottla.coordinator.events import DeleteGroup, ExpireOffsets
from ottla.coordinator.facts import Cause, OffsetsRemoved, StoreFailed
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offsets.delete import append_tombstones, drop_offsets, expired_partitions, tombstones
from ottla.coordinator.offsets.fetch import leaves_no_offset, partitions_with_offsets
from ottla.coordinator.records import build_group_metadata_key
from ottla.coordinator.results import DeleteResult, group_error
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.protocol.errors import ErrorCode

EXPIRED = "expired"
OFFSETS_PER_SLICE: Final = 256
"""To remove one takes some 10 µs."""


def expire_offsets(context: GroupContext, event: ExpireOffsets) -> None:  # noqa: ARG001
    """One round over all groups."""
    context.run(_expire_in_each(context))


def _expire_in_each(context: GroupContext) -> Iterator[None]:
    """A group counts as one of its offsets: that many in a slice, or one group."""
    looked_at = 0
    for group in list(context.groups.values()):
        if looked_at >= OFFSETS_PER_SLICE:
            looked_at = 0
            yield
        looked_at += 1 + len(context.durable.offsets.get(group.group_id, ()))
        if group.state is not DEAD:
            yield from _expire_in(context, group)


def _expire_in(context: GroupContext, group: ClassicGroup) -> Iterator[None]:
    expired = expired_partitions(context, group)
    if group.state is EMPTY and not group.pending_members and leaves_no_offset(context, group, expired):
        yield from _remove(context, group, expired, GroupRemoved(group.successor(), EXPIRED, len(expired)))
    elif expired:
        yield from drop_offsets(context, group.group_id, expired, EXPIRED)


def delete_group(context: GroupContext, event: DeleteGroup) -> None:
    group = context.live_group(event.group_id)
    if group is None:
        context.reply(event.token, DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND))
    elif group.state is not EMPTY:
        context.reply(event.token, DeleteResult(ErrorCode.NON_EMPTY_GROUP))
    else:
        partitions = partitions_with_offsets(context, group.group_id)
        after = GroupRemoved(group.successor(), "deleted by request", len(partitions), event.token)
        context.run(_remove(context, group, partitions, after))


def _remove(
    context: GroupContext, group: ClassicGroup, partitions: list[TopicPartition], after: "GroupRemoved"
) -> Iterator[None]:
    """Yields after each slice."""
    for member_id in list(group.pending_members):
        rebalance.drop_pending_member(context, group, member_id, Cause.GROUP_REMOVED)
    context.transition(group, DEAD, after.reason)
    records = tombstones(group.group_id, partitions)
    has_metadata = group.generation > 0 or group.group_id in context.durable.metadata
    if has_metadata:
        records = chain(records, [CoordinatorRecord(build_group_metadata_key(group.group_id), None)])
    if partitions or has_metadata:
        yield from append_tombstones(context, group.group_id, records, after)
    else:
        after.completed(context)


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """Follows the tombstones of a group."""

    successor: ClassicGroup
    """Takes the group's place if the tombstones fail."""
    reason: str
    offsets: int
    token: int | None = None

    def completed(self, context: GroupContext) -> None:
        group_id = self.successor.group_id
        context.remove(group_id)
        context.create_from_log(group_id)
        if self.offsets:
            context.observe(OffsetsRemoved(group_id=group_id, partitions=self.offsets, reason=self.reason))
        self._answer(context, ErrorCode.NONE)

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        group = self.successor
        context.groups[group.group_id] = group
        context.observe(
            StoreFailed(group_id=group.group_id, generation=group.generation, what="the end of the group", error=error)
        )
        self._answer(context, group_error(error))

    def _answer(self, context: GroupContext, error: ErrorCode) -> None:
        if self.token is not None:
            context.reply(self.token, DeleteResult(error))
