"""SyncGroup: the leader hands in the assignment, everybody gets their share (docs/semantics §7.3).

The assignment counts once the log has it. The store can complete late: it is applied only to the generation it was made
for, and only while that generation still waits for it (T-9).
"""

from dataclasses import dataclass

from ottla.coordinator import rebalance, sessions
from ottla.coordinator.append_errors import group_error
from ottla.coordinator.events import SyncGroup
from ottla.coordinator.facts import (
    Cause,
    GenerationCompleted,
    MemberAssigned,
    MemberSynced,
    MissingAssignments,
    StoreFailed,
)
from ottla.coordinator.group import Group
from ottla.coordinator.identity import identity_error
from ottla.coordinator.member import Member
from ottla.coordinator.rebalance import Why
from ottla.coordinator.results import SyncResult
from ottla.coordinator.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


def sync_group(turn: Turn, event: SyncGroup) -> None:
    group = turn.groups.get(event.group_id)
    error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _error_in(group, event)
    if event.requires_protocol and not (event.protocol_type and event.protocol_name):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None or error is not None:
        assert error is not None, "an unknown group has an error"
        turn.reply(event.token, SyncResult(error))
        return
    member = group.members[event.member_id]
    if member.member_id in group.pending_sync:
        turn.observe(_member_synced(turn, group, member))
    rebalance.has_synced(turn, group, member)
    if group.state is STABLE:
        sessions.renew(turn, member)
        turn.reply(event.token, assigned(group, member))
        return
    _park(turn, group, member, event.token)
    if member.member_id == group.leader_id:
        _store_assignment(turn, group, dict(event.assignments))


def _member_synced(turn: Turn, group: Group, member: Member) -> MemberSynced:
    return MemberSynced(
        group.group_id,
        group.generation,
        member.member_id,
        member.group_instance_id,
        member.member_id == group.leader_id,
        turn.now_ms - group.generation_started_ms,
    )


def _error_in(group: Group, event: SyncGroup) -> ErrorCode | None:
    """The checks in their order (G14), and the states that refuse (G13)."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = identity_error(group, event.member_id, event.group_instance_id)
    if error is not None:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    type_differs = event.protocol_type is not None and event.protocol_type != group.protocol_type
    name_differs = event.protocol_name is not None and event.protocol_name != group.protocol_name
    if type_differs or name_differs:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else None


def _park(turn: Turn, group: Group, member: Member, token: int) -> None:
    # As with joins, the older request's connection is most likely gone, and a client that is there can go on from this.
    replaced = group.take_sync(member)
    if replaced is not None:
        turn.reply(replaced, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = token


def assigned(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _store_assignment(turn: Turn, group: Group, assignments: dict[str, bytes]) -> None:
    if group.storing_generation == group.generation:
        # The leader repeats itself while its first assignment is on its way. Storing this one too could leave another
        # assignment in the log than the one that members were given (I-12).
        return
    group.storing_generation = group.generation
    missing = tuple(member_id for member_id in group.members if member_id not in assignments)
    if missing:
        turn.observe(MissingAssignments(group.group_id, group.generation, missing))
    after = AssignmentStored(group, group.generation, assignments)
    turn.append(group.group_id, [rebalance.metadata_record(group, assignments)], after)


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    group: Group
    generation: int
    assignments: dict[str, bytes]

    def completed(self, turn: Turn) -> None:
        if self._is_awaited():
            _hand_out(turn, self.group, self.assignments)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        group = self.group
        turn.observe(StoreFailed(group.group_id, self.generation, "the assignment", error))
        if self._is_awaited():
            rebalance.refuse_parked_syncs(turn, group, group_error(error))
            rebalance.rebalance(turn, group, Why(Cause.SYNC_STORE_FAILED, group.leader_id))

    def _is_awaited(self) -> bool:
        return self.group.state is COMPLETING_REBALANCE and self.group.generation == self.generation


def _hand_out(turn: Turn, group: Group, assignments: dict[str, bytes]) -> None:
    turn.transition(group, STABLE, "assignment stored")
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        sync = group.take_sync(member)
        if sync is not None:
            sessions.renew(turn, member)
            turn.reply(sync, assigned(group, member))
        turn.observe(_member_assigned(group, member))
    turn.observe(
        GenerationCompleted(
            group.group_id,
            group.generation,
            group.leader_id or "",
            tuple(group.members),
            turn.now_ms - group.generation_started_ms,
        )
    )


def _member_assigned(group: Group, member: Member) -> MemberAssigned:
    return MemberAssigned(
        group.group_id,
        group.generation,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        group.protocol_type or "",
        member.assignment,
    )
