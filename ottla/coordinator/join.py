"""JoinGroup: who may come in, and who has to wait (docs/semantics §7.1).

A join that waits is parked with its member and answered when the join phase ends. A second join of the same member
takes its place, and the older one is answered REBALANCE_IN_PROGRESS. Its connection is most likely gone; a client that
is still there joins again under the id it has, whereas UNKNOWN_MEMBER_ID would make it come back as somebody else and
leave a ghost behind.
"""

from ottla.coordinator import rebalance, sessions
from ottla.coordinator.events import JoinGroup, PendingMemberTimer, SessionTimer
from ottla.coordinator.facts import Cause, MemberIdHandedOut, MemberJoined, MemberRejoined
from ottla.coordinator.group import Group
from ottla.coordinator.identity import identity_error
from ottla.coordinator.member import Member
from ottla.coordinator.rebalance import Why
from ottla.coordinator.results import NO_MEMBER_ID, JoinResult
from ottla.coordinator.states import (
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from ottla.coordinator.static_members import take_over_seat
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


def join_group(turn: Turn, event: JoinGroup) -> None:
    shortest, longest = turn.config.group_min_session_timeout_ms, turn.config.group_max_session_timeout_ms
    if not shortest <= event.session_timeout_ms <= longest:
        refuse(turn, event, ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)
        return
    group = turn.groups.get(event.group_id)
    if group is None:
        if event.member_id:
            refuse(turn, event, ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            return
        # Taken up among the partition's groups with its first member or promise of one.
        group = Group(event.group_id)
    if not _has_room_for(turn, group, event):
        _turn_away(turn, group, event)
    elif group.state is DEAD:
        refuse(turn, event, ErrorCode.COORDINATOR_NOT_AVAILABLE, event.member_id)
    elif not group.supports(event.protocol_type, event.protocols):
        refuse(turn, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
    elif event.member_id:
        _join_with_id(turn, group, event)
    else:
        _join_without_id(turn, group, event)


def refuse(turn: Turn, event: JoinGroup, error: ErrorCode, member_id: str) -> None:
    turn.reply(event.token, JoinResult(error, member_id))


def _has_room_for(turn: Turn, group: Group, event: JoinGroup) -> bool:
    """The size check of docs/semantics §5.9, except that whoever takes over a seat needs no other one.

    Kafka turns a static member away that restarts while its group is full, and with an error that ends the client.
    """
    size_max = turn.config.group_max_size
    if group.state in (EMPTY, DEAD):
        return True
    member_id = event.member_id or group.static_members.get(event.group_instance_id or "")
    member = group.members.get(member_id or "")
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.parked_join is not None) or group.parked_joins < size_max
    return member is not None or len(group.members) < size_max


def _turn_away(turn: Turn, group: Group, event: JoinGroup) -> None:
    refuse(turn, event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    member = group.members.get(event.member_id)
    if member is not None:
        sessions.drop_member(turn, group, member, Cause.GROUP_FULL)
    elif event.member_id in group.pending_members:
        rebalance.drop_pending_member(turn, group, event.member_id, Cause.GROUP_FULL)
    rebalance.end_join_phase_if_complete(turn, group)


# Newcomers


def _join_without_id(turn: Turn, group: Group, event: JoinGroup) -> None:
    if event.group_instance_id is not None:
        if event.group_instance_id in group.static_members:
            take_over_seat(turn, group, event, event.group_instance_id)
        else:
            _add_member(turn, group, event, turn.new_member_id(event.group_instance_id))
    elif event.require_known_member_id:
        _hand_out_member_id(turn, group, event)
    else:
        _add_member(turn, group, event, turn.new_member_id(event.client_id))


def _hand_out_member_id(turn: Turn, group: Group, event: JoinGroup) -> None:
    """So that a client that loses the answer to a long join does not leave a member behind (KIP-394)."""
    member_id = turn.new_member_id(event.client_id)
    turn.groups.setdefault(group.group_id, group)
    deadline_ms = group.pending_members[member_id] = turn.now_ms + event.session_timeout_ms
    turn.set_timer(PendingMemberTimer(group.group_id, member_id), deadline_ms)
    turn.observe(MemberIdHandedOut(group.group_id, group.generation, member_id))
    refuse(turn, event, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _add_member(turn: Turn, group: Group, event: JoinGroup, member_id: str) -> None:
    turn.groups.setdefault(group.group_id, group)
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
    sessions.arm(turn, member, sessions.NEW_MEMBER_JOIN_TIMEOUT_MS)
    turn.observe(_member_joined(group, member, event.reason))
    rebalance.rebalance(turn, group, Why(Cause.MEMBER_JOINED, member_id, event.reason))


def _member_joined(group: Group, member: Member, client_reason: str | None) -> MemberJoined:
    return MemberJoined(
        group.group_id,
        group.generation,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        client_reason,
        len(group.members),
    )


# Members, and those who say they are


def _join_with_id(turn: Turn, group: Group, event: JoinGroup) -> None:
    if event.member_id in group.pending_members and event.group_instance_id is None:
        rebalance.forget_pending_member(turn, group, event.member_id)
        _add_member(turn, group, event, event.member_id)
        return
    error = identity_error(group, event.member_id, event.group_instance_id)
    if error is not None:
        refuse(turn, event, error, event.member_id)
        return
    member = group.members[event.member_id]
    cause = _reason_to_rebalance(group, member, event)
    if cause is None:
        # Its earlier answer was lost, or it was a step behind: nothing has changed, so nobody needs to rebalance.
        sessions.renew(turn, member)
        turn.reply(event.token, rebalance.joined(group, member))
        return
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    replaced = group.park_join(member, event.token)
    if replaced is not None:
        turn.reply(replaced, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    turn.observe(_member_rejoined(turn, group, member, event))
    rebalance.rebalance(turn, group, Why(cause, member.member_id, event.reason))


def _member_rejoined(turn: Turn, group: Group, member: Member, event: JoinGroup) -> MemberRejoined:
    phase = group.join_phase
    return MemberRejoined(
        group.group_id,
        group.generation,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        event.reason,
        event.protocol_type,
        event.protocols[0][1] if event.protocols else b"",
        0 if phase is None else turn.now_ms - phase.started_ms,
    )


def _reason_to_rebalance(group: Group, member: Member, event: JoinGroup) -> Cause | None:
    """None when the member is to be answered at once, with the generation as it is."""
    if group.state is STABLE and group.leader_id == member.member_id:
        # How a leader asks for a new assignment, after a topic changed for example.
        return Cause.LEADER_REJOINED
    if group.state is PREPARING_REBALANCE or event.protocols != member.protocols:
        return Cause.METADATA_CHANGED
    return None
