"""Offsets that are committed in transactions (§9.3, §46)."""

import pytest

from ottla.coordinator.events import (
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
    TopicsDeleted,
)
from ottla.coordinator.records import build_group_metadata_key
from ottla.coordinator.results import CommitResult, FetchedOffset, PartitionError
from ottla.coordinator.runtime.effects import Append, ProducerIdAndEpoch
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Shell

RETENTION_MS = 7 * 24 * 3_600_000
UNSTABLE = FetchedOffset("t", 0, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def stored(error: ErrorCode = ErrorCode.NONE) -> CommitResult:
    return CommitResult((PartitionError("t", 0, error),))


def stable(shell: Shell) -> FetchedOffset:
    return shell.fetch(require_stable=True)


def pending_commit(shell: Shell, offset: int = 2) -> None:
    """1 is committed, `offset` is pending."""
    shell.commit(1)
    assert shell.commit_in_transaction(offset) == stored()


def after_reload(shell: Shell) -> FetchedOffset:
    shell.restart_partition()
    return shell.fetch()


# What is appended


def test_the_batch_names_the_producer(shell: Shell) -> None:
    shell.commit(1)
    shell.commit_in_transaction(2, producer_id=9)

    appends = [effect for effect in shell.effects if isinstance(effect, Append)]
    assert [append.producer for append in appends] == [None, ProducerIdAndEpoch(9, 0)]


def test_commit_of_nothing_that_can_be_stored_appends_nothing(shell: Shell) -> None:
    answer = shell.commit_in_transaction(0, offsets=(OffsetToCommit("t", 0, 1, metadata="x" * 4097),))

    assert answer == stored(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert shell.log == []


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_commit_that_is_not_stored_is_not_pending(shell: Shell, error: ErrorCode, answer: ErrorCode) -> None:
    shell.fail_appends = error

    assert shell.commit_in_transaction(2) == stored(answer)
    assert stable(shell) == FetchedOffset("t", 0)


# When it shows


@pytest.mark.parametrize(("commit", "offset"), [(True, 2), (False, 1)])
def test_marker_decides_what_readers_see(shell: Shell, commit: bool, offset: int) -> None:
    pending_commit(shell)
    assert shell.committed() == 1
    assert stable(shell) == UNSTABLE

    shell.write_marker(7, commit=commit)

    assert shell.committed() == stable(shell).offset == offset
    assert after_reload(shell).offset == offset


def test_all_offsets_of_a_transaction_show_at_once(shell: Shell) -> None:
    for partition in range(3):
        shell.commit_in_transaction(0, offsets=(OffsetToCommit("t", partition, partition + 10),))
    shell.commit_in_transaction(0, group_id="h", offsets=(OffsetToCommit("t", 0, 20),))
    shell.write_marker(7, commit=True)

    assert [shell.committed(partition=index) for index in range(3)] == [10, 11, 12]
    assert shell.committed(group_id="h") == 20


def test_the_last_offset_of_a_producer_for_a_partition_counts(shell: Shell) -> None:
    pending_commit(shell, 2)
    shell.commit_in_transaction(3)
    shell.write_marker(7, commit=True)

    assert shell.committed() == after_reload(shell).offset == 3


def test_later_plain_commit_wins_over_the_transaction(shell: Shell) -> None:
    """By the place in the log, not by the moment in which it shows."""
    pending_commit(shell, 2)
    shell.commit(9)
    shell.write_marker(7, commit=True)

    assert shell.committed() == after_reload(shell).offset == 9


def test_of_two_transactions_the_later_record_wins(shell: Shell) -> None:
    shell.commit_in_transaction(1, producer_id=7)
    shell.commit_in_transaction(2, producer_id=8)
    shell.write_marker(8, commit=True)
    assert shell.committed() == 2
    assert stable(shell) == UNSTABLE

    shell.write_marker(7, commit=True)

    assert stable(shell).offset == after_reload(shell).offset == 2


def test_marker_ends_the_transaction_of_its_producer_only(shell: Shell) -> None:
    shell.commit_in_transaction(1, producer_id=7)
    shell.write_marker(8, commit=True)
    shell.write_marker(8, commit=False)

    assert shell.committed() == -1
    assert stable(shell) == UNSTABLE


def test_next_transaction_is_not_ended_by_the_last_marker(shell: Shell) -> None:
    shell.commit_in_transaction(1)
    shell.write_marker(7, commit=True)
    shell.commit_in_transaction(2)

    assert shell.committed() == 1
    shell.write_marker(7, commit=False)
    assert stable(shell).offset == 1


def test_commit_is_unstable_before_the_log_has_it(shell: Shell) -> None:
    """§46.7"""
    shell.commit(1)
    shell.hold_appends = True
    assert shell.commit_in_transaction(2) is None

    assert stable(shell) == UNSTABLE
    shell.write_marker(7, commit=True)
    shell.complete_append()
    assert stable(shell) == UNSTABLE
    shell.complete_append()
    assert stable(shell).offset == 2


def test_commit_that_timed_out_is_ended_by_its_marker(shell: Shell) -> None:
    shell.fail_appends = ErrorCode.REQUEST_TIMED_OUT
    shell.commit_in_transaction(2)
    shell.complete_append()
    assert stable(shell) == UNSTABLE

    shell.write_marker(7, commit=False)

    assert stable(shell) == FetchedOffset("t", 0)


def test_aborted_commit_does_not_hide_an_earlier_one_in_flight(shell: Shell) -> None:
    """Answered in the wrong order, a transaction's record must not count as a later commit."""
    shell.hold_appends = True
    shell.commit(1)
    shell.commit_in_transaction(2)
    first, second = shell.held
    shell.complete_append(second)
    shell.complete_append(first)
    shell.hold_appends = False
    shell.write_marker(7, commit=False)

    assert shell.committed() == 1


def test_all_topics_stable_looks_at_committed_offsets(shell: Shell) -> None:
    """§46.6: of a partition that has only a pending offset nothing is said."""
    pending_commit(shell)
    shell.commit_in_transaction(5, offsets=(OffsetToCommit("t", 1, 5),))
    result = shell.send(FetchOffsets(shell.token(), "g", None, require_stable=True))

    assert result.partitions == (UNSTABLE,)


# Who may commit (KIP-447)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "unknown", "group_instance_id": "instance"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "", "group_instance_id": None, "generation": -1}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ],
)
def test_group_fences_producers_of_former_members(shell: Shell, changes: dict, error: ErrorCode) -> None:
    """§46.3; a producer that names no member is not fenced."""
    (client,) = shell.stable_group("c1", instance_id="instance")

    assert client.commit(1, producer=ProducerIdAndEpoch(7, 0), **changes) is error
    assert (stable(shell) == UNSTABLE) is (error is ErrorCode.NONE)


def test_unknown_group_takes_commits_without_generation_only(shell: Shell) -> None:
    assert shell.commit_in_transaction(1, generation=0) == stored(ErrorCode.ILLEGAL_GENERATION)
    assert shell.group() is None
    assert shell.commit_in_transaction(1) == stored()
    assert shell.state() == "Empty"


def test_dead_group_takes_no_commit_in_a_transaction(shell: Shell) -> None:
    shell.commit(1)
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))

    assert shell.commit_in_transaction(2) == stored(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_transaction_needs_a_group_id(shell: Shell) -> None:
    assert shell.commit_in_transaction(1, group_id="") == stored(ErrorCode.INVALID_GROUP_ID)


def test_member_commits_in_transaction_before_its_assignment(shell: Shell) -> None:
    """§46.3: what CompletingRebalance refuses outside of one."""
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    c2.join()
    assert c2.joined.generation == 2

    assert c2.commit(9, producer=ProducerIdAndEpoch(7, 0)) is ErrorCode.NONE
    assert c2.commit(9, generation=1, producer=ProducerIdAndEpoch(7, 0)) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("producer", "state"), [(None, "Stable"), (ProducerIdAndEpoch(7, 0), "Empty")])
