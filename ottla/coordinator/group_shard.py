"""What a partition of `__consumer_offsets` holds: its groups, their offsets, and which request goes where."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ottla.coordinator import group_removal
from ottla.coordinator.classic import describe, join, leave, loading, rebalance, sessions, sync
from ottla.coordinator.classic.causes import (
    JoinPhaseTimer,
    PendingMemberTimer,
    PendingSyncTimer,
    SessionTimer,
    TimerKey,
)
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    RequestRebalance,
    SyncGroup,
    TopicsDeleted,
)
from ottla.coordinator.group_context import GroupConfig, GroupContext
from ottla.coordinator.offsets import commit, delete, fetch
from ottla.coordinator.refusals import group_id_error, refusal
from ottla.coordinator.runtime.effects import TimerFired


def _commit_offsets(context: GroupContext, event: CommitOffsets) -> None:
    """A member that commits is alive. Of one that commits in a transaction Kafka does not say so (§46.3)."""
    group = context.groups.get(event.group_id)
    if commit.commit_offsets(context, group, event) and group is not None and event.producer is None:
        member = group.members.get(event.member_id)
        if member is not None:
            sessions.renew(context, member)


def _timer_fired(context: GroupContext, event: TimerFired) -> None:
    key: TimerKey = event.key
    group = context.groups.get(key.group_id)
    if group is None:
        return
    match key:
        case SessionTimer():
            leave.session_timer_fired(context, group, key)
        case JoinPhaseTimer():
            rebalance.join_phase_timer_fired(context, group)
        case PendingSyncTimer():
            rebalance.pending_sync_timer_fired(context, group)
        case PendingMemberTimer():
            leave.pending_member_timer_fired(context, group, key)


REQUESTS: Final[Mapping[type, Callable[[Any, Any], None]]] = MappingProxyType(
    {
        JoinGroup: join.join_group,
        SyncGroup: sync.sync_group,
        Heartbeat: sessions.heartbeat,
        LeaveGroup: leave.leave_group,
        CommitOffsets: _commit_offsets,
        FetchOffsets: fetch.fetch_offsets,
        DescribeGroup: describe.describe_group,
        ListGroups: describe.list_groups,
        DeleteGroup: group_removal.delete_group,
        DeleteOffsets: delete.delete_offsets,
    }
)
EVENTS: Final[Mapping[type, Callable[[Any, Any], None]]] = MappingProxyType(
    {
        TimerFired: _timer_fired,
        ExpireOffsets: group_removal.expire_offsets,
        RequestRebalance: rebalance.rebalance_as_requested,
        TopicsDeleted: delete.forget_topics,
    }
)


class GroupShard:
    """The `CoordinatorShard` of `__consumer_offsets`."""

    requests = REQUESTS
    events = EVENTS
    timeline = None
    request_error = staticmethod(group_id_error)
    refusal = staticmethod(refusal)

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str], *, generation_floor: int = 0) -> None:
        self.context = GroupContext(config, new_member_id, generation_floor=generation_floor)

    # What it holds, to be looked at and not touched

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return self.context.groups

    @property
    def durable(self) -> DurableState:
        return self.context.durable

    # As the runtime calls it

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        self.context.durable.replay(key, value, record_offset, producer_id)

    def replay_marker(self, producer_id: int, *, commit: bool) -> Iterator[None]:
        return self.context.durable.replay_marker(producer_id, commit=commit)

    def on_committed(self, owner: str) -> None:
        self.context.create_from_log(owner)
        self.context.remove_if_not_in_log(owner)

    def on_elected(self) -> Iterator[None]:
        return loading.on_elected(self.context)

    def on_resigned(self) -> None:
        loading.on_resigned(self.context)

    def clear(self) -> None:
        self.context.clear()
