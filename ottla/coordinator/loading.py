"""Taking a partition on, and giving it up (docs/semantics §4.4, §4.5)."""

from ottla.coordinator import rebalance, sessions
from ottla.coordinator.durable import DurableState
from ottla.coordinator.events import JoinPhaseTimer, SessionTimer
from ottla.coordinator.facts import Cause, GroupLoaded, RecordsSkipped
from ottla.coordinator.group import Group
from ottla.coordinator.member import Member
from ottla.coordinator.rebalance import Why
from ottla.coordinator.records import GroupMetadata, StoredMember
from ottla.coordinator.states import DEAD, EMPTY, STABLE
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


def take_on_groups(turn: Turn) -> None:
    """Make the groups of what the log says. Every session starts anew: nobody could heartbeat here until now."""
    for reason, skipped in turn.durable.skipped.items():
        turn.observe(RecordsSkipped(reason, skipped.records, skipped.first_record_offset))
    for group_id in turn.durable.group_ids():
        group = turn.groups[group_id] = _restore(group_id, turn.durable.metadata.get(group_id))
        offsets = len(turn.durable.offsets.get(group_id, {}))
        turn.observe(GroupLoaded(group_id, group.generation, group.state, len(group.members), offsets))
        for member in group.members.values():
            sessions.renew(turn, member)
        if len(group.members) > turn.config.group_max_size:
            rebalance.rebalance(turn, group, Why(Cause.GROUP_OVER_SIZE))


def _restore(group_id: str, metadata: GroupMetadata | None) -> Group:
    """With members the group is Stable, without Empty; offsets alone make a simple group."""
    if metadata is None:
        return Group(group_id)
    group = Group(group_id, STABLE if metadata.members else EMPTY)
    for stored in metadata.members:
        group.add(_restore_member(group_id, metadata.protocol_name, stored), metadata.protocol_type)
    group.protocol_type = metadata.protocol_type or None
    group.protocol_name = metadata.protocol_name
    group.generation = metadata.generation
    group.state_timestamp_ms = metadata.state_timestamp_ms
    if metadata.leader_id in group.members:
        group.leader_id = metadata.leader_id
    return group


def _restore_member(group_id: str, protocol_name: str | None, stored: StoredMember) -> Member:
    """The log has only the protocol that was chosen."""
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=((protocol_name or "", stored.subscription),),
        timer_key=SessionTimer(group_id, stored.member_id),
        assignment=stored.assignment,
    )


def give_up_groups(turn: Turn) -> None:
    """Every group is Dead, every waiting request is sent to look for the new coordinator, every timer is cancelled."""
    for group in turn.groups.values():
        _give_up(turn, group)
    for after in turn.appends.give_up():
        after.failed(turn, ErrorCode.NOT_COORDINATOR)
    turn.groups.clear()
    turn.durable = DurableState()


def _give_up(turn: Turn, group: Group) -> None:
    for member in list(group.members.values()):
        sessions.answer_parked(turn, group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
        sessions.disarm(turn, member)
        group.remove(member)
    for member_id in list(group.pending_members):
        rebalance.forget_pending_member(turn, group, member_id)
    rebalance.stop_waiting_for_syncs(turn, group)
    if group.join_phase is not None:
        group.join_phase = None
        turn.cancel_timer(JoinPhaseTimer(group.group_id))
    turn.transition(group, DEAD, "coordinator moved")
