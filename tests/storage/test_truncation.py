"""Truncation: what is left agrees with the records, costs little, and stands wherever a disk that refuses stops it."""

import errno
from itertools import product
from random import Random

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import Segment
from tests.fakes.disk import FakeDisk, FakeFile, Loss
from tests.storage.support import (
    NOW,
    append,
    apply_retention,
    batch,
    check_indexes,
    new_log,
    open_directory,
    read_all,
    reopened,
)

SMALL_SEGMENTS = LogConfig(segment_bytes=400)


def as_rebuilt(segment: Segment, interval_bytes: int) -> Segment:
    """The bookkeeping that reading the whole segment again gives."""
    again = Segment(segment._files, segment._directory, segment.base_offset)
    again.size = segment.size
    again.rebuild_indexes(interval_bytes)
    return again


@pytest.mark.parametrize("seed", range(20))
def test_indexes_cut_by_entry_are_those_of_a_rebuilt_segment(seed: int) -> None:
    rng = Random(seed)
    log = new_log(FakeDisk(), LogConfig(index_interval_bytes=300))
    for _ in range(60):
        records = ["x" * rng.randrange(120) for _ in range(rng.randint(1, 3))]
        append(log, batch(*records, timestamp=NOW + rng.randrange(-50, 50)))

    while log.log_end_offset > 0:
        log.truncate_to(rng.randrange(log.log_end_offset))

        segment, rebuilt = log.segments.active, as_rebuilt(log.segments.active, 300)
        check_indexes(log)
        assert segment.offset_index.to_bytes() == rebuilt.offset_index.to_bytes()
        mark, other = segment.mark(), rebuilt.mark()
        assert mark._replace(first_timestamp=0, time_entries=0) == other._replace(first_timestamp=0, time_entries=0)


def test_cutting_one_record_reads_only_what_the_index_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(FakeDisk())
    for first in range(0, 5000, 500):
        append(log, *[batch("x" * 100, producer_id=7, producer_epoch=0, base_sequence=first + n) for n in range(500)])
    read_bytes = 0
    pread = FakeFile.pread

    def counting(file: FakeFile, size: int, position: int) -> bytes:
        nonlocal read_bytes
        data = pread(file, size, position)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(FakeFile, "pread", counting)
    log.truncate_to(4999)

    assert log.log_end_offset == 4999
    assert read_bytes < 32 * 1024


