"""Random lives of one partition's groups, and what must hold after every step (§20: I-8, I-11 to I-14, I-16 to I-19).

The simple model is what clients were answered: which answers succeeded, and which commits were acknowledged. Whatever
order of requests, timers, append results and coordinator moves Hypothesis comes up with, the answers must fit together.
"""

from collections import defaultdict
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.classic.causes import JoinPhaseTimer, PendingMemberTimer, PendingSyncTimer, SessionTimer
from ottla.coordinator.classic.group import NOTHING_YET, ClassicGroup
from ottla.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    TopicsDeleted,
)
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.records import build_offset_commit_key, parse_offset_commit_value
from ottla.coordinator.runtime.effects import TimerFired
from ottla.coordinator.runtime.partition import Phase
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell, subscription

GROUPS = ("g1", "g2")
CLIENTS = tuple(
    {"name": f"{group_id}-c{index}", "group_id": group_id, "instance_id": instance_id, "knows_member_ids": modern}
    for group_id in GROUPS
    for index, (instance_id, modern) in enumerate(
        [(None, True), (None, True), (None, False), ("instance", True), ("instance", False)]
    )
)
PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t", "u")),),
    (("sticky", b"s"), ("range", subscription("t"))),
)
ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)
FIVE_MINUTES = 300_000

clients = st.integers(0, len(CLIENTS) - 1)


