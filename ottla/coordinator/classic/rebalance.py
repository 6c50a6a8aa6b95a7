"""A rebalance: how it starts, how long members are waited for, and how the next generation begins (§6.4, §8.2-§8.5).

There are two kinds of wait. From an Empty group, a fixed delay that new members prolong and that never ends early, so
that a fleet that starts together gets one generation. From a running group, until all have joined again, at most for
the largest rebalance timeout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla.coordinator.classic import sessions
from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingMemberTimer, PendingSyncTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE, JoinPhase
from ottla.coordinator.events import RequestRebalance
from ottla.coordinator.facts import (
    Cause,
    GenerationStarted,
    JoinPhaseExtended,
    PendingMemberDropped,
    RebalanceStarted,
    StoreFailed,
)
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.records import (
    build_group_metadata_key,
    build_group_metadata_value,
    build_large_group_metadata_value,
)
from ottla.coordinator.results import JoinedMember, JoinResult, SyncResult
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.step_context import AfterAppend
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import Buffer
from ottla.timer.clock import TimerKind


@dataclass(frozen=True, slots=True)
class Why:
    """What made a rebalance necessary."""

    cause: Cause
    member_id: str | None = None
    client_reason: str | None = None


def rebalance(context: GroupContext, group: ClassicGroup, why: Why) -> None:
    """The membership has changed: start a rebalance, or see whether the one that runs can now end its join phase."""
    if group.state is not PREPARING_REBALANCE:
        _start(context, group, why)
    end_join_phase_if_complete(context, group)


def rebalance_as_requested(context: GroupContext, event: RequestRebalance) -> None:
    """Of a group without members nothing comes."""
    group = context.groups.get(event.group_id)
    if group is not None and group.state in (COMPLETING_REBALANCE, STABLE):
        rebalance(context, group, Why(Cause.REQUESTED))


def _start(context: GroupContext, group: ClassicGroup, why: Why) -> None:
    if group.state is COMPLETING_REBALANCE:
        for _ in refuse_parked_syncs(context, group, ErrorCode.REBALANCE_IN_PROGRESS):
            pass
    stop_waiting_for_syncs(context, group)
    phase = group.join_phase = _initial_phase(context, group) if group.state is EMPTY else _later_phase(context, group)
    context.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms, TimerKind.JOIN)
    context.transition(group, PREPARING_REBALANCE, why.cause)
    context.observe(
        RebalanceStarted(
            group_id=group.group_id,
            generation=group.generation,
            cause=why.cause,
            member_id=why.member_id,
            client_reason=why.client_reason,
            members=len(group.members),
            join_deadline_ms=phase.deadline_ms,
        )
    )


def _initial_phase(context: GroupContext, group: ClassicGroup) -> JoinPhase:
    delay_ms = context.config.group_initial_rebalance_delay_ms
    return JoinPhase(
        started_ms=context.now_ms,
        deadline_ms=context.now_ms + delay_ms,
        is_initial=True,
        wait_ms=delay_ms,
        remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0),
    )


def _later_phase(context: GroupContext, group: ClassicGroup) -> JoinPhase:
    return JoinPhase(
        started_ms=context.now_ms, deadline_ms=context.now_ms + group.rebalance_timeout_ms, is_initial=False
    )


def refuse_parked_syncs(context: GroupContext, group: ClassicGroup, error: ErrorCode) -> Iterator[None]:
    """Forget this generation's assignments; members that wait for one get the error. Yields after each slice."""
    for number, member in enumerate(group.members.values(), 1):
        member.assignment = b""
        sync = group.take_sync(member)
        if sync is not None:
            context.reply(sync, SyncResult(error))
        if not number % context.members_per_slice:
            yield


# Pending syncs


