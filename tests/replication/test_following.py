"""What a follower does to its own log: §14.4.4, §14.5."""

import pytest

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.protocol.records.record import Record, build_batch
from ottla.replication.partition import Partition
from ottla.storage.epoch_cache import EpochEntry
from tests.replication.support import alone, replica, take
from tests.storage.support import NOW


def sent(*, records: int) -> bytearray:
    """What another broker wrote as leader of epoch 5."""
    return bytearray(alone(records=records).log.read(0, 1 << 20, upper_bound=records).records)


def follower(*, records: int) -> Partition:
    """It knows none of its records to be committed."""
    made = replica()
    take(made, lead=2)
    made.append_from_leader(memoryview(sent(records=records)), wall_ms=NOW)
    return made


def test_records_of_the_leader_are_written_as_they_are() -> None:
    target = follower(records=3)

    assert target.log.read(0, 1 << 20, upper_bound=3).records == sent(records=3)
    assert (target.log.log_end_offset, target.high_watermark) == (3, 0)
    assert target.end_offset_for_epoch(5) == (5, 3)
    assert not target.log.has_pending_writes


def test_a_damaged_batch_keeps_those_before_it_out_too() -> None:
    target = follower(records=0)
    damaged = sent(records=3)
    damaged[-1] ^= 1

    with pytest.raises(CorruptMessage):
        target.append_from_leader(memoryview(damaged), wall_ms=NOW)
    assert target.log.log_end_offset == 0
    target.append_from_leader(memoryview(sent(records=3)), wall_ms=NOW)
    assert target.log.log_end_offset == 3


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes_and_does_not_fall() -> None:
    """§14.4.4"""
    target = follower(records=3)

    rose = [target.follow(told, 0) for told in (2, 2, 9, 1)]

    assert rose == [True, False, True, False]
    assert target.high_watermark == 3


def test_records_the_leader_has_deleted_are_deleted_as_far_as_they_are_committed() -> None:
    """§14.4.4, §15.6.1"""
    target = follower(records=3)

    target.follow(1, 2)
    assert (target.log.log_start_offset, target.high_watermark) == (1, 1)
    target.follow(3, 2)
    assert (target.log.log_start_offset, target.high_watermark) == (2, 3)


@pytest.mark.parametrize(("offset", "high_watermark"), [(2, 2), (1, 1), (0, 0)])
def test_a_truncated_log_takes_the_high_watermark_with_it(offset: int, high_watermark: int) -> None:
    target = follower(records=3)
    target.follow(2, 0)

    target.truncate_to(offset)

    assert (target.log.log_end_offset, target.high_watermark) == (offset, high_watermark)


def test_a_log_that_begins_anew_knows_no_epoch_of_the_records_that_went() -> None:
    """§14.5.4: the leader's log begins above them."""
    target = follower(records=3)

    target.restart_at(7)

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (7, 7, 7)
    assert target.end_offset_for_epoch(5) == (-1, -1)


def test_an_empty_log_takes_the_batch_that_begins_before_its_start() -> None:
    """§14.5.4: DeleteRecords has left the leader a log start within a batch."""
    target = follower(records=0)
    target.restart_at(2)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"v") for _ in range(4)])
    assign_offset_and_epoch(batch, 0, 0, 5)

    target.append_from_leader(memoryview(batch), wall_ms=NOW)

    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (2, 4, 2)
    assert target.log.read(2, 1 << 20, upper_bound=4).records == batch
    assert target.log.epochs.entries == (EpochEntry(5, 2),)


def test_a_damaged_batch_before_the_start_leaves_the_log_unchanged() -> None:
    target = follower(records=0)
    target.restart_at(2)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"v") for _ in range(4)])
    batch[-1] ^= 1

    with pytest.raises(CorruptMessage):
        target.append_from_leader(memoryview(batch), wall_ms=NOW)
    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (2, 2, 2)
