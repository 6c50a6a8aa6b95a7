"""JoinGroup: which members may join, and which have to wait (docs/semantics §7.1).

A join that waits is parked with its member and answered when the join phase ends. A second join of the same member
takes its place, and the older one is answered REBALANCE_IN_PROGRESS. Its connection is most likely gone; a client that
is still there joins again under the id it has, whereas UNKNOWN_MEMBER_ID would make it come back under another id and
leave a ghost behind.
"""

from ottla.coordinator.classic import rebalance, sessions
from ottla.coordinator.classic.causes import PendingMemberTimer, SessionTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.classic.rebalance import Why
from ottla.coordinator.classic.states import DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.coordinator.classic.static_members import replace_static_member
from ottla.coordinator.events import JoinGroup
from ottla.coordinator.facts import Cause, MemberIdHandedOut, MemberJoined, MemberRejoined
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.results import NO_MEMBER_ID, JoinResult
from ottla.protocol.errors import ErrorCode
from ottla.timer.clock import TimerKind


def join_group(context: GroupContext, event: JoinGroup) -> None:
    shortest, longest = context.config.group_min_session_timeout_ms, context.config.group_max_session_timeout_ms
    if not shortest <= event.session_timeout_ms <= longest:
        refuse(context, event, ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)
        return
    group = context.groups.get(event.group_id)
    if group is None:
        if event.member_id:
            refuse(context, event, ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            return
        group = ClassicGroup(event.group_id)
    if not _has_room_for(context, group, event):
        _turn_away(context, group, event)
    elif group.state is DEAD:
        refuse(context, event, ErrorCode.COORDINATOR_NOT_AVAILABLE, event.member_id)
    elif not group.supports(event.protocol_type, event.protocols):
        # As in Kafka, a group that is asked to be is there and Empty, though it has no member.
        context.note_if_traceless(context.groups.setdefault(group.group_id, group))
        refuse(context, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
    elif event.member_id:
        _join_with_id(context, group, event)
    else:
        _join_without_id(context, group, event)


def refuse(context: GroupContext, event: JoinGroup, error: ErrorCode, member_id: str) -> None:
    context.reply(event.token, JoinResult(error, member_id))


def _has_room_for(context: GroupContext, group: ClassicGroup, event: JoinGroup) -> bool:
    """The size check of docs/semantics §5.9, except that a static member that is replaced needs no further place.

    Kafka turns a static member away that restarts while its group is full, and with an error that ends the client.
    """
    size_max = context.config.group_max_size
    if group.state in (EMPTY, DEAD):
        return True
    member_id = event.member_id or group.static_members.get(event.group_instance_id or "")
    member = group.members.get(member_id or "")
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.parked_join is not None) or group.parked_joins < size_max
    return member is not None or len(group.members) < size_max


def _turn_away(context: GroupContext, group: ClassicGroup, event: JoinGroup) -> None:
    refuse(context, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    member = group.members.get(event.member_id)
    if member is not None:
        sessions.drop_member(context, group, member, Cause.GROUP_FULL)
    elif event.member_id in group.pending_members:
        rebalance.drop_pending_member(context, group, event.member_id, Cause.GROUP_FULL)
    rebalance.end_join_phase_if_complete(context, group)


# Newcomers


def _join_without_id(context: GroupContext, group: ClassicGroup, event: JoinGroup) -> None:
    if event.group_instance_id is not None:
        if event.group_instance_id in group.static_members:
            replace_static_member(context, group, event, event.group_instance_id)
        else:
            _add_member(context, group, event, context.new_member_id(event.group_instance_id))
    elif event.require_known_member_id:
        _hand_out_member_id(context, group, event)
    else:
        _add_member(context, group, event, context.new_member_id(event.client_id))


def _hand_out_member_id(context: GroupContext, group: ClassicGroup, event: JoinGroup) -> None:
    """So that a client that loses the answer to a long join does not leave a member behind (KIP-394)."""
    member_id = context.new_member_id(event.client_id)
    context.groups.setdefault(group.group_id, group)
    deadline_ms = context.now_ms + event.session_timeout_ms
    group.note_pending(member_id, deadline_ms)
    context.pending_members.add((group.group_id, member_id), group.group_id, member_id)
    context.set_timer(PendingMemberTimer(group.group_id, member_id), deadline_ms, TimerKind.PENDING_MEMBER)
    context.observe(MemberIdHandedOut(group_id=group.group_id, generation=group.generation, member_id=member_id))
    refuse(context, event, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    _drop_the_oldest(context)


def _drop_the_oldest(context: GroupContext) -> None:
    """Of the pending members, where they are too many. One that does come back gets UNKNOWN_MEMBER_ID and asks for
    another id."""
    for group_id, member_id in context.pending_members.overflow():
        group = context.groups[group_id]
        rebalance.drop_pending_member(context, group, member_id, Cause.TOO_MANY_PENDING)
        rebalance.end_join_phase_if_complete(context, group)


def _add_member(context: GroupContext, group: ClassicGroup, event: JoinGroup, member_id: str) -> None:
    context.groups.setdefault(group.group_id, group)
    member = Member(
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        timer_key=SessionTimer(group.group_id, member_id),
        is_new=True,
    )
    if group.join_phase is not None and group.join_phase.is_initial:
        group.join_phase.new_member_added = True
    group.add(member, event.protocol_type)
    group.park_join(member, event.token)
    sessions.renew(context, member, sessions.NEW_MEMBER_JOIN_TIMEOUT_MS)
    context.observe(
        MemberJoined(
            group_id=group.group_id,
            generation=group.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            client_reason=event.reason,
            members=len(group.members),
        )
    )
    rebalance.rebalance(context, group, Why(Cause.MEMBER_JOINED, member_id, event.reason))


# Members, and clients that say they are


def _join_with_id(context: GroupContext, group: ClassicGroup, event: JoinGroup) -> None:
    if event.member_id in group.pending_members and event.group_instance_id is None:
        rebalance.forget_pending_member(context, group, event.member_id)
        _add_member(context, group, event, event.member_id)
        return
    error = group.identity_error(event.member_id, event.group_instance_id)
    if error is not None:
        refuse(context, event, error, event.member_id)
        return
    member = group.members[event.member_id]
    cause = _reason_to_rebalance(group, member, event)
    if cause is None:
        # Its earlier answer was lost, or it was a step behind: nothing has changed, so no rebalance is needed.
        sessions.renew(context, member)
        context.reply(event.token, rebalance.joined(group, member))
        return
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    replaced = group.park_join(member, event.token)
    if replaced is not None:
        context.reply(replaced, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    phase = group.join_phase
    context.observe(
        MemberRejoined(
            group_id=group.group_id,
            generation=group.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            client_reason=event.reason,
            protocol_type=event.protocol_type,
            subscription=event.protocols[0][1] if event.protocols else b"",
            join_phase_ms=0 if phase is None else context.now_ms - phase.started_ms,
        )
    )
    rebalance.rebalance(context, group, Why(cause, member.member_id, event.reason))


def _reason_to_rebalance(group: ClassicGroup, member: Member, event: JoinGroup) -> Cause | None:
    """None when the member is to be answered at once, with the generation as it is."""
    if group.state is STABLE and group.leader_id == member.member_id:
        # How a leader asks for a new assignment, after a topic changed for example.
        return Cause.LEADER_REJOINED
    if group.state is PREPARING_REBALANCE or event.protocols != member.protocols:
        return Cause.METADATA_CHANGED
    return None