def wait_for_syncs(context: GroupContext, group: ClassicGroup) -> None:
    """Give every member one rebalance timeout to sync: else one that only heartbeats blocks the partitions it holds."""
    group.pending_sync = dict.fromkeys(group.members)
    group.pending_sync_deadline_ms = context.now_ms + group.rebalance_timeout_ms
    context.set_timer(PendingSyncTimer(group.group_id), group.pending_sync_deadline_ms, TimerKind.SYNC)


def has_synced(context: GroupContext, group: ClassicGroup, member: Member) -> None:
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        stop_waiting_for_syncs(context, group)


def stop_waiting_for_syncs(context: GroupContext, group: ClassicGroup) -> None:
    group.pending_sync.clear()
    if group.pending_sync_deadline_ms is not None:
        group.pending_sync_deadline_ms = None
        context.cancel_timer(PendingSyncTimer(group.group_id))


def pending_sync_timer_fired(context: GroupContext, group: ClassicGroup) -> None:
    deadline_ms = group.pending_sync_deadline_ms
    if deadline_ms is None:
        return
    if context.now_ms < deadline_ms:
        context.set_timer(PendingSyncTimer(group.group_id), deadline_ms, TimerKind.SYNC)
        return
    late = [group.members[member_id] for member_id in group.pending_sync]
    group.pending_sync_deadline_ms = None
    context.run(_drop_those_that_never_synced(context, group, late))


def _drop_those_that_never_synced(context: GroupContext, group: ClassicGroup, late: list[Member]) -> Iterator[None]:
    yield from _drop(context, group, late, Cause.PENDING_SYNC_EXPIRED)
    rebalance(context, group, Why(Cause.PENDING_SYNC_EXPIRED, late[0].member_id))


def _drop(context: GroupContext, group: ClassicGroup, members: list[Member], cause: Cause) -> Iterator[None]:
    for number, member in enumerate(members, 1):
        sessions.drop_member(context, group, member, cause)
        if not number % context.members_per_slice:
            yield


# Pending members


def forget_pending_member(context: GroupContext, group: ClassicGroup, member_id: str) -> None:
    del group.pending_members[member_id]
    context.pending_members.discard((group.group_id, member_id))
    context.cancel_timer(PendingMemberTimer(group.group_id, member_id))


def drop_pending_member(context: GroupContext, group: ClassicGroup, member_id: str, cause: Cause) -> None:
    """It will not join. To see whether the join phase, which waited for it, can now end is up to the caller."""
    forget_pending_member(context, group, member_id)
    context.observe(
        PendingMemberDropped(group_id=group.group_id, generation=group.generation, member_id=member_id, cause=cause)
    )
    context.note_if_traceless(group)


# The end of a join phase


def join_phase_timer_fired(context: GroupContext, group: ClassicGroup) -> None:
    phase = group.join_phase
    if phase is None:
        return
    if context.now_ms < phase.deadline_ms:
        context.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms, TimerKind.JOIN)
    elif phase.is_initial and phase.new_member_added and phase.remaining_ms > 0:
        _wait_again(context, group, phase)
    else:
        context.run(_end_join_phase(context, group, phase))


def _wait_again(context: GroupContext, group: ClassicGroup, phase: JoinPhase) -> None:
    elapsed_ms = phase.wait_ms
    phase.wait_ms = min(context.config.group_initial_rebalance_delay_ms, phase.remaining_ms)
    phase.remaining_ms = max(phase.remaining_ms - elapsed_ms, 0)
    phase.new_member_added = False
    _extend(context, group, phase, phase.wait_ms, "more members joined")


def _extend(context: GroupContext, group: ClassicGroup, phase: JoinPhase, wait_ms: int, reason: str) -> None:
    phase.deadline_ms = context.now_ms + wait_ms
    context.set_timer(JoinPhaseTimer(group.group_id), phase.deadline_ms, TimerKind.JOIN)
    context.observe(
        JoinPhaseExtended(
            group_id=group.group_id, generation=group.generation, join_deadline_ms=phase.deadline_ms, reason=reason
        )
    )


