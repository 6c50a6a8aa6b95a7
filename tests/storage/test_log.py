import errno

import pytest

from ottla.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from ottla.protocol.records.batch import CRC_COVERS_FROM
from ottla.storage.log import Log, WouldBlock
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import (
    NOW,
    ROOT,
    TOPIC_ID,
    append,
    batch,
    check_indexes,
    new_log,
    open_directory,
    read_all,
    records_in,
    reopened,
)


def test_batches_get_consecutive_offsets_and_the_leader_epoch() -> None:
    log = new_log(FakeDisk())

    first = log.append_as_leader(batch("a", "b"), leader_epoch=3, now_wall_ms=NOW)
    second = log.append_as_leader(batch("c"), leader_epoch=3, now_wall_ms=NOW)

    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    log.write_pending(now_wall_ms=NOW)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.end_offset_for_epoch(3) == (3, 3)


def test_queued_batches_are_not_counted_or_read_before_the_write() -> None:
    log = new_log(FakeDisk())

    log.append_as_leader(batch("a"), leader_epoch=0, now_wall_ms=NOW)

    assert log.log_end_offset == 0
    assert not log.read(0, 1000, upper_bound=10).records
    log.write_pending(now_wall_ms=NOW)
    assert log.log_end_offset == 1


def test_one_write_takes_the_whole_queue() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    before = len(disk.journal)

    append(log, *[batch("x", timestamp=NOW) for _ in range(50)])

    assert [operation[0] for operation in disk.journal[before:]].count("write") == 1


def test_a_refused_batch_leaves_no_trace() -> None:
    log = new_log(FakeDisk(), LogConfig(max_message_bytes=200))
    append(log, batch("a"))
    damaged = batch("b")
    damaged[-1] ^= 1

    for refused, error in (
        (damaged, CorruptMessage),
        (batch("x" * 300), MessageTooLarge),
        (batch("c")[:0], InvalidRecord),
    ):
        with pytest.raises(error):
            log.append_as_leader(refused, leader_epoch=0, now_wall_ms=NOW)

    append(log, batch("c"))
    assert read_all(log) == [(0, b"a"), (1, b"c")]


@pytest.mark.parametrize("torn", [0, 1, 61, 100])
def test_a_failed_write_leaves_the_log_as_it_was(torn: int) -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a", producer_id=7, producer_epoch=0, base_sequence=0))
    size = log.size_bytes
    disk.torn_bytes = torn
    disk.fail("writev", OSError(errno.ENOSPC, "full"))

    log.append_as_leader(batch("b", producer_id=7, producer_epoch=0, base_sequence=1), leader_epoch=0, now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError, match="no space is left on the device"):
        log.write_pending(now_wall_ms=NOW)

    assert (log.log_end_offset, log.size_bytes, log.has_pending_writes) == (1, size, False)
    append(log, batch("b", producer_id=7, producer_epoch=0, base_sequence=1))
    assert read_all(log) == [(0, b"a"), (1, b"b")]
    assert read_all(reopened(disk)) == [(0, b"a"), (1, b"b")]


def test_a_failed_write_does_not_end_the_term_of_its_leader() -> None:
    """Without its own epoch a leader knows none of a follower that has a later one, and that cuts what is committed."""
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), leader_epoch=1)
    log.maybe_assign_leader_epoch(3)
    disk.fail("writev", OSError(errno.ENOSPC, "full"))

    log.append_as_leader(batch("b"), leader_epoch=3, now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError):
        log.write_pending(now_wall_ms=NOW)

    assert log.epochs.entries == ((1, 0), (3, 1))
    assert log.end_offset_for_epoch(2) == (1, 1)


def test_leader_epoch_of_a_batch_that_was_not_written_is_unknown() -> None:
    leader = new_log(FakeDisk())
    append(leader, batch("a"), leader_epoch=1)
    append(leader, batch("b"), leader_epoch=2)
    disk = FakeDisk()
    follower = new_log(disk)
    disk.fail("writev", OSError(errno.ENOSPC, "full"))

    follower.append_as_follower(memoryview(bytearray(leader.read(0, 1 << 20, upper_bound=2).records)), now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError):
        follower.write_pending(now_wall_ms=NOW)

    assert follower.epochs.entries == ()


