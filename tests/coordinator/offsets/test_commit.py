"""Committed offsets (G27, §9)."""

import pytest

from ottla.coordinator.classic.group import NOTHING_YET
from ottla.coordinator.events import (
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
    TopicsDeleted,
)
from ottla.coordinator.results import CommitResult, FetchedOffset, FetchResult, PartitionError
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import WALL_START_MS, Client, Shell, simple_commit


def committed_to(error: ErrorCode) -> CommitResult:
    return CommitResult((PartitionError("t", 0, error),))


# Who may commit


def test_a_member_commits_and_everybody_can_fetch(shell: Shell) -> None:
    """G27"""
    (client,) = shell.stable_group("c1")
    offset = OffsetToCommit("t", 0, 42, leader_epoch=7, metadata="note")
    assert client.commit(0, offsets=(offset,)) is ErrorCode.NONE
    assert shell.fetch() == FetchedOffset("t", 0, 42, 7, "note", ErrorCode.NONE)


def test_a_simple_consumer_makes_a_group_by_committing(shell: Shell) -> None:
    """G27"""
    assert shell.commit(5) == committed_to(ErrorCode.NONE)
    assert shell.committed() == 5
    assert shell.state() == "Empty"
    assert shell.group().protocol_type is None


def test_an_unknown_group_has_no_generation(shell: Shell) -> None:
    """G27: §9.2.1"""
    assert shell.commit(5, generation=3) == committed_to(ErrorCode.ILLEGAL_GENERATION)
    answer = shell.commit(5, generation=3, supports_group_id_not_found=True)
    assert answer == committed_to(ErrorCode.GROUP_ID_NOT_FOUND)
    assert shell.group() is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "unknown", "group_instance_id": "instance", "generation": 9}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "other", "generation": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown", "group_instance_id": None, "generation": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "group_instance_id": None, "generation": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "", "group_instance_id": None, "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.NONE),
    ],
)
def test_order_of_checks_in_a_stable_group(shell: Shell, changes: dict, error: ErrorCode) -> None:
    """G27, T-1"""
    (client,) = shell.stable_group("c1", instance_id="instance")
    assert client.commit(1, **changes) is error
    assert shell.committed() == (1 if error is ErrorCode.NONE else -1)


def test_simple_commits_need_an_empty_group(shell: Shell) -> None:
    """G27"""
    (client,) = shell.stable_group("c1")
    assert shell.commit(5) == committed_to(ErrorCode.UNKNOWN_MEMBER_ID)
    client.leave()
    assert shell.commit(6) == committed_to(ErrorCode.NONE)
    assert client.commit(7) is ErrorCode.UNKNOWN_MEMBER_ID


def test_old_generation_may_commit_while_preparing(shell: Shell) -> None:
    """G27, T-3"""
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    assert c2.commit(9) is ErrorCode.NONE
    assert shell.committed() == 9


