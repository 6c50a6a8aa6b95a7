"""All groups of one partition of `__consumer_offsets`: the coordinator as the shell sees it.

The shell makes one object each time the broker becomes leader of the partition, and then:

1. calls `replay` (`replay_control` for markers of transactions) for every record from log start to log end, in order;
2. calls `finish_loading`, or `fail_loading` when the log could not be read;
3. calls `step` for every event, one at a time, and performs all effects of a step before the next;
4. calls `unload` when the broker is no longer leader. Late events are then harmless.

Requests may come at any time: before `finish_loading` and after `unload` they are refused as Kafka does.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, cast

from ottla.coordinator import (
    administration,
    departures,
    expiry,
    heartbeat,
    join,
    loading,
    offsets,
    rebalance,
    sync,
)
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.durable import DurableState
from ottla.coordinator.effects import Effect
from ottla.coordinator.events import (
    AppendCompleted,
    AppendFailed,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    Event,
    ExpireOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinPhaseTimer,
    LeaveGroup,
    ListGroups,
    PendingMemberTimer,
    PendingSyncTimer,
    Request,
    SessionTimer,
    SyncGroup,
    TimerFired,
    TimerKey,
    TopicsDeleted,
)
from ottla.coordinator.group import Group
from ottla.coordinator.refusals import group_id_error, refusal
from ottla.coordinator.turn import Turn
from ottla.protocol.errors import ErrorCode


class Phase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """What the log says could not be read. A coordinator that knows half would hand out -1 for committed offsets."""
    UNLOADED = auto()


_REFUSALS: Final = {
    Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.ACTIVE: None,
    Phase.FAILED: ErrorCode.NOT_COORDINATOR,
    Phase.UNLOADED: ErrorCode.NOT_COORDINATOR,
}

_HANDLERS: Final[dict[type, Callable[[Turn, Any], None]]] = {
    JoinGroup: join.join_group,
    SyncGroup: sync.sync_group,
    Heartbeat: heartbeat.heartbeat,
    LeaveGroup: departures.leave_group,
    CommitOffsets: offsets.commit_offsets,
    FetchOffsets: offsets.fetch_offsets,
    DescribeGroup: administration.describe_group,
    ListGroups: administration.list_groups,
    DeleteGroup: expiry.delete_group,
    DeleteOffsets: offsets.delete_offsets,
}


class CoordinatorPartition:
    def __init__(self, partition: int, config: GroupConfig, new_member_id: Callable[[str], str]) -> None:
        """`new_member_id` makes a fresh id from a client id or an instance id: `<prefix>-<UUID>`."""
        self.partition = partition
        self.phase = Phase.LOADING
        self._turn = Turn(config, new_member_id)

    # Loading and unloading

    def replay(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int | None = None) -> None:
        """Load one record. `producer_id` is given for the records of a transactional batch: they wait for its marker.

        Raises `DecodeError` for a record that breaks its layout: then call `fail_loading`.
        """
        assert self.phase is Phase.LOADING, f"a record to load in phase {self.phase.name}"
        self._turn.durable.replay(key, value, record_offset, producer_id)

    def replay_control(self, producer_id: int, *, commit: bool) -> None:
        """Load the marker that ends a transaction."""
        assert self.phase is Phase.LOADING, f"a marker to load in phase {self.phase.name}"
        self._turn.durable.replay_control(producer_id, commit=commit)

    def finish_loading(self, now_ms: int, wall_ms: int) -> list[Effect]:
        assert self.phase is Phase.LOADING, f"loading ends in phase {self.phase.name}"
        self.phase = Phase.ACTIVE
        self._turn.begin(now_ms, wall_ms)
        loading.take_on_groups(self._turn)
        return self._turn.effects

    def fail_loading(self) -> None:
        """Also when `finish_loading` has raised: then it may have made some of the groups."""
        self.phase = Phase.FAILED
        self._turn.groups.clear()
        self._turn.durable = DurableState()

    def unload(self, now_ms: int, wall_ms: int) -> list[Effect]:
        self.phase = Phase.UNLOADED
        self._turn.begin(now_ms, wall_ms)
        loading.give_up_groups(self._turn)
        return self._turn.effects

    # What it holds, to be looked at and not touched

    @property
    def groups(self) -> dict[str, Group]:
        return self._turn.groups

    @property
    def durable(self) -> DurableState:
        return self._turn.durable

    # Events

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """What is to be done about `event`. The list is the caller's."""
        turn = self._turn
        turn.begin(now_ms, wall_ms)
        handler = _HANDLERS.get(type(event))
        if handler is None:
            if self.phase is Phase.ACTIVE:
                self._happened(event)
            return turn.effects
        request = cast("Request", event)
        error = group_id_error(request) or _REFUSALS[self.phase]
        if error is None:
            handler(turn, request)
        else:
            turn.reply(request.token, refusal(request, error))
        return turn.effects

    def _happened(self, event: Event) -> None:
        match event:
            case TimerFired():
                self._timer_fired(event.key)
            case AppendCompleted():
                self._append_completed(event)
            case AppendFailed():
                waiting = self._turn.appends.fail(event.append_id, event.error)
                if waiting is not None:
                    waiting.failed(self._turn, event.error)
            case ExpireOffsets():
                expiry.expire_offsets(self._turn)
            case TopicsDeleted():
                offsets.forget_topics(self._turn, event)
            case _:
                raise AssertionError(f"no handler for {event}")

    def _timer_fired(self, key: TimerKey) -> None:
        group = self._turn.groups.get(key.group_id)
        if group is None:
            return
        match key:
            case SessionTimer():
                departures.session_timer_fired(self._turn, group, key)
            case JoinPhaseTimer():
                rebalance.join_phase_timer_fired(self._turn, group)
            case PendingSyncTimer():
                rebalance.pending_sync_timer_fired(self._turn, group)
            case PendingMemberTimer():
                departures.pending_member_timer_fired(self._turn, group, key)

    def _append_completed(self, event: AppendCompleted) -> None:
        turn = self._turn
        in_flight = turn.appends.complete(event.append_id)
        if in_flight is None:
            return
        for record, record_offset in turn.appends.newest(in_flight, event.base_offset):
            turn.durable.replay(record.key, record.value, record_offset)
        turn.take_up_if_known(in_flight.group_id)
        if in_flight.after is not None:
            in_flight.after.completed(turn)
