"""SyncGroup: the leader hands in the assignment, every member gets its share (docs/semantics §7.3).

The assignment counts once the log has it. The store can complete late: it is applied only to the generation it was made
for, and only while that generation still waits for it (T-9).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.coordinator.classic import rebalance, sessions
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.classic.rebalance import Why
from ottla.coordinator.classic.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from ottla.coordinator.events import SyncGroup
from ottla.coordinator.facts import (
    Cause,
    GenerationCompleted,
    MemberAssigned,
    MemberSynced,
    MissingAssignments,
    StoreFailed,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import SyncResult, group_error
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import Buffer


def sync_group(context: GroupContext, event: SyncGroup) -> None:
    group = context.groups.get(event.group_id)
    error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _error_in(group, event)
    if event.requires_protocol and None in (event.protocol_type, event.protocol_name):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None or error is not None:
        assert error is not None, "an unknown group has an error"
        context.reply(event.token, SyncResult(error))
        return
    member = group.members[event.member_id]
    if member.member_id in group.pending_sync:
        context.observe(
            MemberSynced(
                group_id=group.group_id,
                generation=group.generation,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                is_leader=member.member_id == group.leader_id,
                sync_phase_ms=context.now_ms - group.generation_started_ms,
            )
        )
    rebalance.has_synced(context, group, member)
    if group.state is STABLE:
        sessions.renew(context, member)
        context.reply(event.token, assigned(group, member))
        return
    _park(context, group, member, event.token)
    if member.member_id == group.leader_id:
        _store_assignment(context, group, dict(event.assignments))


def _error_in(group: ClassicGroup, event: SyncGroup) -> ErrorCode | None:
    """The checks in their order (G14), and the states that refuse (G13)."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.identity_error(event.member_id, event.group_instance_id)
    if error is not None:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    type_differs = event.protocol_type is not None and event.protocol_type != group.protocol_type
    name_differs = event.protocol_name is not None and event.protocol_name != group.protocol_name
    if type_differs or name_differs:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else None


def _park(context: GroupContext, group: ClassicGroup, member: Member, token: int) -> None:
    # As with joins, the older request's connection is most likely gone, and a client that is there can go on from this.
    replaced = group.take_sync(member)
    if replaced is not None:
        context.reply(replaced, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = token


def assigned(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _store_assignment(context: GroupContext, group: ClassicGroup, assignments: dict[str, Buffer]) -> None:
    if group.storing_generation == group.generation:
        # The leader repeats itself while its first assignment is on its way. Storing this one too could leave another
        # assignment in the log than the one that members were given (I-12).
        return
    group.storing_generation = group.generation
    context.run(_store(context, group, assignments))


def _store(context: GroupContext, group: ClassicGroup, assignments: dict[str, Buffer]) -> Iterator[None]:
    missing = tuple(member_id for member_id in group.members if member_id not in assignments)
    if missing:
        context.observe(MissingAssignments(group_id=group.group_id, generation=group.generation, member_ids=missing))
    stored = AssignmentStored(group, group.generation, assignments)
    yield from rebalance.append_metadata(context, group, stored, assignments)


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """Follows the record of a generation's assignment."""

    group: ClassicGroup
    generation: int
    assignments: dict[str, Buffer]

    def completed(self, context: GroupContext) -> None:
        if self._is_awaited():
            context.run(_hand_out(context, self.group, self.assignments))

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        group = self.group
        context.observe(
            StoreFailed(group_id=group.group_id, generation=self.generation, what="the assignment", error=error)
        )
        if self._is_awaited():
            context.run(_begin_again(context, group, group_error(error)))

    def _is_awaited(self) -> bool:
        return self.group.state is COMPLETING_REBALANCE and self.group.generation == self.generation


def _begin_again(context: GroupContext, group: ClassicGroup, error: ErrorCode) -> Iterator[None]:
    yield from rebalance.refuse_parked_syncs(context, group, error)
    rebalance.rebalance(context, group, Why(Cause.SYNC_STORE_FAILED, group.leader_id))


def _hand_out(context: GroupContext, group: ClassicGroup, assignments: dict[str, Buffer]) -> Iterator[None]:
    if len(group.members) > context.members_per_slice:
        # To replay what was stored has taken as long as a slice.
        yield
    context.transition(group, STABLE, "assignment stored")
    for number, member in enumerate(group.members.values(), 1):
        member.assignment = bytes(assignments.get(member.member_id, b""))
        sync = group.take_sync(member)
        if sync is not None:
            sessions.renew(context, member)
            context.reply(sync, assigned(group, member))
        context.observe(
            MemberAssigned(
                group_id=group.group_id,
                generation=group.generation,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                protocol_type=group.protocol_type or "",
                assignment=member.assignment,
            )
        )
        if not number % context.members_per_slice:
            yield
    context.observe(
        GenerationCompleted(
            group_id=group.group_id,
            generation=group.generation,
            leader_id=group.leader_id or "",
            member_ids=tuple(group.members),
            sync_phase_ms=context.now_ms - group.generation_started_ms,
        )
    )
