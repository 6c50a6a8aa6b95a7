"""A rebalance: how it starts, how long members are waited for, and how the next generation begins (§6.4, §8.2-§8.5).

There are two kinds of wait. From an Empty group, a fixed delay that new members prolong and that never ends early, so
that a fleet that starts together gets one generation. From a running group, until everybody has joined again, at most
for the largest rebalance timeout.
"""

from dataclasses import dataclass

from ottla.coordinator import sessions
from ottla.coordinator.effects import CoordinatorRecord
from ottla.coordinator.events import JoinPhaseTimer, PendingMemberTimer, PendingSyncTimer
from ottla.coordinator.facts import (
    Cause,
    GenerationStarted,
    JoinPhaseExtended,
    PendingMemberDropped,
    RebalanceStarted,
    StoreFailed,
)
from ottla.coordinator.group import Group, JoinPhase
from ottla.coordinator.member import Member
from ottla.coordinator.records import build_group_metadata_key, build_group_metadata_value
from ottla.coordinator.results import JoinedMember, JoinResult, SyncResult
from ottla.coordinator.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Why:
    """What made a rebalance necessary, for those who will ask."""

    cause: Cause
    member_id: str | None = None
    client_reason: str | None = None


def rebalance(turn: Turn, group: Group, why: Why) -> None:
    """The membership has changed: start a rebalance, or see whether the one that runs can now end its join phase."""
    if group.state is not PREPARING_REBALANCE:
        _start(turn, group, why)
    end_join_phase_if_complete(turn, group)


def _start(turn: Turn, group: Group, why: Why) -> None:
    if group.state is COMPLETING_REBALANCE:
        refuse_parked_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    stop_waiting_for_syncs(turn, group)
    phase = group.join_phase = _initial_phase(turn, group) if group.state is EMPTY else _later_phase(turn, group)
    turn.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms)
    turn.transition(group, PREPARING_REBALANCE, why.cause)
    turn.observe(
        RebalanceStarted(
            group.group_id,
            group.generation,
            why.cause,
            why.member_id,
            why.client_reason,
            len(group.members),
            phase.deadline_ms,
        )
    )


def _initial_phase(turn: Turn, group: Group) -> JoinPhase:
    delay_ms = turn.config.group_initial_rebalance_delay_ms
    return JoinPhase(
        started_ms=turn.now_ms,
        deadline_ms=turn.now_ms + delay_ms,
        is_initial=True,
        wait_ms=delay_ms,
        remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0),
    )


def _later_phase(turn: Turn, group: Group) -> JoinPhase:
    return JoinPhase(started_ms=turn.now_ms, deadline_ms=turn.now_ms + group.rebalance_timeout_ms, is_initial=False)


def refuse_parked_syncs(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Forget this generation's assignments; whoever waits for one gets the error."""
    for member in group.members.values():
        member.assignment = b""
        sync = group.take_sync(member)
        if sync is not None:
            turn.reply(sync, SyncResult(error))


# Pending syncs


def wait_for_syncs(turn: Turn, group: Group) -> None:
    """Give every member one rebalance timeout to sync: else one that only heartbeats holds partitions nobody reads."""
    group.pending_sync = dict.fromkeys(group.members)
    group.pending_sync_deadline_ms = turn.now_ms + group.rebalance_timeout_ms
    turn.set_timer(PendingSyncTimer(group.group_id), group.pending_sync_deadline_ms)


def has_synced(turn: Turn, group: Group, member: Member) -> None:
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        stop_waiting_for_syncs(turn, group)


def stop_waiting_for_syncs(turn: Turn, group: Group) -> None:
    group.pending_sync.clear()
    if group.pending_sync_deadline_ms is not None:
        group.pending_sync_deadline_ms = None
        turn.cancel_timer(PendingSyncTimer(group.group_id))


def pending_sync_timer_fired(turn: Turn, group: Group) -> None:
    deadline_ms = group.pending_sync_deadline_ms
    if deadline_ms is None:
        return
    if turn.now_ms < deadline_ms:
        turn.set_timer(PendingSyncTimer(group.group_id), deadline_ms)
        return
    late = [group.members[member_id] for member_id in group.pending_sync]
    group.pending_sync_deadline_ms = None
    for member in late:
        sessions.drop_member(turn, group, member, Cause.PENDING_SYNC_EXPIRED)
    rebalance(turn, group, Why(Cause.PENDING_SYNC_EXPIRED, late[0].member_id))


# Pending members


def forget_pending_member(turn: Turn, group: Group, member_id: str) -> None:
    del group.pending_members[member_id]
    turn.cancel_timer(PendingMemberTimer(group.group_id, member_id))


def drop_pending_member(turn: Turn, group: Group, member_id: str, cause: Cause) -> None:
    """It will not join: nobody need wait for it. To see whether the join phase can now end is up to the caller."""
    forget_pending_member(turn, group, member_id)
    turn.observe(PendingMemberDropped(group.group_id, group.generation, member_id, cause))


# The end of a join phase


def join_phase_timer_fired(turn: Turn, group: Group) -> None:
    phase = group.join_phase
    if phase is None:
        return
    if turn.now_ms < phase.deadline_ms:
        turn.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms)
    elif phase.is_initial and phase.new_member_added and phase.remaining_ms > 0:
        _wait_again(turn, group, phase)
    else:
        _end_join_phase(turn, group, phase)


