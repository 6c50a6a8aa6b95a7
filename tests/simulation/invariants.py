"""What must hold inside the broker after every step, whatever clients and faults do.

Groups are looked at only when something about them has changed: a run takes tens of thousands of steps.
"""

from typing import Any

from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingMemberTimer, PendingSyncTimer, SessionTimer
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, GroupState
from tests.simulation.judge import Judge

# A timer runs in the tick after its deadline, when the loop gets to it.
TIMER_SLACK_MS = 5


class Inspector:
    """One per life of a broker."""

    def __init__(self, judge: Judge, broker: Any, timer_slack_ms: int = TIMER_SLACK_MS) -> None:
        self._timer_slack_ms = timer_slack_ms
        self._judge = judge
        self._broker = broker
        self._seen: dict[Any, tuple[Any, ...]] = {}
        self._generations: dict[str, int] = {}
        self._high_watermarks: dict[Any, int] = {}

    def look(self) -> None:
        self.look_at_groups(hosted_partitions(self._broker))
        self._look_at_logs()

    def look_at_groups(self, partitions: list[Any]) -> None:
        now_ms = self._broker.runtime.clock.now_ms()
        for hosted in partitions:
            if is_within_step(hosted):
                continue
            for group in hosted.coordinator.shard.groups.values():
                signature = _signature(group, len(hosted._timers))
                if self._seen.get(group.group_id) != signature:
                    self._seen[group.group_id] = signature
                    self._look_at(group, hosted._timers)
                if group.join_phase is not None and group.join_phase.deadline_ms + self._timer_slack_ms < now_ms:
                    self._violated("I-18", group, f"join phase until {group.join_phase.deadline_ms}, it is {now_ms}")

    def _look_at_logs(self) -> None:
        for partition in self._broker.replicas:
            log = partition.log
            signature = (log.log_start_offset, partition.high_watermark, log.log_end_offset)
            if self._seen.get(partition) != signature:
                self._seen[partition] = signature
                self._look_at_log(partition)

    def _look_at(self, group: ClassicGroup, timers: dict[Any, Any]) -> None:
        before = self._generations.get(group.group_id, -1)
        if group.generation < before:
            self._violated("I-8", group, f"generation {group.generation} after {before}")
        self._judge.trace.note("group", group.group_id, group.state.name, group.generation, len(group.members))
        self._generations[group.group_id] = group.generation
        if group.state is GroupState.DEAD:
            del self._generations[group.group_id]
            self._judge.group_died(group.group_id)
        for invariant, complaint in [
            *_about_members(group),
            *_about_static_members(group),
            *_about_timers(group, timers),
        ]:
            self._violated(invariant, group, complaint)

    def _look_at_log(self, partition: Any) -> None:
        log, high_watermark = partition.log, partition.high_watermark
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            self._judge.violated(
                "I-6", f"{partition}: {log.log_start_offset} ≤ {high_watermark} ≤ {log.log_end_offset} does not hold"
            )
        if high_watermark < self._high_watermarks.get(partition, 0):
            self._judge.violated("I-5", f"{partition}: high watermark {high_watermark} fell")
        self._high_watermarks[partition] = high_watermark

    def _violated(self, invariant: str, group: ClassicGroup, how: str) -> None:
        self._judge.violated(invariant, f"{group.group_id} {group.state.name} generation {group.generation}: {how}")


def hosted_partitions(broker: Any) -> list[Any]:
    return list(broker.parts.groups.topic._partitions.values())


def timers_of_groups(broker: Any) -> list[str]:
    return sorted({str(key) for hosted in hosted_partitions(broker) for key in hosted._timers})


def is_within_step(hosted: Any) -> bool:
    """Between two slices of a step, or of making what the log says, the invariants do not hold yet; nor while events
    wait for the end of one, as that of a timer."""
    return bool(hosted.is_loading or hosted.coordinator.rest or hosted._queue)


def _signature(group: ClassicGroup, timers: int) -> tuple[Any, ...]:
    return (
        group.state,
        group.generation,
        group.leader_id,
        group.parked_joins,
        len(group.members),
        len(group.pending_members),
        len(group.pending_sync),
        tuple(group.static_members.values()),
        timers,
    )


def _about_members(group: ClassicGroup) -> list[tuple[str, str]]:
    """Invariant and complaint."""
    complaints = []
    members = group.members.values()
    parked_joins = sum(member.parked_join is not None for member in members)
    parked_syncs = sum(member.parked_sync is not None for member in members)
    if parked_joins != group.parked_joins:
        complaints.append(("I-18", f"{parked_joins} joins are parked, {group.parked_joins} counted"))
    if parked_joins and group.state is not PREPARING_REBALANCE:
        complaints.append(("I-18", "a join is parked"))
    if parked_syncs and group.state is not COMPLETING_REBALANCE:
        complaints.append(("I-18", "a sync is parked"))
    if group.members and group.leader_id not in group.members:
        complaints.append(("I-11", f"the leader {group.leader_id} is no member"))
    if group.members and group.state in (EMPTY, DEAD):
        complaints.append(("I-11", f"{len(group.members)} members"))
    if not set(group.pending_sync) <= set(group.members):
        complaints.append(("I-19", f"waits for a sync of {set(group.pending_sync) - set(group.members)}"))
    if set(group.pending_members) & set(group.members):
        complaints.append(("I-19", "a pending member is a member"))
    return complaints


def _about_static_members(group: ClassicGroup) -> list[tuple[str, str]]:
    held = {
        member.group_instance_id: member.member_id
        for member in group.members.values()
        if member.group_instance_id is not None
    }
    holders = sum(member.is_static for member in group.members.values())
    if held != group.static_members or holders != len(held):
        return [("I-14", f"members hold {held}, the static members are {group.static_members}")]
    return []


def _about_timers(group: ClassicGroup, timers: dict[Any, Any]) -> list[tuple[str, str]]:
    """One for each member, pending member, join phase and wait for syncs, and no other (I-19)."""
    group_id = group.group_id
    wanted: set[Any] = {SessionTimer(group_id, member_id) for member_id in group.members}
    wanted |= {PendingMemberTimer(group_id, member_id) for member_id in group.pending_members}
    if group.join_phase is not None:
        wanted.add(JoinPhaseTimer(group_id))
    if group.pending_sync:
        wanted.add(PendingSyncTimer(group_id))
    present = {key for key in timers if key.group_id == group_id}
    if wanted == present:
        return []
    missing, left_over = sorted(map(str, wanted - present)), sorted(map(str, present - wanted))
    return [("I-19", f"timers missing: {missing}, left over: {left_over}")]
