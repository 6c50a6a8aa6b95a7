"""Plain and transactional commits, removals and markers, against a model that reads the log from its beginning.

The model knows no producer table: an offset is committed if it is the last one in the log that is plain, or whose next
marker of its producer commits; it is pending while there is no such marker. It is asked after every step for what the
high watermark has passed, and at the end about every prefix of the log.
"""

from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.coordinator.durable_state import DurableState
from ottla.coordinator.events import DeleteGroup, DeleteOffsets, ExpireOffsets, OffsetToCommit, TopicsDeleted
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.records import OffsetCommitKey, parse_key, parse_offset_commit_value
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Batch, Shell
from tests.coordinator.test_replay import step

GROUPS = ("g", "h")
PRODUCERS = (7, 8)
PARTITIONS = (0, 1)
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=1)
KEYS = tuple((group_id, "t", partition) for group_id in GROUPS for partition in PARTITIONS)

Key = tuple[str, str, int]
Committed = dict[Key, tuple[int, bool]]
"""Offsets, and whether they were committed in a transaction."""
Pending = set[Key]


key_of = cache(parse_key)


def model(log: list[Batch]) -> tuple[Committed, Pending]:
    """What the log says of each key, looked up by going through all of it."""
    committed: Committed = {}
    pending: Pending = set()
    for key in KEYS:
        values = [
            (parse_offset_commit_value(value).offset, batch, index)  # type: ignore[union-attr]
            for index, batch in enumerate(log)
            for value in _values_since_removal(log, key, index)
        ]
        outcomes = [
            ((offset, batch.producer_id is not None), _outcome(log, batch, index)) for offset, batch, index in values
        ]
        final = [committed_as for committed_as, outcome in outcomes if outcome]
        if final:
            committed[key] = final[-1]
        if any(outcome is None for _, outcome in outcomes):
            pending.add(key)
    return committed, pending


def _values_since_removal(log: list[Batch], key: Key, index: int) -> list[bytes]:
    of_key = [record.value for record in log[index].records if key_of(record.key) == OffsetCommitKey(*key)]
    removed_later = any(
        record.value is None and key_of(record.key) == OffsetCommitKey(*key)
        for batch in log[index:]
        for record in batch.records
    )
    return [] if removed_later else [value for value in of_key if value is not None]


def _outcome(log: list[Batch], batch: Batch, index: int) -> bool | None:
    if batch.producer_id is None:
        return True
    markers = [each.marker for each in log[index:] if each.marker is not None and each.producer_id == batch.producer_id]
    return markers[0] if markers else None


class TransactionWorld:
    """A shell whose log answers in order, late or after its timeout, and producers that commit for simple groups."""

    def __init__(self) -> None:
        self.shell = Shell(CONFIG)

    def commit(self, group_id: str, partitions: tuple[int, ...], producer_id: int | None) -> None:
        offsets = tuple(OffsetToCommit("t", partition, 10 * self.shell.next_offset) for partition in partitions)
        commit = self.shell.commit if producer_id is None else self.shell.commit_in_transaction
        changes: dict[str, Any] = {} if producer_id is None else {"producer_id": producer_id}
        commit(0, group_id=group_id, offsets=offsets, **changes)

    def end(self, producer_id: int, commit: bool) -> None:
        self.shell.write_marker(producer_id, commit=commit)

    def delete_offsets(self, group_id: str, partition: int) -> None:
        self.shell.send(DeleteOffsets(self.shell.token(), group_id, (("t", (partition,)),)))

    def delete_group(self, group_id: str) -> None:
        self.shell.send(DeleteGroup(self.shell.token(), group_id))

    def delete_topic(self) -> None:
        self.shell.happen(TopicsDeleted(("t",)))

    def expire(self) -> None:
        self.shell.advance(CONFIG.offsets_retention_ms)
        self.shell.happen(ExpireOffsets())

    def hold(self, hold: bool) -> None:
        if not hold:
            self.answer_all()
        self.shell.hold_appends = hold

    def answer(self) -> None:
        if self.shell.held:
            self.shell.complete_append()

    def time_out(self) -> None:
        """Of the oldest append; a marker is not the coordinator's to time out."""
        if self.shell.held and (oldest := next(iter(self.shell.held))) > 0:
            self.shell.fail_append(ErrorCode.REQUEST_TIMED_OUT, oldest)

    def fail_over(self) -> None:
        self.shell.move_coordinator()

    def answer_all(self) -> None:
        while self.shell.held:
            self.shell.complete_append()

    @property
    def passed(self) -> list[Batch]:
        return [batch for batch in self.shell.log if batch.committed]


COMMITS = step(
    "commit",
    st.sampled_from(GROUPS),
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.sampled_from([None, *PRODUCERS]),
)
ENDS = step("end", st.sampled_from(PRODUCERS), st.booleans())
OTHERS = st.one_of(
    step("delete_offsets", st.sampled_from(GROUPS), st.sampled_from(PARTITIONS)),
    step("delete_group", st.sampled_from(GROUPS)),
    step("delete_topic"),
    step("expire"),
    step("hold", st.booleans()),
    step("answer"),
    step("time_out"),
    step("fail_over"),
)
# `one_of` would draw each kind of step as often as the others.
STEPS = st.sampled_from([COMMITS, COMMITS, ENDS, OTHERS]).flatmap(lambda steps: steps)


def state_of(durable: DurableState) -> tuple[Committed, Pending]:
    committed = {
        (group_id, *partition): (logged.committed.offset, logged.is_transactional)
        for group_id, offsets in durable.offsets.items()
        for partition, logged in offsets.items()
    }
    pending = {
        (group_id, *partition)
        for group_id in durable.pending.group_ids()
        for partition in durable.pending.partitions_of(group_id)
    }
    return committed, pending


def loaded(shell: Shell, log: list[Batch]) -> DurableState:
    partition = shell.empty_partition()
    for batch in log:
        batch.replay_into(partition)
    return partition.shard.durable


def check(world: TransactionWorld) -> None:
    """I-17"""
    shell = world.shell
    assert state_of(shell.partition.shard.durable) == model(world.passed)
    in_flight = {key_of(record.key) for batch in shell.held.values() for record in batch.records}
    committed, pending = model(world.passed)
    for group_id, topic, partition in KEYS:
        key = (group_id, topic, partition)
        assert shell.committed(topic, partition, group_id) == committed.get(key, (-1, False))[0]
        if OffsetCommitKey(*key) not in in_flight:
            found = shell.fetch(topic, partition, group_id=group_id, require_stable=True)
            assert (found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT) is (key in pending)
        if key in pending:
            assert shell.group(group_id) is not None, "a group with pending offsets exists"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=8, max_size=24))
def test_offsets_of_transactions_are_what_the_log_says(steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    world = TransactionWorld()
    for name, arguments in steps:
        getattr(world, name)(*arguments)
        check(world)
    world.answer_all()
    check(world)
    log = world.shell.log
    for end in range(len(log) + 1):
        assert state_of(loaded(world.shell, log[:end])) == model(log[:end])