def end_join_phase_if_complete(context: GroupContext, group: ClassicGroup) -> None:
    phase = group.join_phase
    if phase is not None and not phase.is_initial and group.all_joined:
        context.cancel_timer(JoinPhaseTimer(group.group_id))
        context.run(_end_join_phase(context, group, phase))


def _end_join_phase(context: GroupContext, group: ClassicGroup, phase: JoinPhase) -> Iterator[None]:
    late = [member for member in group.members.values() if member.parked_join is None and not member.is_static]
    if late:
        yield from _drop(context, group, late, Cause.NOT_REJOINED)
    if group.members and not group.parked_joins:
        # Only static members are left and none has come back: their sessions will drain the group.
        phase.is_initial = False
        _extend(context, group, phase, group.rebalance_timeout_ms, "no static member has rejoined yet")
        return
    group.join_phase = None
    group.generation = max(group.generation, context.generation_floor) + 1
    if group.members:
        yield from _start_generation(context, group, phase)
    else:
        yield from _become_empty(context, group)


def _start_generation(context: GroupContext, group: ClassicGroup, phase: JoinPhase) -> Iterator[None]:
    assert group.leader_id is not None, "members, but no leader"
    if group.members[group.leader_id].parked_join is None:
        group.leader_id = next(key for key, member in group.members.items() if member.parked_join is not None)
    group.protocol_name = group.choose_protocol()
    group.generation_started_ms = context.now_ms
    context.transition(group, COMPLETING_REBALANCE, "join phase ended")
    context.observe(
        GenerationStarted(
            group_id=group.group_id,
            generation=group.generation,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
            member_ids=tuple(group.members),
            join_phase_ms=context.now_ms - phase.started_ms,
        )
    )
    if len(group.members) > context.members_per_slice:
        # To look at the protocols of all has taken as long as a slice.
        yield
    for number, member in enumerate(group.members.values(), 1):
        join = group.take_join(member)
        if join is not None:
            context.reply(join, joined(group, member))
        member.is_new = False
        sessions.renew(context, member)
        if not number % context.members_per_slice:
            yield
    wait_for_syncs(context, group)


def joined(group: ClassicGroup, member: Member) -> JoinResult:
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


def members_to_assign(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata_for(group.protocol_name))
        for member in group.members.values()
    )


def _become_empty(context: GroupContext, group: ClassicGroup) -> Iterator[None]:
    group.protocol_name = None
    context.transition(group, EMPTY, "no members left")
    yield from append_metadata(context, group, EmptyGroupStored(group))


def append_metadata(
    context: GroupContext, group: ClassicGroup, after: AfterAppend, assignments: Mapping[str, Buffer] | None = None
) -> Iterator[None]:
    """Appends what the log should say about the group; `assignments` stand in for those that members hold.

    That of a large group is built in slices. What the log would refuse for its size is not built to its end."""
    value: bytes | None
    if len(group.members) <= context.members_per_slice:
        value = build_group_metadata_value(group.metadata(assignments))
    else:
        value = yield from build_large_group_metadata_value(
            group.metadata_without_members(),
            group.stored_members(assignments),
            members_at_once=context.members_per_slice,
            bytes_max=context.batch_bytes_max(),
        )
    if value is None:
        after.failed(context, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        record = CoordinatorRecord(build_group_metadata_key(group.group_id), value)
        context.append(group.group_id, [record], after)


@dataclass(frozen=True, slots=True)
class EmptyGroupStored:
    """No request waits for it. Without it, a restart finds the members of the last generation, and times them out."""

    group: ClassicGroup

    def completed(self, context: GroupContext) -> None:
        pass

    def failed(self, context: GroupContext, error: ErrorCode) -> None:
        context.observe(
            StoreFailed(
                group_id=self.group.group_id, generation=self.group.generation, what="the empty group", error=error
            )
        )