def test_producers_are_restored_in_a_thread_or_by_first_caller() -> None:
    logs = [new_log(FakeDisk(), SMALL_SEGMENTS) for _ in range(2)]
    for log in logs:
        for n in range(20):
            append(log, batch("x" * 50, producer_id=n % 3, producer_epoch=0, base_sequence=n // 3))
        log.truncate_to(11)
        assert log._producers.known is None

    restore = logs[0].begin_restore()
    assert restore is not None
    restore.run()
    logs[0].finish_restore(restore)

    assert logs[0]._producers.known is not None
    assert logs[0].producers.states == logs[1].producers.states
    append(logs[1], batch("y", producer_id=2, producer_epoch=0, base_sequence=3))


@pytest.mark.parametrize("in_thread", [False, True])
def test_repetitions_are_recognised_after_a_truncation(in_thread: bool) -> None:
    """All five that may be under way together, though a snapshot has one batch of each producer."""

    def sent(n: int) -> memoryview:
        return batch("x" * 50, producer_id=7, producer_epoch=0, base_sequence=n)

    log = new_log(FakeDisk(), SMALL_SEGMENTS)
    append(log, *map(sent, range(9)))
    log.truncate_to(7)
    log.truncate_to(6)
    assert max(log._producers.snapshots.newest_first(at_most=6)) > 4
    if in_thread:
        restore = log.begin_restore()
        assert restore is not None
        restore.run()
        log.finish_restore(restore)

    again = [log.append_as_leader(sent(n), leader_epoch=0, now_wall_ms=NOW) for n in range(4, 9)]

    assert [(info.base_offset, info.duplicate) for info in again] == [
        (4, True),
        (5, True),
        (6, False),
        (7, False),
        (8, False),
    ]


def test_what_another_leader_wrote_is_no_repetition() -> None:
    """Batches that a truncation took are forgotten, also where others have their place in the log."""
    log = new_log(FakeDisk())
    append(log, *[batch("x", producer_id=7, producer_epoch=0, base_sequence=n) for n in range(3)])
    log.truncate_to(0)
    append(log, batch("y", producer_id=7, producer_epoch=1, base_sequence=0))
    log.truncate_to(1)

    assert [state.batches[0].first_sequence for state in log.producers.states.values()] == [0]
    assert [len(state.batches) for state in log.producers.states.values()] == [1]


def test_producers_read_in_a_thread_are_void_if_the_log_grew() -> None:
    log = new_log(FakeDisk())
    append(log, *[batch("x", producer_id=7, producer_epoch=0, base_sequence=n) for n in range(4)])
    log.truncate_to(2)
    restore = log.begin_restore()
    assert restore is not None
    restore.run()

    log.truncate_to(1)
    log.finish_restore(restore)

    append(log, batch("y", producer_id=7, producer_epoch=0, base_sequence=1))
    assert read_all(log) == [(0, b"x"), (1, b"y")]


def test_a_cut_without_batches_of_producers_keeps_what_is_known() -> None:
    log = new_log(FakeDisk())
    append(log, batch("x", producer_id=7, producer_epoch=0, base_sequence=0), batch("y"), batch("z"))

    log.truncate_to(2)

    assert log._producers.known is not None
    assert list(log.producers.states) == [7]


def filled(disk: FakeDisk) -> Log:
    log = new_log(disk, SMALL_SEGMENTS)
    for n in range(12):
        append(log, batch(f"{n:02}" + "x" * 80, producer_id=7, producer_epoch=0, base_sequence=n))
    assert len(log.segments) > 4
    return reopened(disk, SMALL_SEGMENTS)


@pytest.mark.parametrize("offset", [0, 5, 11])
@pytest.mark.parametrize("operation", ["open", "rename", "remove", "truncate", "pread"])
@pytest.mark.parametrize("after", range(4))
def test_a_truncation_that_the_disk_refused_can_be_tried_again(operation: str, after: int, offset: int) -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = read_all(log)
    disk.fail(operation, OSError(errno.ENOSPC, "full"), after=after)

    try:
        log.truncate_to(offset)
    except KafkaStorageError:
        assert log.failure is None
        # It ends at the old end or at the beginning of a segment, and can be read up to there.
        assert read_all(log) == before[: log.log_end_offset]
        disk._failures.clear()
        log.truncate_to(offset)

    disk._failures.clear()
    append(log, batch("after", producer_id=7, producer_epoch=0, base_sequence=offset))
    assert read_all(log) == [*before[:offset], (offset, b"after")]
    log.flush()
    survived = FakeDisk.after(disk.journal, Loss.UNSYNCED)
    assert read_all(reopened(survived, SMALL_SEGMENTS)) == read_all(log)


@pytest.mark.parametrize("operation", ["open", "rename", "remove", "truncate", "writev"])
@pytest.mark.parametrize("after", range(4))
def test_log_restart_that_failed_succeeds_at_the_next_attempt(operation: str, after: int) -> None:
    disk = FakeDisk()
    log = filled(disk)
    disk.fail(operation, OSError(errno.EMFILE, "too many"), after=after)

    try:
        log.truncate_fully_and_start_at(100)
    except KafkaStorageError:
        assert log.failure is None
        disk._failures.clear()
        log.truncate_fully_and_start_at(100)

    disk._failures.clear()
    append(log, batch("a"))
    assert (log.log_start_offset, read_all(log)) == (100, [(100, b"a")])
    log.flush()
    assert read_all(reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED), SMALL_SEGMENTS)) == [(100, b"a")]


def test_append_without_a_free_descriptor_does_not_fail_the_log() -> None:
    disk = FakeDisk()
    append(new_log(disk), batch("a"))
    log = reopened(disk)
    log.release()
    disk.fail("open", OSError(errno.EMFILE, "too many"))

    with pytest.raises(KafkaStorageError, match="too many files open"):
        append(log, batch("b"))

    append(log, batch("c"))
    assert read_all(log) == [(0, b"a"), (1, b"c")]


def test_old_segments_whose_rename_failed_go_with_the_next_pass() -> None:
    disk = FakeDisk()
    config = LogConfig(segment_bytes=400, retention_ms=1000)
    log = new_log(disk, config)
    append(log, *[batch("x" * 80) for _ in range(12)])
    disk.fail("rename", OSError(errno.ENOSPC, "full"), after=4)

    with pytest.raises(KafkaStorageError):
        apply_retention(log, NOW + 2000, high_watermark=12)
    assert log.failure is None
    assert log.segments[0].base_offset > 0

    apply_retention(log, NOW + 2000, high_watermark=12)
    assert (log.log_start_offset, read_all(log)) == (12, [])
    append(log, batch("y"))
    assert read_all(reopened(disk, config)) == [(12, b"y")]


