"""A partition's groups when this broker is elected as its leader, and when it resigns (docs/semantics §4.4, §4.5)."""

from collections.abc import Iterator

from ottla.coordinator.classic import rebalance, sessions
from ottla.coordinator.classic.causes import JoinPhaseTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import restore_member
from ottla.coordinator.classic.rebalance import Why
from ottla.coordinator.classic.states import DEAD, EMPTY, STABLE
from ottla.coordinator.facts import Cause, GroupLoaded, RecordsSkipped
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.records import GroupMetadata
from ottla.protocol.errors import ErrorCode


def on_elected(context: GroupContext) -> Iterator[None]:
    """Make the groups of what the log says, and yield after every few groups and members.

    Every session starts again: members could not heartbeat here until now."""
    for reason, skipped in context.durable.skipped.items():
        context.observe(
            RecordsSkipped(reason=reason, count=skipped.records, first_record_offset=skipped.first_record_offset)
        )
    done = 0
    over_size: list[ClassicGroup] = []
    for group_id in context.durable.group_ids():
        group = context.groups[group_id] = _restore(group_id, context.durable.metadata.get(group_id))
        offsets = len(context.durable.offsets.get(group_id, {}))
        context.observe(
            GroupLoaded(
                group_id=group_id,
                generation=group.generation,
                state=group.state,
                members=len(group.members),
                offsets=offsets,
            )
        )
        for member in group.members.values():
            sessions.renew(context, member)
            done += 1
            if not done % context.members_per_slice:
                yield
        if len(group.members) > context.config.group_max_size:
            over_size.append(group)
        done += 1
        if not done % context.members_per_slice:
            yield
    # What this sets off comes back as events, and those are taken when all groups are there.
    for group in over_size:
        rebalance.rebalance(context, group, Why(Cause.GROUP_OVER_SIZE))


def _restore(group_id: str, metadata: GroupMetadata | None) -> ClassicGroup:
    """With members the group is Stable, without Empty; offsets alone make a simple group."""
    if metadata is None:
        return ClassicGroup(group_id)
    group = ClassicGroup(group_id, STABLE if metadata.members else EMPTY)
    for stored in metadata.members:
        group.add(restore_member(group_id, metadata.protocol_name, stored), metadata.protocol_type)
    group.protocol_type = metadata.protocol_type or None
    group.protocol_name = metadata.protocol_name
    group.generation = metadata.generation
    group.state_timestamp_ms = metadata.state_timestamp_ms
    if metadata.leader_id in group.members:
        group.leader_id = metadata.leader_id
    return group


def on_resigned(context: GroupContext) -> None:
    """Every group is Dead, every waiting request is sent to look for the new coordinator, every timer is cancelled."""
    for group in context.groups.values():
        _unload(context, group)


def _unload(context: GroupContext, group: ClassicGroup) -> None:
    for member in list(group.members.values()):
        sessions.answer_parked(context, group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
        sessions.disarm(context, member)
        group.remove(member)
    for member_id in list(group.pending_members):
        rebalance.forget_pending_member(context, group, member_id)
    rebalance.stop_waiting_for_syncs(context, group)
    if group.join_phase is not None:
        group.join_phase = None
        context.cancel_timer(JoinPhaseTimer(group.group_id))
    context.transition(group, DEAD, "coordinator moved")
