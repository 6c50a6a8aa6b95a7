"""Taking a partition on from its log (§4.4, G18, R11)."""

import pytest

from ottla.coordinator.classic.causes import JoinPhaseTimer, SessionTimer
from ottla.coordinator.events import ExpireOffsets
from ottla.coordinator.facts import Cause, GroupLoaded, RebalanceStarted, RecordsSkipped
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.records import (
    CommittedOffset,
    build_group_metadata_key,
    build_offset_commit_key,
    build_offset_commit_value,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import DecodeError
from tests.coordinator.harness import NO_DELAY, Shell

KEY = build_offset_commit_key("g", "t", 0)


def value(offset: int) -> bytes:
    return build_offset_commit_value(CommittedOffset(offset, -1, "", 1000))


class Loading(Shell):
    """A shell whose partition is still being loaded."""

    def restart_partition(self) -> None:
        super().restart_partition()
        self.partition = self.empty_partition()

    def finish(self) -> None:
        self.facts.clear()
        self.finish_loading()


def test_loaded_stable_group_has_everything_that_was_stored(shell: Shell) -> None:
    leader, follower = shell.stable_group("c1", "c2", instance_id=None)
    leader.commit(5)
    before = shell.group().metadata()

    shell.move_coordinator()

    assert shell.state() == "Stable"
    assert shell.group().metadata() == before
    assert follower.sync().assignment == b"c2"
    (loaded,) = shell.facts_of(GroupLoaded)
    assert (loaded.generation, loaded.state, loaded.members, loaded.offsets) == (1, "Stable", 2, 1)
    assert set(shell.timers) == {SessionTimer("g", leader.member_id), SessionTimer("g", follower.member_id)}


def test_an_empty_group_comes_back_empty_with_its_generation(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    client.leave()
    shell.move_coordinator()
    group = shell.group()
    assert (group.state, group.generation, group.protocol_type, group.protocol_name) == ("Empty", 2, "consumer", None)
    newcomer = shell.client("c2")
    newcomer.join()
    shell.advance(0)
    assert newcomer.joined.generation == 3


def test_offsets_without_metadata_make_a_simple_group(shell: Shell) -> None:
    shell.commit(5)
    shell.move_coordinator()
    assert (shell.state(), shell.group().protocol_type, shell.committed()) == ("Empty", None, 5)


def test_rebalance_under_way_begins_again_after_loading(shell: Shell) -> None:
    """§11.6: a crash loses only membership that the clients rebuild."""
    leader, follower = shell.stable_group("c1", "c2")
    leader.join()
    follower.join()
    assert leader.joined.generation == 2
    shell.restart_partition()
    assert (shell.state(), shell.group().generation) == ("Stable", 1)
    assert follower.heartbeat(generation=2) is ErrorCode.ILLEGAL_GENERATION
    leader.join()
    assert shell.state() == "PreparingRebalance"


def test_static_members_come_back(shell: Shell) -> None:
    leader = shell.client("c1", instance_id="instance")
    leader.join()
    shell.advance(0)
    leader.sync_all([leader])
    shell.move_coordinator()
    again = shell.client("c1", instance_id="instance")
    again.join()
    assert again.joined.generation == 1
    assert again.sync().assignment == b"c1"
    assert leader.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_loaded_group_over_its_size_rebalances(shell: Shell) -> None:
    clients = shell.stable_group("c1", "c2", "c3")
    shell.config = GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2)

    shell.move_coordinator()

    assert shell.state() == "PreparingRebalance"
    assert [fact.cause for fact in shell.facts_of(RebalanceStarted)] == [Cause.GROUP_OVER_SIZE]
    assert JoinPhaseTimer("g") in shell.timers
    clients[0].join()
    clients[1].join()
    assert clients[2].join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert clients[0].joined.generation == 2


def test_the_last_record_of_a_key_counts_and_a_tombstone_removes() -> None:
    shell = Loading()
    for offset, record in enumerate([value(1), value(2), None, value(3)]):
        shell.partition.replay(KEY, record, offset)
    shell.partition.replay(build_offset_commit_key("g", "t", 1), value(1), 4)
    shell.partition.replay(build_offset_commit_key("g", "t", 1), None, 5)
    shell.partition.replay(build_group_metadata_key("never"), None, 6)
    shell.finish()
    assert (shell.committed(), shell.committed(partition=1)) == (3, -1)
    assert list(shell.partition.shard.groups) == ["g"]


def test_unread_records_are_skipped_and_reported() -> None:
    shell = Loading()
    records = [
        (b"\0\3\0\1g", b"\0\0\0\0\0\1\0"),
        (b"\0\3\0\1h", b"\0\0\0\0\0\1\0"),
        (b"\0\x0b\0\1g", b""),
        (KEY, b"\0\x63"),
        (build_group_metadata_key("g"), b"\0\x63"),
    ]
    for offset, (key, content) in enumerate(records, 10):
        shell.partition.replay(key, content, offset)
    shell.finish()
    assert [(fact.count, fact.first_record_offset) for fact in shell.facts_of(RecordsSkipped)] == [
        (2, 10),
        (1, 12),
        (1, 13),
        (1, 14),
    ]
    assert shell.partition.shard.groups == {}


def test_a_record_that_breaks_its_layout_fails_the_load_closed() -> None:
    shell = Loading()
    shell.partition.replay(KEY, value(1), 0)
    with pytest.raises(DecodeError):
        shell.partition.replay(KEY, b"\0\3\0", 1)
    shell.partition.fail_loading()
    assert shell.partition.phase is Phase.FAILED
    assert shell.fetch().error is ErrorCode.NOT_COORDINATOR


def test_giving_up_while_loading_drops_what_was_loaded() -> None:
    shell = Loading()
    shell.partition.replay(KEY, value(1), 0)
    shell.unload()
    assert not shell.partition.shard.durable.knows("g")


# Offsets of transactions (§4.4.3)


def transactional(*offsets: int, producer_id: int = 7) -> Loading:
    shell = Loading()
    shell.partition.replay(KEY, value(1), 0)
    for record_offset, offset in enumerate(offsets, 1):
        shell.partition.replay(KEY, value(offset), record_offset, producer_id)
    return shell


def test_offsets_of_a_transaction_show_when_it_is_committed() -> None:
    shell = transactional(2, 3)
    list(shell.partition.replay_marker(7, commit=True))
    shell.finish()
    assert shell.committed() == 3


def test_offsets_of_a_transaction_vanish_when_it_is_aborted() -> None:
    shell = transactional(2)
    list(shell.partition.replay_marker(7, commit=False))
    list(shell.partition.replay_marker(8, commit=True))
    shell.finish()
    assert shell.committed() == 1


def test_a_plain_commit_after_a_transactional_one_wins() -> None:
    shell = transactional(2)
    shell.partition.replay(KEY, value(9), 5)
    list(shell.partition.replay_marker(7, commit=True))
    shell.finish()
    assert shell.committed() == 9


def test_offsets_of_open_transaction_stay_pending_and_unstable() -> None:
    shell = transactional(2)
    shell.finish()
    assert shell.committed() == 1
    assert shell.fetch(require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert shell.fetch(partition=1, require_stable=True).error is ErrorCode.NONE
    shell.advance(8 * 24 * 3_600_000)
    shell.happen(ExpireOffsets())
    assert shell.committed() == 1


def test_a_partition_is_loaded_once() -> None:
    partition = CoordinatorPartition(GroupShard(NO_DELAY, str))
    partition.finish_loading(0, 0)
    with pytest.raises(AssertionError, match="ACTIVE"):
        partition.replay(KEY, value(1), 0)
    with pytest.raises(AssertionError, match="ACTIVE"):
        partition.finish_loading(0, 0)