class Groups(RuleBasedStateMachine):
    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        size=st.sampled_from([2, 100]),
        instant_log=st.booleans(),
        members_per_slice=st.sampled_from([1, 64]),
    )
    def start(self, delay_ms: int, size: int, instant_log: bool, members_per_slice: int) -> None:
        self.shell = Shell(
            GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size, offsets_retention_minutes=5),
            members_per_slice=members_per_slice,
        )
        self.shell.hold_appends = not instant_log
        self.clients: list[Client] = [self.shell.client(**spec) for spec in CLIENTS]
        self.seen_tokens: set[int] = set()
        # By group object and generation: a group that was deleted or loaded again is another.
        self.joins: dict[tuple[ClassicGroup, int], set[tuple[Any, ...]]] = defaultdict(set)
        self.handed_out: dict[tuple[ClassicGroup, int], set[bytes]] = defaultdict(set)
        self.generations: dict[ClassicGroup, int] = {}
        self.commits: dict[int, tuple[str, int]] = {}
        self.requests = 0

    # What clients do

    @rule(client=clients, protocols=st.sampled_from(PROTOCOLS), forgets=st.booleans())
    def join(self, client: int, protocols: Any, forgets: bool) -> None:
        who = self.clients[client]
        if forgets:
            who.member_id, who.generation = "", -1
        who.join(protocols=protocols)

    @rule(client=clients, gives=st.booleans(), old=st.booleans())
    def sync(self, client: int, gives: bool, old: bool) -> None:
        who = self.clients[client]
        if not who.join_tokens or who.generation < 0:
            return
        self.requests += 1
        group = self.shell.group(who.group_id)
        members = list(group.members) if group is not None else []
        # Every request of a leader differs in what it hands out.
        assignments = {member_id: f"{self.requests}".encode() for member_id in members} if gives else {}
        who.sync(assignments, generation=who.generation - old)

    @rule(client=clients, old=st.booleans())
    def heartbeat(self, client: int, old: bool) -> None:
        who = self.clients[client]
        before = self._snapshot(who.group_id)
        error = who.heartbeat(generation=who.generation - old)
        if error is ErrorCode.ILLEGAL_GENERATION:
            assert self._snapshot(who.group_id) == before, "I-13"

    @rule(client=clients, offset=st.integers(0, 1000), old=st.booleans())
    def commit(self, client: int, offset: int, old: bool) -> None:
        who = self.clients[client]
        before = self._snapshot(who.group_id)
        self._commit(who.group_id, offset, who.member_id, who.instance_id, who.generation - old)
        answer = self.shell.answers.get(self.shell.last_token)
        if answer is not None and answer.partitions[0].error is ErrorCode.ILLEGAL_GENERATION:
            assert self._snapshot(who.group_id) == before, "I-13"

    @rule(group_id=st.sampled_from(GROUPS), offset=st.integers(0, 1000))
    def simple_commit(self, group_id: str, offset: int) -> None:
        self._commit(group_id, offset, "", None, -1)

    def _commit(self, group_id: str, offset: int, member_id: str, instance_id: str | None, generation: int) -> None:
        token = self.shell.token()
        self.commits[token] = (group_id, offset)
        offsets = (OffsetToCommit("t", 0, offset),)
        self.shell.send(CommitOffsets(token, group_id, member_id, instance_id, generation, offsets))

    @rule(client=clients, by_instance=st.booleans())
    def leave(self, client: int, by_instance: bool) -> None:
        who = self.clients[client]
        leaving = LeavingMember("" if by_instance else who.member_id, who.instance_id)
        self.shell.send(LeaveGroup(self.shell.token(), who.group_id, (leaving,)))

    @rule(
        group_id=st.sampled_from(GROUPS),
        who=st.sets(st.integers(0, len(CLIENTS) // len(GROUPS) - 1), min_size=1),
        syncs=st.sampled_from(["all", "all", "leader", "followers"]),
        log_answers=st.booleans(),
    )
    def well_behaved_clients_rebalance(self, group_id: str, who: set[int], syncs: str, log_answers: bool) -> None:
        """What single random requests hardly ever amount to: a whole generation, or most of one."""
        fleet = [client for client in self.clients if client.group_id == group_id]
        fleet = [fleet[index] for index in sorted(who)]
        for client in fleet:
            if not client.join_tokens or client.joined is not None:
                if client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID:
                    client.member_id = ""
                client.join()
        self.shell.advance(3_000)
        self._learn()
        for client in fleet:
            group, answer = self.shell.group(group_id), client.joined
            if group is None or answer is None or answer.error is not ErrorCode.NONE:
                continue
            leads = client.member_id == group.leader_id
            if syncs == "all" or leads == (syncs == "leader"):
                self.requests += 1
                assignment = f"{self.requests}".encode()
                client.sync(dict.fromkeys(group.members, assignment) if leads else None)
        while log_answers and self.shell.held:
            self.shell.complete_append()

    # What administrators and the passing of time do

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        """Refused, mostly: the group has members."""
        self.shell.send(DeleteGroup(self.shell.token(), group_id))

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_offsets(self, group_id: str) -> None:
        self.shell.send(DeleteOffsets(self.shell.token(), group_id, (("t", (0, 1)),)))

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_topic(self, topic: str) -> None:
        self.shell.happen(TopicsDeleted((topic,)))

    @rule()
    def expire(self) -> None:
        self.shell.happen(ExpireOffsets())

    @rule(duration_ms=st.sampled_from([0, 1, 2_999, 3_000, 5_000, 10_000, 60_000, 300_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms)

    @rule(data=st.data())
    @precondition(lambda self: self.shell.timers)
    def timer_fires_early_or_twice(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.shell.timers)))
        before = set(self.shell.timers)
        deadline_ms, _ = self.shell.timers.pop(key)
        self.shell.happen(TimerFired(key))
        if self.shell.now_ms < deadline_ms:
            assert set(self.shell.timers) == before, "a timer that came too early was not set again"

    # What the log does

    @rule(data=st.data())
    @precondition(lambda self: self.shell.held)
    def append_completes(self, data: st.DataObject) -> None:
        self.shell.complete_append(data.draw(st.sampled_from(sorted(self.shell.held))))

    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    @precondition(lambda self: self.shell.held)
    def append_fails(self, data: st.DataObject, error: ErrorCode) -> None:
        self.shell.fail_append(error, data.draw(st.sampled_from(sorted(self.shell.held))))

    @rule(likely=st.integers(0, 5))
    def coordinator_moves(self, likely: int) -> None:
        if likely:
            return
        self.shell.unload()
        assert self.shell.timers == {}
        waiting = set(range(1, self.shell.last_token + 1)) - set(self.shell.answers)
        assert waiting == set(), "I-18: a request outlived the coordinator"
        assert self.shell.partition.phase is Phase.UNLOADED
        self._learn()
        self.shell.move_coordinator()
        self.requests += 1
        self.generations.clear()
        for client in self.clients:
            client.join_tokens.clear()

    # What must hold

    @invariant()
    def answers_fit_together(self) -> None:
        self._learn()

    def _learn(self) -> None:
        """Take in what clients have been answered since, and check it against earlier answers."""
        for client in self.clients:
            if client.join_tokens and (answer := self.shell.answers.get(client.join_tokens[-1])) is not None:
                assert client.joined is answer
                self._learn_join(client, client.join_tokens[-1], answer)
            for token in client.sync_tokens:
                if token in self.shell.answers and token not in self.seen_tokens:
                    self.seen_tokens.add(token)
                    self._learn_sync(client, self.shell.answers[token])
        for token in [token for token in self.commits if token in self.shell.answers]:
            group_id, offset = self.commits.pop(token)
            if self.shell.answers[token].partitions[0].error is ErrorCode.NONE:
                values = self.shell.appended_for(build_offset_commit_key(group_id, "t", 0), committed=True)
                stored = [parse_offset_commit_value(value).offset for value in values if value is not None]
                assert offset in stored, "I-16: acknowledged, and not in the log"

    def _learn_join(self, client: Client, token: int, answer: Any) -> None:
        if token in self.seen_tokens or answer.error is not ErrorCode.NONE:
            return
        self.seen_tokens.add(token)
        assert answer.members == () or answer.leader_id == answer.member_id, "I-11: only the leader gets the members"
        group = self.shell.group(client.group_id)
        # After the replacement of a leader some are given its former id (§7.2.2).
        if group is not None and not any(member.is_static for member in group.members.values()):
            given = self.joins[group, answer.generation]
            given.add((answer.leader_id, answer.protocol_name, answer.protocol_type))
            assert len(given) == 1, "I-11"

    def _learn_sync(self, client: Client, answer: Any) -> None:
        group = self.shell.group(client.group_id)
        if answer.error is ErrorCode.NONE and answer.assignment and group is not None:
            assert group.state is STABLE, "I-12: an assignment is out before it is stored"
            handed_out = self.handed_out[group, group.generation]
            handed_out.add(answer.assignment)
            assert len(handed_out) == 1, "I-12: assignments of two requests in one generation"

    @invariant()
    def generations_never_fall(self) -> None:
        """I-8, for as long as a group lives at one coordinator."""
        for group in self.shell.partition.shard.groups.values():
            assert group.generation >= self.generations.get(group, 0)
            self.generations[group] = group.generation

    @invariant()
    def groups_are_sound(self) -> None:
        for group in self.shell.partition.shard.groups.values():
            _check(group)

    @invariant()
    def timers_are_those_of_members_and_phases(self) -> None:
        """I-19"""
        expected: set[Any] = set()
        for group in self.shell.partition.shard.groups.values():
            expected |= {SessionTimer(group.group_id, member_id) for member_id in group.members}
            expected |= {PendingMemberTimer(group.group_id, member_id) for member_id in group.pending_members}
            if group.join_phase is not None:
                expected.add(JoinPhaseTimer(group.group_id))
            if group.pending_sync:
                expected.add(PendingSyncTimer(group.group_id))
        assert set(self.shell.timers) == expected

    @invariant()
    def pending_members_are_bounded_together(self) -> None:
        """What bounds them knows each of them."""
        shard = self.shell.partition.shard
        assert len(shard.context.pending_members) == sum(len(group.pending_members) for group in shard.groups.values())

    @invariant()
    def parked_requests_are_parked_once_and_bounded(self) -> None:
        """I-18: whatever is unanswered waits with a member for a timer, or for the log."""
        unanswered = set(range(1, self.shell.last_token + 1)) - set(self.shell.answers)
        parked: list[int] = []
        for group in self.shell.partition.shard.groups.values():
            for member in group.members.values():
                parked += [token for token in (member.parked_join, member.parked_sync) if token is not None]
        assert len(parked) == len(set(parked))
        assert set(parked) <= unanswered
        if not self.shell.held:
            assert set(parked) == unanswered

    @invariant()
    def the_log_says_what_the_coordinator_knows(self) -> None:
        """I-17 and I-16: a coordinator that takes over now knows the same."""
        other = self.shell.empty_partition()
        self.shell.load_into(other)
        mine = self.shell.partition.shard.durable
        assert (other.shard.durable.metadata, other.shard.durable.offsets) == (mine.metadata, mine.offsets)

    @invariant()
    def an_offset_is_the_last_in_the_log(self) -> None:
        """I-16, and T-12: whatever order appends were reported in."""
        for group_id in GROUPS:
            values = self.shell.appended_for(build_offset_commit_key(group_id, "t", 0), committed=True)
            expected = parse_offset_commit_value(values[-1]).offset if values and values[-1] is not None else -1
            assert self.shell.committed(group_id=group_id) == expected

    def teardown(self) -> None:
        """I-20: when faults stop, everything comes to rest; nothing is left waiting and no timer stays."""
        if not hasattr(self, "shell"):
            return
        while self.shell.held:
            self.shell.complete_append()
        self.shell.hold_appends = False
        self.shell.advance(2 * FIVE_MINUTES)
        for group_id in GROUPS:
            assert self.shell.state(group_id) in ("Empty", "Dead")
        assert self.shell.timers == {}
        assert set(range(1, self.shell.last_token + 1)) == set(self.shell.answers)

    def _snapshot(self, group_id: str) -> Any:
        group = self.shell.group(group_id)
        if group is None:
            return None
        deadlines = [member.session_deadline_ms for member in group.members.values()]
        return group.state, group.generation, group.metadata(), deadlines, len(self.shell.log)


def _check(group: ClassicGroup) -> None:
    parked_joins = [member for member in group.members.values() if member.parked_join is not None]
    assert len(parked_joins) == group.parked_joins
    assert not parked_joins or group.state is PREPARING_REBALANCE
    if group.state is not COMPLETING_REBALANCE:
        assert all(member.parked_sync is None for member in group.members.values())
    assert (group.join_phase is not None) == (group.state is PREPARING_REBALANCE)
    assert (group.pending_sync_deadline_ms is not None) == bool(group.pending_sync)
    assert not group.pending_sync or group.state in (COMPLETING_REBALANCE, STABLE)
    assert (group.leader_id in group.members) if group.members else group.leader_id is None
    assert not group.members or group.state in (PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE)
    assert group.members or group.state not in (COMPLETING_REBALANCE, STABLE)
    if group.state is EMPTY:
        assert group.protocol_name is None
    # I-14: one static member, one member id.
    expected = {member.group_instance_id: member.member_id for member in group.members.values() if member.is_static}
    assert expected == group.static_members
    assert all(key == member.member_id == member.timer_key.member_id for key, member in group.members.items())
    supporters: dict[str, int] = defaultdict(int)
    for member in group.members.values():
        for name in member.protocol_names:
            supporters[name] += 1
    assert supporters == dict(group.supporters)
    assert not NOTHING_YET
    if group.state in (COMPLETING_REBALANCE, STABLE):
        assert group.supporters[group.protocol_name] == len(group.members)


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