def test_member_cannot_commit_before_its_assignment(shell: Shell) -> None:
    """G27"""
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    c2.join()
    assert c2.joined.generation == 2
    assert c2.commit(9) is ErrorCode.REBALANCE_IN_PROGRESS
    assert c2.commit(9, generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_a_dead_group_takes_no_commit(shell: Shell) -> None:
    """G27"""
    shell.commit(5)
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert shell.commit(6) == committed_to(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_the_empty_group_id_may_commit_and_fetch(shell: Shell) -> None:
    assert shell.commit(5, group_id="") == committed_to(ErrorCode.NONE)
    assert shell.committed(group_id="") == 5


# What is stored, and when it shows


def test_long_metadata_is_refused_for_its_partition_only(shell: Shell) -> None:
    """G27"""
    offsets = (
        OffsetToCommit("t", 0, 1, metadata="x" * 4096),
        OffsetToCommit("t", 1, 2, metadata="x" * 4097),
        OffsetToCommit("t", 2, 3, metadata=None),
    )
    errors = [partition.error for partition in shell.commit(0, offsets=offsets).partitions]
    assert errors == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert [shell.committed(partition=i) for i in range(3)] == [1, -1, 3]
    assert shell.fetch(partition=2).metadata == ""


def test_metadata_is_measured_in_utf16_units(shell: Shell) -> None:
    offsets = (OffsetToCommit("t", 0, 1, metadata="😀" * 2048), OffsetToCommit("t", 1, 2, metadata="😀" * 2049))
    errors = [partition.error for partition in shell.commit(0, offsets=offsets).partitions]
    assert errors == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_nothing_is_appended_when_no_partition_is_left(shell: Shell) -> None:
    answer = shell.commit(0, offsets=(OffsetToCommit("t", 0, 1, metadata="x" * 4097),))
    assert answer == committed_to(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert shell.commit(0, offsets=(), group_id="other") == CommitResult(())
    assert shell.log == []
    assert shell.group("other") is None


@pytest.mark.parametrize("group_id", ["g", ""])
def test_group_is_there_though_its_first_commit_was_refused(shell: Shell, group_id: str) -> None:
    """As in Kafka 4.1. The log knows nothing of it, so it goes with the coordinator, or when groups expire."""
    too_large = (OffsetToCommit("t", 0, 1, metadata="x" * 4097),)
    shell.commit(0, offsets=too_large, group_id=group_id)
    listed = shell.send(ListGroups(shell.token(), (), ()))
    assert [(group.group_id, group.state) for group in listed.groups] == [(group_id, "Empty")]
    assert shell.send(DeleteGroup(shell.token(), group_id)).error is ErrorCode.NONE
    assert shell.group(group_id) is None
    shell.commit(0, offsets=too_large, group_id=group_id)
    shell.happen(ExpireOffsets())
    assert shell.group(group_id) is None
    assert shell.log == []


def test_all_partitions_of_a_request_go_into_one_batch(shell: Shell) -> None:
    shell.commit(0, offsets=tuple(OffsetToCommit("t", i, i) for i in range(5)))
    assert [len(batch.records) for batch in shell.log] == [5]


def test_an_offset_shows_only_once_the_log_has_it(shell: Shell) -> None:
    """G27"""
    shell.commit(1)
    shell.hold_appends = True
    assert shell.commit(2) is None
    assert shell.committed() == 1
    shell.complete_append()
    assert shell.committed() == 2


def test_of_commits_in_flight_the_later_in_the_log_wins(shell: Shell) -> None:
    """G27, T-12"""
    shell.hold_appends = True
    for offset in (1, 2, 3):
        shell.commit(offset)
    for append_id in sorted(shell.held, reverse=True):
        shell.complete_append(append_id)
        assert shell.committed() == 3
    assert len(shell.answers) >= 3


def test_earlier_commit_reported_later_does_not_undo_a_removal(shell: Shell) -> None:
    """T-12"""
    shell.commit(1)
    shell.hold_appends = True
    shell.commit(2)
    shell.send(DeleteOffsets(shell.token(), "g", (("t", (0,)),)))
    commit_id, delete_id = sorted(shell.held)
    shell.complete_append(delete_id)
    shell.complete_append(commit_id)
    assert shell.committed() == -1


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_commit_that_is_not_stored_fails_and_does_not_show(shell: Shell, error: ErrorCode, answer: ErrorCode) -> None:
    shell.commit(1)
    shell.fail_appends = error
    offsets = (OffsetToCommit("t", 0, 2), OffsetToCommit("t", 1, 3))
    assert [partition.error for partition in shell.commit(0, offsets=offsets).partitions] == [answer, answer]
    assert shell.committed() == 1


def test_commit_that_timed_out_shows_once_it_is_committed(shell: Shell) -> None:
    shell.fail_appends = ErrorCode.REQUEST_TIMED_OUT
    shell.commit(2)
    assert shell.committed() == -1
    shell.complete_append()
    assert shell.committed() == 2


def test_commit_has_the_coordinators_time_and_an_expiry(shell: Shell) -> None:
    """§9.2.8"""
    shell.advance(1_000)
    shell.commit(1)
    shell.commit(2, offsets=(OffsetToCommit("t", 1, 2, leader_epoch=5),), retention_time_ms=500)
    plain, expiring = shell.partition.shard.durable.offsets["g"].values()
    now = WALL_START_MS + 1_000
    assert plain.committed == (1, -1, "", now, -1)
    assert expiring.committed == (2, -1, "", now, now + 500)


def test_longest_retention_is_kept_and_does_not_overflow(shell: Shell) -> None:
    """Clients send the largest number for "for ever"; with the time it is no int64 any more."""
    shell.commit(1, retention_time_ms=2**63 - 1)
    (kept,) = shell.partition.shard.durable.offsets["g"].values()
    assert kept.committed.expire_timestamp_ms == 2**63 - 1


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_any_offset_is_taken(shell: Shell, offset: int) -> None:
    """§9.2.9"""
    shell.commit(offset)
    assert shell.committed() == offset


# Fetch


def test_a_missing_offset_is_no_error(shell: Shell) -> None:
    """G27"""
    missing = FetchedOffset("t", 0, -1, -1, "", ErrorCode.NONE)
    assert shell.fetch() == missing
    shell.stable_group("c1")
    assert shell.fetch() == missing


def test_no_topics_given_means_all_that_have_offsets(shell: Shell) -> None:
    shell.commit(1, offsets=(OffsetToCommit("t", 1, 1), OffsetToCommit("u", 0, 2)))
    result = shell.send(FetchOffsets(shell.token(), "g", None))
    assert [(found.topic, found.partition, found.offset) for found in result.partitions] == [("t", 1, 1), ("u", 0, 2)]
    assert shell.send(FetchOffsets(shell.token(), "unknown", None)) == FetchResult(ErrorCode.NONE, ())


def test_require_stable_waits_for_what_is_in_flight(shell: Shell) -> None:
    shell.commit(1)
    shell.hold_appends = True
    shell.commit(2)
    assert shell.fetch(require_stable=True) == FetchedOffset("t", 0, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert shell.fetch(partition=1, require_stable=True).error is ErrorCode.NONE
    shell.complete_append()
    assert shell.fetch(require_stable=True).offset == 2


def test_group_being_deleted_shows_its_offsets_until_it_is(shell: Shell) -> None:
    """T-10: -1 sends consumers to their reset policy, and the deletion may yet fail."""
    shell.commit(7)
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert shell.committed() == 7
    shell.complete_append()
    assert shell.committed() == -1


@pytest.mark.parametrize("phase", ["loading", "failed", "unloaded"])
def test_coordinator_that_is_not_loaded_answers_no_offset(shell: Shell, phase: str) -> None:
    """T-10"""
    shell.commit(7)
    if phase == "unloaded":
        shell.unload()
    else:
        shell.partition = shell.empty_partition()
        if phase == "failed":
            shell.partition.fail_loading()
    loading = phase == "loading"
    assert shell.fetch().error is (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)


def test_offsets_survive_a_move_of_the_coordinator(shell: Shell) -> None:
    """G27"""
    (client,) = shell.stable_group("c1")
    client.commit(42)
    shell.move_coordinator()
    assert shell.committed() == 42
    assert client.heartbeat() is ErrorCode.NONE
    assert client.commit(43) is ErrorCode.NONE


def test_commit_in_flight_when_coordinator_moves_is_refused(shell: Shell) -> None:
    shell.hold_appends = True
    event = simple_commit(shell.token(), 5)
    shell.send(event)
    shell.move_coordinator()
    assert shell.answers[event.token] == committed_to(ErrorCode.NOT_COORDINATOR)
    assert shell.committed() == 5


def test_deleted_topics_lose_their_offsets_in_every_group(shell: Shell) -> None:
    """§9.7.4"""
    (client,) = shell.stable_group("c1")
    client.commit(1)
    shell.commit(2, group_id="simple", offsets=(OffsetToCommit("t", 1, 2), OffsetToCommit("u", 0, 3)))
    shell.hold_appends = True
    shell.send(simple_commit(shell.token(), 9, group_id="late"))
    shell.hold_appends = False

    shell.happen(TopicsDeleted(("t", "unheard-of")))
    shell.complete_append()

    assert shell.committed() == shell.committed(partition=1, group_id="simple") == -1
    assert shell.committed(group_id="late") == -1
    assert shell.committed("u", group_id="simple") == 3


def test_groups_that_only_commit_share_what_they_do_not_need(shell: Shell) -> None:
    """A broker may have hundreds of thousands of them. A member of one is in no other."""
    for group_id in ("g", "other"):
        shell.send(simple_commit(shell.token(), 5, group_id=group_id))
    durable = shell.partition.shard.durable
    (of_one,), (of_other,) = durable.offsets["g"], durable.offsets["other"]
    group, other = (shell.partition.shard.groups[group_id] for group_id in ("g", "other"))

    assert of_one[0] is of_other[0]
    assert group.members is other.members is group.supporters is NOTHING_YET
    with pytest.raises(TypeError, match="'m' is put into what all groups share"):
        other.members["m"] = None
    Client(shell, "app").join()
    assert list(shell.group().members) == ["app-0001"]
    assert not other.members
    assert not NOTHING_YET
