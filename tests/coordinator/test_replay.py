"""What the log gives back: a coordinator that loads it knows the offsets and groups of the one that wrote it.

Histories of commits, rebalances, deletions, expiries and removals, under a log that answers late, in any order, or with
a timeout for records that it keeps. Errors that take records out of the log are for `test_machine`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import DEAD, EMPTY, STABLE
from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.events import (
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    TopicsDeleted,
)
from ottla.coordinator.facts import StateChanged
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell

GROUPS = ("g", "h")
TOPICS = ("t", "u")
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=1)
RETENTION_MS = CONFIG.offsets_retention_ms

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)


class World:
    """A shell, and two consumers of each group."""

    def __init__(self) -> None:
        self.shell = Shell(CONFIG)
        self.clients = {name: [Client(self.shell, f"{name}{n}", group_id=name) for n in range(2)] for name in GROUPS}

    def commit(self, group_id: str, topic: str, partition: int, retention_ms: int) -> None:
        """By a member, if the group has any."""
        member = next((client for client in self.clients[group_id] if client.generation >= 0), None)
        changes: dict[str, Any] = {"offsets": (OffsetToCommit(topic, partition, self.shell.next_offset),)}
        if member is not None:
            changes |= {"member_id": member.member_id, "generation": member.generation}
        self.shell.commit(0, group_id=group_id, retention_time_ms=retention_ms, **changes)

    def rebalance(self, group_id: str, count: int) -> None:
        fleet = self.clients[group_id][:count]
        for client in fleet:
            if client.member_id and client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id, client.generation = "", -1
            client.join()
        self.shell.advance(1)
        joined = [client for client in fleet if client.joined is not None and client.joined.error is ErrorCode.NONE]
        for client in joined:
            group = self.shell.group(group_id)
            leads = group is not None and group.leader_id == client.member_id
            client.sync(dict.fromkeys(group.members, client.name.encode()) if leads else None)

    def leave(self, group_id: str) -> None:
        for client in self.clients[group_id]:
            self.shell.send(LeaveGroup(self.shell.token(), group_id, (LeavingMember(client.member_id),)))
            client.member_id, client.generation = "", -1

    def delete_group(self, group_id: str) -> None:
        self.shell.send(DeleteGroup(self.shell.token(), group_id))

    def delete_offsets(self, group_id: str, topic: str) -> None:
        self.shell.send(DeleteOffsets(self.shell.token(), group_id, ((topic, (0, 1)),)))

    def delete_topic(self, topic: str) -> None:
        self.shell.happen(TopicsDeleted((topic,)))

    def expire(self) -> None:
        self.shell.happen(ExpireOffsets())

    def advance(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms)

    def hold(self, hold: bool) -> None:
        self.shell.hold_appends = hold

    def answer(self, index: int, in_time: bool) -> None:
        """The log answers one of the appends that are held, or reports that it takes too long."""
        held = sorted(self.shell.held)
        if held:
            append_id = held[index % len(held)]
            if in_time:
                self.shell.complete_append(append_id)
            else:
                self.shell.fail_append(ErrorCode.REQUEST_TIMED_OUT, append_id)

    def move(self) -> None:
        self.shell.move_coordinator()
        for clients in self.clients.values():
            for client in clients:
                client.join_tokens.clear()
                client.sync_tokens.clear()

    def answer_all(self) -> None:
        while self.shell.held:
            self.shell.complete_append()


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(name), st.tuples(*arguments))


STEPS = st.one_of(
    step("commit", groups, topics, st.integers(0, 1), st.sampled_from([-1, -1, 1_000])),
    step("rebalance", groups, st.integers(1, 2)),
    step("leave", groups),
    step("delete_group", groups),
    step("delete_offsets", groups, topics),
    step("delete_topic", topics),
    step("expire"),
    step("advance", st.sampled_from([1, 10_000, RETENTION_MS])),
    step("hold", st.booleans()),
    step("answer", st.integers(0, 5), st.booleans()),
    step("move"),
)


def loaded(shell: Shell, records: Callable[[Shell], list[tuple[int, CoordinatorRecord]]]) -> GroupShard:
    partition: CoordinatorPartition[GroupShard] = shell.empty_partition()
    for offset, record in records(shell):
        partition.replay(record.key, record.value, offset)
    while partition.phase is Phase.LOADING:
        partition.finish_loading(shell.now_ms, shell.wall_ms)
    return partition.shard


def log_records(shell: Shell) -> list[tuple[int, CoordinatorRecord]]:
    return [row for batch in shell.log for row in enumerate(batch.records, batch.base_offset)]


def compacted_records(shell: Shell) -> list[tuple[int, CoordinatorRecord]]:
    """What compaction leaves when it has also removed the tombstones."""
    last = {record.key: (offset, record) for offset, record in log_records(shell)}
    return sorted(row for row in last.values() if row[1].value is not None)


def stored(durable: DurableState) -> tuple[Any, Any]:
    return durable.metadata, durable.offsets


def at_rest(shard: GroupShard) -> dict[str, tuple[Any, ...]]:
    """Groups that wait for nothing, as far as the log speaks of them: not of one that never had a generation."""
    return {
        group.group_id: _shown(group)
        for group in shard.groups.values()
        if group.state in (EMPTY, STABLE) and (group.generation or shard.durable.knows(group.group_id))
    }


def _shown(group: ClassicGroup) -> tuple[Any, ...]:
    if group.state is EMPTY:
        return group.state, group.generation, group.protocol_type, group.state_timestamp_ms
    stored_group = group.metadata()
    return group.state, group.generation, stored_group.protocol_name, stored_group.leader_id, stored_group.members


def check(world: World) -> None:
    live = world.shell.partition.shard
    for records in (log_records, compacted_records):
        other = loaded(world.shell, records)
        assert stored(other.durable) == stored(live.durable)
        expected, found = at_rest(live), at_rest(other)
        assert {name: group for name, group in found.items() if name in expected} == expected
        assert set(found) <= {name for name, group in live.groups.items() if group.state is not DEAD}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40))
def test_replayed_log_gives_offsets_and_groups_of_live_state(steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    """I-16, I-17"""
    world = World()
    for name, arguments in steps:
        getattr(world, name)(*arguments)
    world.answer_all()
    check(world)


@pytest.mark.parametrize("remove", [lambda world: world.delete_group("g"), lambda world: world.expire()])
def test_removal_committed_after_its_timeout_ends_the_group(remove: Callable[[World], None]) -> None:
    world = World()
    world.rebalance("g", 1)
    world.leave("g")
    world.hold(hold=True)
    remove(world)
    world.answer(0, in_time=False)
    assert world.shell.state() == "Empty"
    world.answer_all()

    assert world.shell.state() == "Dead"
    assert world.shell.facts[-1][1] == StateChanged(
        group_id="g", generation=2, from_state=EMPTY, to_state=DEAD, reason="its removal is in the log"
    )
    check(world)


def test_group_in_use_outlives_a_removal_that_timed_out() -> None:
    world = World()
    world.rebalance("g", 1)
    world.leave("g")
    world.hold(hold=True)
    world.delete_group("g")
    world.answer(0, in_time=False)
    world.rebalance("g", 1)
    world.answer_all()

    assert world.shell.state() == "Stable"
    check(world)
