"""What a leader takes from producers, acknowledges and commits: §14.6, §15.2."""

import pytest

from ottla.protocol.errors import ErrorCode, NotEnoughReplicas, NotLeaderOrFollower
from ottla.replication.partition import ACKS_ALL
from tests.replication.support import EPOCH, alone, append, leader, note, replica, take
from tests.storage.support import NOW


def test_with_one_replica_the_high_watermark_follows_what_is_written() -> None:
    target = alone()
    append(target, acks=1)

    assert not target.maybe_raise_high_watermark(0), "queued is not written"
    target.log.write_pending(now_wall_ms=NOW)
    assert target.maybe_raise_high_watermark(0)
    assert target.high_watermark == 1


def test_the_high_watermark_rises_with_the_slowest_member() -> None:
    """R06"""
    target = leader(records=4)

    assert not note(target, 2, 4).high_watermark_rose
    assert note(target, 3, 3).high_watermark_rose
    assert target.high_watermark == 3


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    """§14.6.1, KIP-966"""
    target = leader(isr=(1,), records=3)
    assert target.high_watermark == 0

    take(target, isr=(1, 2), version=2)
    note(target, 2, 3)

    assert target.high_watermark == 3


def test_the_answer_to_acks_all() -> None:
    """§15.2.3, R08"""
    target = leader(records=1)
    assert target.acknowledgement(0, EPOCH) is None
    note(target, 2, 1)
    note(target, 3, 1)
    assert target.acknowledgement(0, EPOCH) is ErrorCode.NONE
    assert target.acknowledgement(0, EPOCH - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    take(target, isr=(1,), version=2)
    assert target.acknowledgement(0, EPOCH) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    take(target, lead=2, epoch=EPOCH + 1, version=3)
    assert target.acknowledgement(0, EPOCH) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_all_needs_enough_replicas_in_sync() -> None:
    """§15.2.2; acks=1 does not."""
    target = leader(isr=(1,))

    with pytest.raises(NotEnoughReplicas):
        append(target, acks=ACKS_ALL)
    assert not target.log.has_pending_writes
    append(target, acks=1)
    assert target.log.has_pending_writes


def test_acks_all_is_refused_by_the_committed_isr() -> None:
    """§14.7.5: one that is joining does not help yet."""
    target = leader(isr=(1,), records=1)
    assert note(target, 3, 1).isr_change is not None

    with pytest.raises(NotEnoughReplicas):
        append(target, acks=ACKS_ALL)


def test_min_insync_replicas_asks_for_no_more_replicas_than_there_are() -> None:
    """§14.6.2"""
    target = alone()
    assert target.log.config.min_insync_replicas == 2

    append(target, acks=ACKS_ALL)

    assert target.log.has_pending_writes


@pytest.mark.parametrize("lead", [2, -1])
def test_only_the_leader_takes_records(lead: int) -> None:
    target = replica()
    take(target, lead=lead)

    with pytest.raises(NotLeaderOrFollower):
        append(target, acks=1)
    assert not target.log.has_pending_writes
