"""A partition with followers, seen from its leader: §14.2, §14.5.1, §14.6, §15.1.4, §15.2.3."""

import pytest

from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.replication.isr import IsrChange, IsrOutcome
from ottla.replication.leading import ACKS_ALL
from ottla.replication.partition import Partition, Taken
from ottla.replication.serving_followers import FollowerFetch, FollowerNoted
from ottla.storage.config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, TOPIC_ID, batch, new_log

EPOCH = 5


def leader(isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 2, records: int = 0) -> Partition:
    made = Partition("t", 0, TOPIC_ID, new_log(FakeDisk(), LogConfig(min_insync_replicas=min_isr)), local_id=1)
    take(made, isr=isr)
    write(made, records)
    return made


def take(
    target: Partition, *, lead: int = 1, epoch: int = EPOCH, version: int = 1, isr: tuple[int, ...] = (1, 2, 3)
) -> Taken:
    return target.take_state(
        leader=lead, leader_epoch=epoch, partition_epoch=version, replicas=(1, 2, 3), isr=isr, now_ms=0
    )


def write(target: Partition, records: int) -> None:
    for _ in range(records):
        target.append(memoryview(bytearray(batch("x"))), acks=1, wall_ms=NOW)
    target.log.write_pending(now_wall_ms=NOW)
    target.written(0)


def fetch(replica: int, offset: int, *, epoch: int = EPOCH, last_epoch: int = -1) -> FollowerFetch:
    return FollowerFetch(replica, -1, offset, 0, epoch, last_epoch)


def note(target: Partition, replica: int, offset: int) -> FollowerNoted:
    return target.note_follower_fetch(fetch(replica, offset), target.log.log_end_offset, 0)


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


def test_a_follower_reads_to_the_end_of_the_log_and_counts_only_when_noted() -> None:
    """§14.1.4, §15.3.2, T-18"""
    target = leader(records=2)

    read = target.read_for_follower(fetch(2, 0), 1 << 20, at_least_one_batch=True)

    assert (len(read.records), read.leader_end_offset, read.diverging) == (2 * len(batch("x")), 2, None)
    assert target.leadership is not None
    assert target.leadership.followers[2].log_end_offset == -1


@pytest.mark.parametrize(
    ("request_", "has_all"),
    [
        (fetch(2, 3), False),
        (fetch(2, 3, last_epoch=EPOCH), True),
        (fetch(2, 2, last_epoch=EPOCH), False),
        (fetch(2, 3, last_epoch=EPOCH - 1), False),
        (fetch(2, 3, last_epoch=EPOCH, epoch=EPOCH - 1), False),
        (fetch(9, 3, last_epoch=EPOCH), False),
    ],
)
def test_a_follower_that_has_everything_is_told_from_one_to_be_looked_at(
    request_: FollowerFetch, has_all: bool
) -> None:
    target = leader(records=3)

    assert target.has_nothing_for(request_) is has_all


def test_a_resigned_leader_does_not_say_that_there_is_nothing() -> None:
    target = leader(records=3)
    target.resign()

    assert not target.has_nothing_for(fetch(2, 3, last_epoch=EPOCH))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(2, 0, epoch=4), FencedLeaderEpoch),
        (fetch(2, 0, epoch=6), UnknownLeaderEpoch),
        (fetch(4, 0), UnknownLeaderEpoch),
        (fetch(4, 0, epoch=-1), NotLeaderOrFollower),
        (fetch(1, 0), UnknownLeaderEpoch),
        (fetch(2, 9), OffsetOutOfRange),
        (fetch(2, 0, last_epoch=9), OffsetOutOfRange),
    ],
)
def test_a_follower_that_is_mistaken_is_told(request_: FollowerFetch, error: type[KafkaError]) -> None:
    """§15.1.3, §15.1.4, §14.5.1"""
    with pytest.raises(error):
        leader(records=2).read_for_follower(request_, 100, at_least_one_batch=True)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        pytest.param(7, 4, None, id="the latest epoch, at the end"),
        pytest.param(7, 9, (7, 4), id="the latest epoch, beyond the end"),
        pytest.param(5, 2, None, id="an older epoch, at its end"),
        pytest.param(5, 3, (5, 2), id="an older epoch, beyond its end"),
        pytest.param(6, 2, (5, 2), id="an epoch that never was"),
        pytest.param(3, 0, None, id="older than all"),
        pytest.param(3, 1, (3, 0), id="older than all, with records"),
    ],
)
def test_where_a_follower_diverges(last_epoch: int, offset: int, diverging: tuple[int, int] | None) -> None:
    """§14.5.1, §14.3.3, R03"""
    target = leader(records=2)
    take(target, epoch=7, version=2)
    write(target, 2)

    assert target.diverging_epoch(last_epoch, offset) == diverging


def test_a_new_term_of_the_same_leader_knows_nothing_of_its_followers() -> None:
    """§14.2.1, §14.2.2"""
    target = leader(records=2)
    note(target, 2, 2)

    assert take(target, epoch=EPOCH + 1, version=2) is Taken.LEADS
    assert target.leadership is not None
    assert target.leadership.followers[2].log_end_offset == -1
    assert target.leader_epoch_start == 2


def test_what_a_state_means_for_the_replica() -> None:
    target = leader()

    assert take(target, version=1) is Taken.NOTHING
    assert take(target, version=2, isr=(1, 2)) is Taken.UPDATED
    assert take(target, version=3, lead=2, epoch=EPOCH + 1) is Taken.FOLLOWS
    assert target.leadership is None
    assert take(target, version=4, lead=-1, epoch=EPOCH + 2) is Taken.FOLLOWS
    assert take(target, version=5, lead=1, epoch=EPOCH + 3) is Taken.LEADS


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
    assert take(target, version=2, isr=(1, 2)) is Taken.NOTHING, "metadata tells it too, later"


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


def test_the_answer_to_a_change_that_metadata_overtook_is_dropped() -> None:
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


def test_acks_all_is_refused_by_the_committed_isr() -> None:
    """§14.7.5: one that is joining does not help yet."""
    target = leader(isr=(1,), records=1)
    asked(target)

    with pytest.raises(KafkaError) as refused:
        target.append(memoryview(bytearray(batch("x"))), acks=ACKS_ALL, wall_ms=NOW)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
