"""Retention (§16.6.1): whole segments from the oldest on, never above the high watermark."""

from itertools import product

import pytest

from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import (
    NOW,
    TOPIC_ID,
    append,
    apply_retention,
    batch,
    check_indexes,
    new_log,
    open_directory,
    read_all,
    reopened,
)

SIZE = len(batch("0"))
FOREVER = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1)


def filled(disk: FakeDisk, config: LogConfig) -> Log:
    """Segments of two batches: [0, 2), [2, 4), [4, 6), [6, 8), [8, 10)."""
    log = new_log(disk, config)
    fill(log)
    return log


def fill(log: Log) -> None:
    append(log, *[batch(str(n), timestamp=NOW + n) for n in range(10)])


def test_active_segment_beyond_retention_ms_is_rolled_and_goes() -> None:
    log = filled(FakeDisk(), LogConfig(segment_bytes=2 * SIZE, retention_ms=1000))

    assert apply_retention(log, NOW + 1001, 10) == []
    removed = apply_retention(log, NOW + 1004, 10)
    assert [segment.base_offset for expired in removed for segment in expired.segments] == [0, 2]
    assert (log.log_start_offset, read_all(log)[0]) == (4, (4, b"4"))

    apply_retention(log, NOW + 5000, 10)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (10, 10, 1)
    append(log, batch("x"))
    assert read_all(log) == [(10, b"x")]


def test_log_may_exceed_retention_bytes_by_a_part_of_a_segment() -> None:
    log = filled(FakeDisk(), LogConfig(segment_bytes=2 * SIZE, retention_ms=-1, retention_bytes=5 * SIZE))

    apply_retention(log, NOW, 10)

    assert log.log_start_offset == 4
    assert log.size_bytes == 6 * SIZE


def test_nothing_at_or_above_the_high_watermark_is_given_up() -> None:
    log = filled(FakeDisk(), LogConfig(segment_bytes=2 * SIZE, retention_ms=0))

    apply_retention(log, NOW + 5000, 5)

    assert log.log_start_offset == 4


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    log = filled(FakeDisk(), FOREVER)
    log.configure(LogConfig(segment_bytes=2 * SIZE, cleanup_policy=frozenset({"compact"}), retention_ms=0))
    log.delete_records_before(5)

    apply_retention(log, NOW + 5000, 10)

    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]
    assert log.log_start_offset == 5


def test_limits_of_minus_one_keep_everything() -> None:
    assert apply_retention(filled(FakeDisk(), FOREVER), NOW * 2, 10) == []


def test_deleted_files_stay_until_file_delete_delay_ms() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=0, file_delete_delay_ms=60)
    log = directory.create_log("t", 0, bytes(16), config, now_wall_ms=NOW)
    append(log, *[batch(str(n), timestamp=NOW) for n in range(3)])
    apply_retention(log, NOW + 1, 2)

    assert directory.take_due_deletions(NOW + 60) is None
    assert "00000000000000000000.log.deleted" in disk.list_directory(log.directory)
    due = directory.take_due_deletions(NOW + 61)
    assert due is not None
    due.run()
    assert not [name for name in disk.list_directory(log.directory) if name.endswith(".deleted")]
    assert directory.take_due_deletions(NOW + 1000) is None


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_step_of_retention_leaves_no_hole(loss: Loss) -> None:
    disk = FakeDisk()
    config = LogConfig(segment_bytes=2 * SIZE, retention_bytes=3 * SIZE, retention_ms=-1)
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    fill(log)
    log.flush()
    begin = len(disk.journal)
    log.expire(NOW, 10)
    directory.log_start_checkpoint().write()
    log.delete_expired(log.log_start_offset, NOW)
    directory.log_start_checkpoint().write()
    kept_from = log.log_start_offset

    for operations, seed in product(range(begin, len(disk.journal) + 1), range(5)):
        found = reopened(FakeDisk.after(disk.journal[:operations], loss, seed=seed), config)
        assert found.log_end_offset == 10
        assert [offset for offset, _ in read_all(found)] == list(range(found.log_start_offset, 10))
        assert found.log_start_offset <= kept_from
        check_indexes(found)