def test_commit_in_a_transaction_renews_no_session(
    shell: Shell, producer: ProducerIdAndEpoch | None, state: str
) -> None:
    (client,) = shell.stable_group("c1", session_timeout_ms=10_000)
    shell.advance(9_000)
    client.commit(1, producer=producer)
    shell.advance(2_000)

    assert shell.state() == state


def test_zombie_that_was_replaced_cannot_commit(shell: Shell) -> None:
    """§46.10: what was accepted before the rebalance stays valid."""
    (old,) = shell.stable_group("c1")
    assert old.commit(5, producer=ProducerIdAndEpoch(7, 0)) is ErrorCode.NONE
    old.leave()
    (new,) = shell.stable_group("c2")

    assert old.commit(6, producer=ProducerIdAndEpoch(7, 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.generation > old.generation
    assert stable(shell) == UNSTABLE
    shell.write_marker(7, commit=True)
    assert stable(shell).offset == 5


# What removes offsets


def test_offset_delete_removes_pending_offsets_too(shell: Shell) -> None:
    """No later marker revives them."""
    pending_commit(shell)
    shell.commit_in_transaction(3, producer_id=8)
    shell.commit_in_transaction(4, offsets=(OffsetToCommit("t", 1, 4),))
    shell.send(DeleteOffsets(shell.token(), "g", (("t", (0, 1, 2)),)))
    assert [len(batch.records) for batch in shell.log][-1] == 3
    assert stable(shell) == FetchedOffset("t", 0)
    for producer_id in (7, 8):
        shell.write_marker(producer_id, commit=True)

    assert shell.committed() == shell.committed(partition=1) == -1
    assert after_reload(shell).offset == -1


def test_group_with_only_pending_offsets_is_deleted_for_good(shell: Shell) -> None:
    shell.commit_in_transaction(2)
    assert shell.send(DeleteGroup(shell.token(), "g")).error is ErrorCode.NONE
    shell.write_marker(7, commit=True)

    assert shell.group() is None
    assert shell.committed() == after_reload(shell).offset == -1


def test_deletion_takes_offsets_of_transactions_in_flight(shell: Shell) -> None:
    shell.commit(1)
    shell.hold_appends = True
    shell.commit_in_transaction(2)
    shell.send(DeleteGroup(shell.token(), "g"))
    shell.hold_appends = False
    shell.complete_append()
    shell.complete_append()
    shell.write_marker(7, commit=True)

    assert shell.committed() == after_reload(shell).offset == -1


def test_deleted_topic_takes_pending_offsets_along(shell: Shell) -> None:
    shell.commit_in_transaction(2, group_id="only pending")
    shell.happen(TopicsDeleted(("t",)))
    shell.write_marker(7, commit=True)

    assert shell.committed(group_id="only pending") == -1


def test_commit_after_the_deletion_stays(shell: Shell) -> None:
    shell.commit_in_transaction(2)
    shell.happen(TopicsDeleted(("t",)))
    shell.commit_in_transaction(3)
    shell.write_marker(7, commit=True)

    assert shell.committed() == after_reload(shell).offset == 3


def test_group_with_pending_offsets_is_not_expired(shell: Shell) -> None:
    """§46.9: nor is the offset that a pending one is to replace."""
    pending_commit(shell)
    shell.commit_in_transaction(5, group_id="only pending")
    shell.advance(RETENTION_MS)
    shell.happen(ExpireOffsets())
    assert shell.committed() == 1
    assert shell.state("only pending") == "Empty"

    shell.write_marker(7, commit=False)
    shell.happen(ExpireOffsets())

    assert shell.group() is shell.group("only pending") is None
    assert after_reload(shell).offset == -1


def test_generation_of_an_empty_group_lasts_as_its_transaction(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    client.commit(5, producer=ProducerIdAndEpoch(7, 0))
    client.leave()
    shell.advance(RETENTION_MS)
    shell.happen(ExpireOffsets())

    assert shell.group().generation == 2
    assert shell.appended_for(build_group_metadata_key("g"))[-1] is not None
    shell.write_marker(7, commit=True)
    assert shell.committed() == after_reload(shell).offset == 5


# Groups as others see them, and moves


def test_descriptions_of_groups_do_not_depend_on_transactions(shell: Shell) -> None:
    shell.commit(1)
    before = [shell.send(event(shell.token())) for event in (ListGroups, lambda token: DescribeGroup(token, "g"))]
    shell.commit_in_transaction(2)

    after = [shell.send(event(shell.token())) for event in (ListGroups, lambda token: DescribeGroup(token, "g"))]
    assert after == before


def test_new_coordinator_waits_for_the_marker(shell: Shell) -> None:
    """§46.8"""
    shell.commit_in_transaction(2)
    shell.move_coordinator()
    assert shell.state() == "Empty"
    assert stable(shell) == UNSTABLE

    shell.write_marker(7, commit=True)

    assert stable(shell).offset == 2


def test_commit_in_flight_when_the_coordinator_moves_is_pending(shell: Shell) -> None:
    shell.hold_appends = True
    shell.commit_in_transaction(2)
    shell.move_coordinator()
    assert shell.answers[shell.last_token] == stored(ErrorCode.NOT_COORDINATOR)

    assert stable(shell) == UNSTABLE


def test_coordinator_that_has_resigned_ignores_markers(shell: Shell) -> None:
    pending_commit(shell)
    shell.unload()
    shell.write_marker(7, commit=True)

    assert not shell.partition.shard.durable.knows("g")
    assert after_reload(shell).offset == 2