def test_torn_write_that_cannot_be_removed_closes_the_log() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    disk.torn_bytes = 10
    disk.fail("writev", OSError(errno.EIO, "bad"))
    disk.fail("truncate", OSError(errno.EIO, "bad"))

    log.append_as_leader(batch("b"), leader_epoch=0, now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError):
        log.write_pending(now_wall_ms=NOW)

    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch("b"), leader_epoch=0, now_wall_ms=NOW)
    assert read_all(log) == [(0, b"a")]
    assert read_all(reopened(disk)) == [(0, b"a")]


def test_write_that_fails_while_rolling_fails_earlier_batches() -> None:
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=150))
    log.append_as_leader(batch("a"), leader_epoch=0, now_wall_ms=NOW)
    log.append_as_leader(batch("b"), leader_epoch=0, now_wall_ms=NOW)
    disk.fail("writev", OSError(errno.ENOSPC, "full"))

    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch("c"), leader_epoch=0, now_wall_ms=NOW)

    assert log.has_pending_writes
    with pytest.raises(KafkaStorageError):
        log.write_pending(now_wall_ms=NOW)
    assert log.log_end_offset == 0
    append(log, batch("d"))
    assert read_all(log) == [(0, b"d")]


def follower_whose_roll_fails(disk: FakeDisk) -> tuple[Log, bytes]:
    """A follower that was given six batches, of which the fourth needs a segment for which there is no room."""
    leader = new_log(FakeDisk())
    append(leader, *[batch("x" * 200, producer_id=7, producer_epoch=0, base_sequence=n) for n in range(6)])
    sent = bytes(leader.read(0, 1 << 20, upper_bound=6).records)
    follower = new_log(disk, LogConfig(segment_bytes=len(sent) // 2))
    # Both indexes and the snapshot come first.
    disk.fail("open", OSError(errno.ENOSPC, "full"), after=3)
    with pytest.raises(KafkaStorageError, match="no space is left"):
        follower.append_as_follower(memoryview(bytearray(sent)), now_wall_ms=NOW)
    return follower, sent


def test_follower_whose_roll_failed_goes_on_once_there_is_room() -> None:
    disk = FakeDisk()
    follower, sent = follower_whose_roll_fails(disk)

    assert (follower.log_end_offset, follower.has_pending_writes, follower.failure) == (3, False, None)

    follower.append_as_follower(memoryview(bytearray(sent[len(sent) // 2 :])), now_wall_ms=NOW)
    follower.write_pending(now_wall_ms=NOW)
    assert [offset for offset, _ in read_all(follower)] == [0, 1, 2, 3, 4, 5]
    assert [offset for offset, _ in read_all(reopened(disk, follower.config))] == [0, 1, 2, 3, 4, 5]


def test_leader_epoch_of_batches_a_failed_roll_lost_is_unknown() -> None:
    leader = new_log(FakeDisk())
    append(leader, batch("x" * 200), leader_epoch=1)
    append(leader, batch("x" * 200), leader_epoch=2)
    sent = bytearray(leader.read(0, 1 << 20, upper_bound=2).records)
    disk = FakeDisk()
    follower = new_log(disk, LogConfig(segment_bytes=len(sent) // 2))
    disk.fail("open", OSError(errno.EMFILE, "too many"), after=3)

    with pytest.raises(KafkaStorageError):
        follower.append_as_follower(memoryview(sent), now_wall_ms=NOW)

    assert follower.epochs.entries == ((1, 0),)


@pytest.mark.parametrize("opened", range(4, 7), ids=["log", "index", "timeindex"])
def test_a_segment_that_could_not_be_begun_leaves_no_files(opened: int) -> None:
    """Recovery would take them for the place where the log ends, though the segment before has grown past it."""
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=400))
    append(log, batch("a" * 200))
    disk.fail("open", OSError(errno.EMFILE, "too many"), after=opened - 1)
    with pytest.raises(KafkaStorageError):
        append(log, batch("b" * 200))

    append(log, batch("c"), batch("d"), batch("e" * 200))

    assert [offset for offset, _ in read_all(reopened(disk, log.config))] == [0, 1, 2, 3]


def test_duplicate_gets_its_first_offset_also_after_a_restart() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("x"), batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0))

    again = batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
    info = log.append_as_leader(again, leader_epoch=0, now_wall_ms=NOW)
    assert (info.base_offset, info.last_offset, info.duplicate) == (1, 2, True)
    # As Kafka does, though the topic's timestamps are those of the producer.
    assert info.log_append_time == info.max_timestamp >= 0
    assert not log.has_pending_writes

    log = reopened(disk)
    again = batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.append_as_leader(again, leader_epoch=0, now_wall_ms=NOW).base_offset == 1
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append_as_leader(
            batch("z", producer_id=7, producer_epoch=0, base_sequence=9), leader_epoch=0, now_wall_ms=NOW
        )


def test_log_append_time_is_answered_and_stored() -> None:
    log = new_log(FakeDisk(), LogConfig(message_timestamp_type="LogAppendTime"))

    info = log.append_as_leader(batch("a", timestamp=5), leader_epoch=0, now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)

    assert info.log_append_time == NOW
    assert records_in(log.read(0, 1000, upper_bound=1).records)[0].timestamp == NOW


def test_segments_roll_by_size_and_by_age_of_their_first_batch() -> None:
    log = new_log(FakeDisk(), LogConfig(segment_bytes=300, segment_ms=1000))

    append(log, *[batch("x" * 50) for _ in range(4)])
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    append(log, batch("y", timestamp=NOW + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    check_indexes(log)


def test_segments_roll_when_an_index_is_full() -> None:
    log = new_log(FakeDisk(), LogConfig(segment_index_bytes=48, index_interval_bytes=0))

    append(log, *[batch("x", timestamp=NOW + n) for n in range(20)])

    assert len(log.segments) > 3
    assert all(len(segment.time_index) <= 4 for segment in log.segments)
    check_indexes(log)


def test_reads_end_at_bound_or_size_limit_with_whole_batches() -> None:
    log = new_log(FakeDisk())
    append(log, *[batch(str(n), str(n)) for n in range(5)])
    size = len(batch("0", "0"))

    assert [r.offset for r in records_in(log.read(3, 1 << 20, upper_bound=8).records)] == [2, 3, 4, 5, 6, 7]
    assert [r.offset for r in records_in(log.read(3, 1 << 20, upper_bound=7).records)] == [2, 3, 4, 5]
    assert len(log.read(0, size * 2 + 5, upper_bound=10).records) == size * 2
    assert len(log.read(0, 1, upper_bound=10).records) == size
    assert not log.read(0, 1, upper_bound=10, min_one_batch=False).records
    assert not log.read(9, 100, upper_bound=4).records
    assert log.read(10, 100, upper_bound=10).end_offset == 10


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_outside_the_log_are_out_of_range(offset: int) -> None:
    log = new_log(FakeDisk())
    append(log, batch("a", "b"))

    with pytest.raises(OffsetOutOfRange):
        log.read(offset, 100, upper_bound=2)


def test_a_batch_larger_than_any_piece_is_read_whole() -> None:
    log = new_log(FakeDisk())
    append(log, batch("a"), batch("b" * 200_000), batch("c"))

    assert [r.offset for r in records_in(log.read(1, 10, upper_bound=3).records)] == [1]


def test_records_not_in_the_page_cache_are_read_by_complete() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), batch("b"))
    disk.is_cold = True

    with pytest.raises(WouldBlock) as caught:
        log.read(1, 1000, upper_bound=2)

    log.truncate_to(2)
    log.release()
    result = caught.value.complete()
    assert (result.end_offset, records_in(result.records)[0].value) == (2, b"b")


def test_sequential_readers_do_not_scan_what_they_have_read() -> None:
    log = new_log(FakeDisk())
    append(log, *[batch("x" * 500) for _ in range(100)])
    segment = log.segments.active

    at = log.read(0, 2000, upper_bound=100).end_offset

    assert segment.anchor_for(at) == (sum(len(batch("x" * 500)) for _ in range(at)), at, -1)


def test_timestamps_are_looked_up_to_the_record() -> None:
    log = new_log(FakeDisk(), LogConfig(segment_bytes=2000, index_interval_bytes=200))
    append(log, *[batch("a" * 50, "b" * 50, timestamp=NOW + n * 10) for n in range(50)])

    assert log.offset_for_timestamp(NOW + 15, 100) == (NOW + 20, 4, 0)
    assert log.offset_for_timestamp(0, 100) == (NOW, 0, 0)
    assert log.offset_for_timestamp(NOW + 491, 100) is None
    assert log.offset_for_timestamp(NOW + 490, 98) is None
    assert log.offset_of_max_timestamp(100) == (NOW + 490, 98, 0)
    assert log.offset_of_max_timestamp(50) == (NOW + 240, 48, 0)
    log.delete_records_before(11)
    assert log.offset_for_timestamp(0, 100) == (NOW + 50, 11, 0)


def test_no_time_is_found_in_a_damaged_batch() -> None:
    """Nor behind it: what the header says of its times is damaged with it."""
    for bit in range(CRC_COVERS_FROM * 8, batch("a").nbytes * 8):
        disk = FakeDisk()
        log = new_log(disk)
        append(log, batch("a"), batch("b", timestamp=NOW + 10))
        disk.flip_bit(ROOT / "t-0" / "00000000000000000000.log", bit)

        with pytest.raises(CorruptMessage, match="damaged: "):
            log.offset_for_timestamp(NOW, 100)
        with pytest.raises(CorruptMessage, match="damaged: "):
            log.offset_of_max_timestamp(1)


def test_truncation_ends_at_a_batch_and_forgets_producers() -> None:
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=250))
    append(log, batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0))
    append(log, batch("c", "d", producer_id=7, producer_epoch=0, base_sequence=2), leader_epoch=1)
    append(log, *[batch("e", "f") for _ in range(4)], leader_epoch=2)

    log.truncate_to(3)

    assert (log.log_end_offset, log.epochs.entries) == (2, ((0, 0),))
    append(log, batch("x", producer_id=7, producer_epoch=0, base_sequence=2), leader_epoch=5)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"x")]
    assert read_all(reopened(disk, log.config)) == [(0, b"a"), (1, b"b"), (2, b"x")]
    check_indexes(log)


