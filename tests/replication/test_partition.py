"""A replica: the states that the controller commits, records of producers, the ISR: §14.2, §14.6, §14.7, §15."""

import pytest

from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from ottla.replication.isr import IsrChange, IsrOutcome
from ottla.replication.partition import ACKS_ALL, Partition, StateChange
from tests.fakes.disk import FakeDisk
from tests.replication.support import EPOCH, alone, append, leader, note, replica, take
from tests.storage.support import NOW, TOPIC_ID, new_log


def test_a_restored_high_watermark_stays_within_the_log() -> None:
    """§14.6.5"""
    assert Partition("t", 0, TOPIC_ID, new_log(FakeDisk()), local_id=1, high_watermark=99).high_watermark == 0


@pytest.mark.parametrize(("epoch", "error"), [(4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)])
def test_another_leader_epoch_than_the_current_one_is_refused(epoch: int, error: type[KafkaError]) -> None:
    """§15.1.3"""
    target = leader()

    target.check_leader(EPOCH)
    target.check_leader(-1)
    with pytest.raises(error):
        target.check_leader(epoch)


def test_a_follower_is_not_the_leader() -> None:
    target = replica()
    take(target, lead=2)

    target.check_epoch(EPOCH)
    with pytest.raises(NotLeaderOrFollower):
        target.check_leader(EPOCH)


# Terms


def test_an_older_state_is_ignored() -> None:
    """§14.2.1, I-8"""
    target = leader()

    assert take(target, lead=2, epoch=EPOCH - 1, version=0) is StateChange.NONE

    assert (target.leader_id, target.leader_epoch) == (1, EPOCH)


def test_what_a_state_means_for_the_replica() -> None:
    target = leader()

    assert take(target, version=1) is StateChange.NONE
    assert take(target, version=2, isr=(1, 2)) is StateChange.UPDATED
    assert take(target, version=3, lead=2, epoch=EPOCH + 1) is StateChange.BECAME_FOLLOWER
    assert target.leadership is None
    assert take(target, version=4, lead=-1, epoch=EPOCH + 2) is StateChange.BECAME_FOLLOWER
    assert take(target, version=5, lead=1, epoch=EPOCH + 3) is StateChange.BECAME_LEADER


def test_new_term_of_the_leader_knows_nothing_of_followers() -> None:
    """§14.2.1, §14.2.2"""
    target = leader(records=2)
    note(target, 2, 2)

    assert take(target, epoch=EPOCH + 1, version=2) is StateChange.BECAME_LEADER
    assert target.leadership is not None
    assert target.leadership.followers[2].log_end_offset == -1
    assert target.leader_epoch_start == 2


# Changes of the ISR


def asked(target: Partition) -> IsrChange:
    """Broker 3 has caught up and is asked for."""
    change = note(target, 3, target.log.log_end_offset).isr_change
    assert change is not None
    return change


def test_a_committed_change_is_adopted() -> None:
    """R07"""
    target = leader(isr=(1, 2), records=1)
    change = asked(target)

    outcome = target.isr_change_answered(change, ErrorCode.NONE, partition_epoch=2, isr=(1, 2, 3), now_ms=0)

    assert outcome is IsrOutcome.ADOPTED
    assert (target.isr, target.partition_epoch) == ((1, 2, 3), 2)
    assert take(target, version=2, isr=(1, 2)) is StateChange.NONE, "metadata brings it too, later"


@pytest.mark.parametrize(
    ("error", "still_counts"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False),
        (ErrorCode.INVALID_UPDATE_VERSION, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
    ],
)
def test_a_change_that_may_have_been_committed_goes_on_counting(error: ErrorCode, still_counts: bool) -> None:
    """§14.7.4"""
    target = leader(isr=(1, 2), records=1)
    change = asked(target)

    target.isr_change_answered(change, error, now_ms=0)

    assert target.leadership is not None
    assert (3 in target.leadership.isr_state.maximal) is still_counts
    assert target.isr == (1, 2)


def test_answer_to_a_change_that_metadata_overtook_is_dropped() -> None:
    target = leader(isr=(1, 2), records=1)
    change = asked(target)
    take(target, version=3, isr=(1,))

    outcome = target.isr_change_answered(change, ErrorCode.NONE, partition_epoch=2, isr=(1, 2, 3), now_ms=0)

    assert outcome is IsrOutcome.OVERTAKEN
    assert (target.isr, target.partition_epoch) == ((1,), 3)


def test_members_that_lag_are_asked_away_and_counted_until_then() -> None:
    target = leader(records=1)
    note(target, 2, 1)
    assert target.maybe_shrink_isr(30_000) is None

    change = target.maybe_shrink_isr(30_001)

    assert change is not None
    assert [member.broker_id for member in change.isr] == [1, 2]
    assert target.high_watermark == 0
    target.isr_change_answered(change, ErrorCode.NONE, partition_epoch=2, isr=(1, 2), now_ms=30_001)
    assert target.high_watermark == 1


def test_high_watermark_of_a_single_replica_is_its_log_end() -> None:
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


def test_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
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


def test_min_insync_replicas_is_at_most_the_number_of_replicas() -> None:
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