def _wait_again(turn: Turn, group: Group, phase: JoinPhase) -> None:
    elapsed_ms = phase.wait_ms
    phase.wait_ms = min(turn.config.group_initial_rebalance_delay_ms, phase.remaining_ms)
    phase.remaining_ms = max(phase.remaining_ms - elapsed_ms, 0)
    phase.new_member_added = False
    _extend(turn, group, phase, phase.wait_ms, "more members joined")


def _extend(turn: Turn, group: Group, phase: JoinPhase, wait_ms: int, reason: str) -> None:
    phase.deadline_ms = turn.now_ms + wait_ms
    turn.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms)
    turn.observe(JoinPhaseExtended(group.group_id, group.generation, phase.deadline_ms, reason))


def end_join_phase_if_complete(turn: Turn, group: Group) -> None:
    phase = group.join_phase
    if phase is not None and not phase.is_initial and group.everybody_joined:
        turn.cancel_timer(JoinPhaseTimer(group.group_id))
        _end_join_phase(turn, group, phase)


def _end_join_phase(turn: Turn, group: Group, phase: JoinPhase) -> None:
    late = [member for member in group.members.values() if member.parked_join is None and not member.is_static]
    for member in late:
        sessions.drop_member(turn, group, member, Cause.NOT_REJOINED)
    if group.members and not group.parked_joins:
        # Only static members are left and none has come back: their sessions will drain the group.
        phase.is_initial = False
        _extend(turn, group, phase, group.rebalance_timeout_ms, "no static member has rejoined yet")
        return
    group.join_phase = None
    group.generation += 1
    if group.members:
        _start_generation(turn, group, phase)
    else:
        _become_empty(turn, group)


def _start_generation(turn: Turn, group: Group, phase: JoinPhase) -> None:
    assert group.leader_id is not None, "members, but no leader"
    if group.members[group.leader_id].parked_join is None:
        group.leader_id = next(key for key, member in group.members.items() if member.parked_join is not None)
    group.protocol_name = group.choose_protocol()
    group.generation_started_ms = turn.now_ms
    turn.transition(group, COMPLETING_REBALANCE, "join phase ended")
    turn.observe(
        GenerationStarted(
            group.group_id,
            group.generation,
            group.protocol_name,
            group.leader_id,
            tuple(group.members),
            turn.now_ms - phase.started_ms,
        )
    )
    for member in group.members.values():
        join = group.take_join(member)
        if join is not None:
            turn.reply(join, joined(group, member))
        member.is_new = False
        sessions.renew(turn, member)
    wait_for_syncs(turn, group)


def joined(group: Group, member: Member) -> JoinResult:
    """The answer to a join of the current generation; only the leader learns who else is there."""
    is_leader = member.member_id == group.leader_id
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        members=members_to_assign(group) if is_leader else (),
    )


def members_to_assign(group: Group) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata_for(group.protocol_name))
        for member in group.members.values()
    )


def _become_empty(turn: Turn, group: Group) -> None:
    group.protocol_name = None
    turn.transition(group, EMPTY, "no members left")
    turn.append(group.group_id, [metadata_record(group)], EmptyGroupStored(group))


def metadata_record(group: Group, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
    value = build_group_metadata_value(group.metadata(assignments))
    return CoordinatorRecord(build_group_metadata_key(group.group_id), value)


@dataclass(frozen=True, slots=True)
class EmptyGroupStored:
    """Nobody waits for it. Without it, a restart finds the members of the last generation, and times them out."""

    group: Group

    def completed(self, turn: Turn) -> None:
        pass

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        turn.observe(StoreFailed(self.group.group_id, self.group.generation, "the empty group", error))
