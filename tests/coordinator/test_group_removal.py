"""Offsets that expire, groups that are deleted (G23, G27, §9.7, §10.3)."""

import pytest

from ottla.coordinator.events import DeleteGroup, ExpireOffsets, OffsetToCommit
from ottla.coordinator.facts import OffsetsRemoved
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.records import build_group_metadata_key, build_offset_commit_key
from ottla.coordinator.results import DeleteResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Shell, short_subscription, subscription

HOUR = 3_600_000
GROUP_KEY = build_group_metadata_key("g")
OFFSET_KEY = build_offset_commit_key("g", "t", 0)


@pytest.fixture
def shell() -> Shell:
    """Offsets are kept for an hour."""
    return Shell(GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=60))


def expire(shell: Shell) -> None:
    shell.happen(ExpireOffsets())


def heartbeat_for(shell: Shell, client: object, duration_ms: int) -> None:
    for _ in range(duration_ms // 5_000):
        shell.advance(5_000)
        assert client.heartbeat() is ErrorCode.NONE


def test_emptied_group_keeps_its_offsets_for_a_whole_retention(shell: Shell) -> None:
    """G27"""
    (client,) = shell.stable_group("c1")
    client.commit(1)
    heartbeat_for(shell, client, HOUR)
    client.leave()
    shell.advance(HOUR - 1)
    expire(shell)
    assert shell.committed() == 1
    shell.advance(1)
    expire(shell)
    assert shell.committed() == -1
    assert shell.group() is None
    assert shell.appended_for(GROUP_KEY)[-1] is None
    assert shell.appended_for(OFFSET_KEY)[-1] is None


def test_retention_goes_on_when_the_coordinator_moves(shell: Shell) -> None:
    """G27: §9.7.5"""
    (client,) = shell.stable_group("c1")
    client.commit(1)
    client.leave()
    shell.advance(HOUR - 1)
    shell.move_coordinator()
    expire(shell)
    assert shell.committed() == 1
    shell.advance(1)
    expire(shell)
    assert shell.committed() == -1


@pytest.mark.parametrize("written", [subscription("t"), short_subscription("t")], ids=["whole", "short"])
def test_a_stable_group_loses_only_what_it_no_longer_reads(shell: Shell, written: bytes) -> None:
    """G27"""
    (client,) = shell.stable_group("c1", protocols=(("range", written),))
    client.commit(1)
    client.commit(2, topic="old")
    heartbeat_for(shell, client, HOUR)
    expire(shell)
    assert (shell.committed("t"), shell.committed("old")) == (1, -1)
    assert shell.facts_of(OffsetsRemoved) == [OffsetsRemoved(group_id="g", partitions=1, reason="expired")]


@pytest.mark.parametrize(
    "settings",
    [{"protocols": (("range", b"unreadable"),)}, {"protocol_type": "connect"}],
    ids=["unreadable", "connect"],
)
def test_nothing_expires_when_it_is_unknown_what_is_read(shell: Shell, settings: dict) -> None:
    """G27"""
    (client,) = shell.stable_group("c1", **settings)
    client.commit(2, topic="old")
    heartbeat_for(shell, client, HOUR)
    expire(shell)
    assert shell.committed("old") == 2


def test_nothing_expires_during_a_rebalance(shell: Shell) -> None:
    """G27"""
    c1, c2 = shell.stable_group("c1", "c2", session_timeout_ms=1_800_000, rebalance_timeout_ms=3 * HOUR)
    c1.commit(2, topic="old")
    shell.advance(HOUR // 2 - 1)
    c1.heartbeat()
    c2.heartbeat()
    c1.join()
    shell.advance(HOUR // 2 - 1)
    c2.heartbeat()
    shell.advance(10)
    assert shell.state() == "PreparingRebalance"
    expire(shell)
    assert shell.committed("old") == 2


def test_offset_of_simple_group_expires_after_its_commit(shell: Shell) -> None:
    """G27"""
    shell.commit(1)
    shell.advance(HOUR // 2)
    shell.commit(2, offsets=(OffsetToCommit("t", 1, 2),))
    shell.advance(HOUR // 2)
    expire(shell)
    assert [shell.committed(partition=i) for i in (0, 1)] == [-1, 2]
    assert shell.state() == "Empty"
    shell.advance(HOUR // 2)
    expire(shell)
    assert shell.group() is None
    assert shell.appended_for(GROUP_KEY) == [], "it never had metadata"


def test_an_expiry_of_its_own_comes_before_the_retention(shell: Shell) -> None:
    shell.commit(1, retention_time_ms=1_000)
    shell.advance(1_000)
    expire(shell)
    assert shell.committed() == -1


def test_an_offset_with_a_newer_commit_in_flight_does_not_expire(shell: Shell) -> None:
    shell.commit(1)
    shell.advance(HOUR)
    shell.hold_appends = True
    shell.commit(2)
    expire(shell)
    assert len(shell.held) == 1
    shell.complete_append()
    assert shell.committed() == 2


def test_an_expiry_that_fails_is_tried_again(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    client.commit(1)
    client.leave()
    shell.advance(HOUR)
    shell.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    expire(shell)
    assert (shell.state(), shell.committed(), shell.group().generation) == ("Empty", 1, 2)
    shell.fail_appends = None
    expire(shell)
    assert shell.group() is None


def test_a_group_that_never_had_anything_goes_without_a_trace(shell: Shell) -> None:
    client = shell.client("c1", knows_member_ids=True)
    shell.send(client.join_event(shell.token()))
    expire(shell)
    assert shell.state() == "Empty", "its promised member may yet join"
    shell.advance(10_000)
    expire(shell)
    assert shell.group() is None
    assert shell.log == []


# Deletion by request


def delete(shell: Shell) -> DeleteResult:
    return shell.send(DeleteGroup(shell.token(), "g"))


def test_an_empty_group_is_deleted_with_its_offsets(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    client.commit(1)
    client.leave()

    assert delete(shell) == DeleteResult(ErrorCode.NONE)

    assert shell.states()[-1] == "Dead"
    assert shell.group() is None
    assert shell.appended_for(GROUP_KEY)[-1] is None
    assert shell.appended_for(OFFSET_KEY)[-1] is None
    shell.move_coordinator()
    assert shell.group() is None
    assert shell.committed() == -1


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_group_with_members_is_not_deleted(shell: Shell, state: str) -> None:
    c1, c2 = shell.stable_group("c1", "c2")
    if state != "Stable":
        c1.join()
    if state == "CompletingRebalance":
        c2.join()
    assert shell.state() == state
    assert delete(shell) == DeleteResult(ErrorCode.NON_EMPTY_GROUP)


def test_an_unknown_group_is_not_deleted_nor_one_twice(shell: Shell) -> None:
    assert delete(shell) == DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND)
    shell.commit(1)
    shell.hold_appends = True
    assert delete(shell) is None
    assert delete(shell) == DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND)


def test_deletion_that_is_not_stored_leaves_the_group_as_it_was(shell: Shell) -> None:
    (client,) = shell.stable_group("c1")
    client.commit(1)
    client.leave()
    shell.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
    assert delete(shell) == DeleteResult(ErrorCode.NOT_COORDINATOR)
    assert (shell.state(), shell.committed(), shell.group().generation) == ("Empty", 1, 2)


def test_a_commit_in_flight_is_deleted_with_its_group(shell: Shell) -> None:
    shell.commit(1)
    shell.hold_appends = True
    shell.commit(2, offsets=(OffsetToCommit("t", 1, 2),))
    delete(shell)
    shell.complete_append()
    shell.complete_append()
    assert shell.group() is None
    assert shell.partition.shard.durable.offsets == {}


def test_promised_members_of_a_deleted_group_are_forgotten(shell: Shell) -> None:
    shell.commit(1)
    client = shell.client("c1", knows_member_ids=True)
    client.member_id = shell.send(client.join_event(shell.token())).member_id
    delete(shell)
    assert shell.timers == {}
    assert client.join().error is ErrorCode.UNKNOWN_MEMBER_ID
