"""What a reader may see of a partition: §14.3.3, §14.5.1, §15.3.2, §15.4.3."""

from contextlib import nullcontext

import pytest

from ottla.protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.replication.partition import READ_COMMITTED
from tests.replication.support import EPOCH, alone, append, leader, replica, take, write
from tests.storage.support import NOW


@pytest.mark.parametrize(
    ("lead", "by_the_leader_only", "by_any_replica"), [(1, True, True), (2, False, True), (-1, False, False)]
)
def test_who_may_be_read_from(lead: int, by_the_leader_only: bool, by_any_replica: bool) -> None:
    """KIP-392, §15.1"""
    target = replica()
    take(target, lead=lead)

    def serves(*, follower_will_do: bool) -> bool:
        try:
            target.check_reader(EPOCH, follower_will_do=follower_will_do)
        except NotLeaderOrFollower:
            return False
        return True

    assert serves(follower_will_do=False) is by_the_leader_only
    assert serves(follower_will_do=True) is by_any_replica


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(-1, None), (-2, None), (EPOCH, None), (EPOCH - 1, FencedLeaderEpoch), (EPOCH + 1, UnknownLeaderEpoch)],
)
def test_which_leader_epoch_a_reader_may_have(leader_epoch: int, error: type[KafkaError] | None) -> None:
    """Kafka's FetchRequest takes every negative leader epoch for none."""
    target = leader()

    with nullcontext() if error is None else pytest.raises(error):
        target.check_reader(leader_epoch, follower_will_do=False)
    with nullcontext() if error is None else pytest.raises(error):
        target.check_follower(2, leader_epoch)


def test_offsets_outside_the_log_cannot_be_read() -> None:
    target = alone(records=1)

    target.reads.check_readable(0)
    target.reads.check_readable(1)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            target.reads.check_readable(offset)


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
def test_readers_see_nothing_above_the_high_watermark(isolation_level: int) -> None:
    """§15.3.2"""
    target = alone(records=1)
    append(target, acks=1)
    target.log.write_pending(now_wall_ms=NOW)

    result = target.log.read(0, 1000, upper_bound=target.upper_bound(isolation_level))

    assert result.end_offset == target.upper_bound(isolation_level) == 1


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
def test_where_a_reader_diverges(last_epoch: int, offset: int, diverging: tuple[int, int] | None) -> None:
    """§14.5.1, §14.3.3, R03"""
    target = leader(records=2)
    take(target, epoch=7, version=2)
    write(target, 2)

    assert target.reads.diverging_epoch(last_epoch, offset) == diverging


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    """§14.3.3"""
    target = alone(epoch=1, records=2)
    take(target, epoch=3, version=2, isr=(1,), replicas=(1,))
    write(target, 1)

    assert [target.log.end_offset_for_epoch(epoch) for epoch in (1, 3, 9)] == [(1, 2), (3, 3), (-1, -1)]


def test_log_end_is_unknown_until_high_watermark_is_in_the_term() -> None:
    """§15.4.3, T-17"""
    alone(records=1).check_end_offset_is_known()
    target = leader(records=1)
    take(target, epoch=EPOCH + 1, version=2)

    with pytest.raises(KafkaError, match="not known yet"):
        target.check_end_offset_is_known()