@pytest.mark.parametrize("after", range(5))
def test_flush_without_a_free_descriptor_is_done_by_the_next(after: int) -> None:
    disk = FakeDisk()
    directory = open_directory(disk, SMALL_SEGMENTS)
    log = directory.create_log("t", 0, bytes(16), SMALL_SEGMENTS, now_wall_ms=NOW)
    append(log, *[batch("x" * 80) for _ in range(6)])
    disk.fail("open", OSError(errno.EMFILE, "too many"), after=after)

    with pytest.raises(KafkaStorageError, match="too many files open"):
        log.flush()
    assert (log.failure, log.flushed_offset) == (None, 0)

    log.flush()
    directory.recovery_point_checkpoint().write()
    disk = FakeDisk.after(disk.journal, Loss.UNSYNCED)
    assert len(read_all(reopened(disk, SMALL_SEGMENTS))) == 6


def test_directory_whose_open_failed_is_synced_by_the_next_flush() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    disk.fail("sync_directory", OSError(errno.EMFILE, "too many"))

    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.failure is None

    log.flush()
    assert read_all(reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED))) == [(0, b"a")]


def test_a_directory_that_cannot_be_synced_fails_the_log() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    disk.fail("sync_directory", OSError(errno.EIO, "bad"))

    with pytest.raises(KafkaStorageError):
        log.flush()

    assert log.failure is not None


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("offset", [0, 3, 5])
def test_crash_at_any_step_of_a_truncation_leaves_no_hole(offset: int, loss: Loss) -> None:
    """The recovery point still says that all was durable: segments are not read, and some may be back."""
    disk = FakeDisk()
    directory = open_directory(disk, SMALL_SEGMENTS)
    log = directory.create_log("t", 0, bytes(16), SMALL_SEGMENTS, now_wall_ms=NOW)
    append(log, *[batch(f"{n:02}" + "x" * 80) for n in range(12)])
    log.flush()
    directory.recovery_point_checkpoint().write()
    before = read_all(log)
    begin = len(disk.journal)
    log.truncate_to(offset)

    for operations, seed in product(range(begin, len(disk.journal) + 1), range(5)):
        found = reopened(FakeDisk.after(disk.journal[:operations], loss, seed=seed), SMALL_SEGMENTS)
        assert read_all(found) == before[: found.log_end_offset]
        assert found.log_end_offset >= offset


@pytest.mark.parametrize("offset", [12, 20])
def test_kill_at_any_step_of_a_restart_leaves_either_log(offset: int) -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = read_all(log)
    begin = len(disk.journal)
    log.truncate_fully_and_start_at(offset)
    log.truncate_fully_and_start_at(offset)

    ends = set[tuple[int, int]]()
    for operations in range(begin, len(disk.journal) + 1):
        found = reopened(FakeDisk.after(disk.journal[:operations], Loss.NOTHING), SMALL_SEGMENTS)
        ends.add((found.log_start_offset, found.log_end_offset))
        assert read_all(found) == ([] if found.log_start_offset else before)
    assert ends == {(0, 12), (offset, offset)}


@pytest.mark.parametrize("loss", list(Loss))
def test_power_lost_after_a_restart_takes_nothing_flushed(loss: Loss) -> None:
    disk = FakeDisk()
    log = filled(disk)
    log.flush()
    log.truncate_fully_and_start_at(20)
    append(log, batch("a"))
    log.flush()

    for seed in range(20):
        found = reopened(FakeDisk.after(disk.journal, loss, seed=seed), SMALL_SEGMENTS)
        assert (found.log_start_offset, read_all(found)) == (20, [(20, b"a")])


def test_restart_that_a_disk_left_open_ends_before_the_next_roll() -> None:
    """Opening the log would remove a second segment with the old ones."""
    disk = FakeDisk()
    log = filled(disk)
    disk.fail("rename", OSError(errno.EIO, "bad"))
    log.truncate_fully_and_start_at(20)
    append(log, *[batch("x" * 80) for _ in range(2)])
    disk.fail("rename", OSError(errno.EIO, "bad"))

    with pytest.raises(KafkaStorageError):
        log.roll()
    assert [offset for offset, _ in read_all(reopened(FakeDisk.after(disk.journal), SMALL_SEGMENTS))] == [20, 21]

    log.roll()
    append(log, batch("y"))
    assert [offset for offset, _ in read_all(reopened(FakeDisk.after(disk.journal), SMALL_SEGMENTS))] == [20, 21, 22]


def test_records_beyond_an_unfinished_restart_count_as_lost() -> None:
    """A loss of power may bring its name back, beside a log that went on."""
    disk = FakeDisk()
    filled(disk)
    disk.open(f"/data/t-0/{5:020d}.log.restart")
    lost: list[str] = []

    disk.locked.clear()
    found = open_directory(disk, SMALL_SEGMENTS, when_lost=lambda: lost.append("lost")).logs["t", 0]

    assert ((found.log_start_offset, found.log_end_offset), lost) == ((5, 5), ["lost"])