def test_truncating_fully_goes_on_at_another_offset() -> None:
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=250))
    append(log, *[batch("e", "f") for _ in range(6)])

    log.truncate_fully_and_start_at(100)
    append(log, batch("x"))

    assert (log.log_start_offset, read_all(log)) == (100, [(100, b"x")])
    again = reopened(disk, log.config)
    assert (again.log_start_offset, read_all(again)) == (100, [(100, b"x")])


def test_a_follower_takes_batches_as_they_are() -> None:
    leader = new_log(FakeDisk())
    append(leader, batch("a"), leader_epoch=2)
    append(leader, batch("b"), batch("c"), leader_epoch=4)
    sent = bytearray(leader.read(1, 1000, upper_bound=3).records)
    follower = new_log(FakeDisk())

    count = follower.append_as_follower(memoryview(sent + sent[:20]), now_wall_ms=NOW)
    follower.write_pending(now_wall_ms=NOW)

    assert count == 2
    assert (follower.log_start_offset, read_all(follower)) == (0, [(1, b"b"), (2, b"c")])
    assert follower.epochs.entries == ((4, 1),)
    with pytest.raises(CorruptMessage):
        follower.append_as_follower(memoryview(sent), now_wall_ms=NOW)


def test_records_are_deleted_from_the_start() -> None:
    log = new_log(FakeDisk())
    append(log, *[batch("a") for _ in range(5)])

    log.delete_records_before(3)

    assert log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100, upper_bound=5)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(6)


def test_available_bytes_are_counted_across_segments() -> None:
    log = new_log(FakeDisk(), LogConfig(segment_bytes=300))
    append(log, *[batch("x" * 50) for _ in range(8)])

    assert log.bytes_between(0, 8) == log.size_bytes
    assert log.bytes_between(8, 8) == 0
    assert log.bytes_between(4, 8) == log.size_bytes // 2


def test_log_start_and_high_watermark_survive_a_restart() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, *[batch("a") for _ in range(5)])
    log.delete_records_before(2)

    directory.log_start_checkpoint().write()
    directory.high_watermark_checkpoint({("t", 0): 4}).write()
    log = reopened(disk)

    assert (log.log_start_offset, log.restored_high_watermark, log.log_end_offset) == (2, 4, 5)
    assert log.topic_id == TOPIC_ID
