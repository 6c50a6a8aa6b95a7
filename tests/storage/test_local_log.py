"""Offsets that are missing: by compaction, in a copy of a compacted log, and by damage."""

import errno

import pytest

from ottla.protocol.errors import KafkaStorageError, OffsetOutOfRange
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.storage.local_log import NO_GAPS
from ottla.storage.log import Log
from ottla.storage.log_config import INT32_MAX, LogConfig
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import (
    NOW,
    ROOT,
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

SMALL = LogConfig(segment_bytes=200)
GAPPY = [(3, b"a"), (9, b"b"), (10, b"c"), (40, b"d"), (41, b"e")]


def copy_batch(log: Log, offset: int, value: str) -> None:
    """As a leader with a compacted log sends it."""
    sent = batch(value)
    assign_offset_and_epoch(sent, 0, offset, 2)
    log.append_as_follower(sent, now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)


def gappy_copy(disk: FakeDisk, config: LogConfig | None = None) -> Log:
    log = new_log(disk, config)
    for offset, value in GAPPY:
        copy_batch(log, offset, value.decode())
    return log


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "several segments"])
def test_copy_of_compacted_log_survives_a_kill_under_any_policy(config: LogConfig) -> None:
    disk = FakeDisk()
    gappy_copy(disk, config)
    notices: list[str] = []
    disk.locked.clear()

    directory = open_directory(disk, config, notices=notices.append)

    log = directory.logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (0, 42, GAPPY)
    assert (notices, directory.has_lost_records) == ([], False)
    check_indexes(log)


def test_copy_compacted_when_closed_is_read_under_another_policy() -> None:
    """The topic's policy may come from a dynamic default, which logs do not know when they open."""
    disk = FakeDisk()
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    directory = open_directory(disk, compacted)
    log = directory.create_log("t", 0, TOPIC_ID, compacted, now_wall_ms=NOW)
    for offset, value in GAPPY:
        copy_batch(log, offset, value.decode())
    directory.close()

    assert read_all(open_directory(disk).logs["t", 0]) == GAPPY


def test_empty_copy_keeps_its_start_below_the_first_kept_record() -> None:
    """Offsets that a group has committed below the first record stay valid after a fail-over."""
    log = gappy_copy(FakeDisk())

    assert (log.log_start_offset, log.segments[0].base_offset) == (0, 0)
    assert read_all(log, 0) == read_all(log, 2) == GAPPY
    with pytest.raises(OffsetOutOfRange):
        log.read(43, 100, upper_bound=42)


def test_copy_from_the_leaders_start_may_lack_the_first_records() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    log.truncate_fully_and_start_at(7)
    copy_batch(log, 9, "a")

    assert (log.log_start_offset, read_all(log, 7)) == (7, [(9, b"a")])
    again = reopened(disk)
    assert (again.log_start_offset, read_all(again, 7)) == (7, [(9, b"a")])


def test_flushed_records_around_gaps_survive_a_power_failure() -> None:
    disk = FakeDisk()
    directory = open_directory(disk, SMALL)
    log = directory.create_log("t", 0, TOPIC_ID, SMALL, now_wall_ms=NOW)
    flushed = {len(disk.journal): 0}
    for n, (offset, value) in enumerate(GAPPY):
        copy_batch(log, offset, value.decode())
        log.flush()
        flushed[len(disk.journal)] = n + 1

    for operations in range(min(flushed), len(disk.journal) + 1):
        count = flushed[max(known for known in flushed if known <= operations)]
        for loss in Loss:
            crashed = FakeDisk.after(disk.journal[:operations], loss, seed=operations)
            found = open_directory(crashed, SMALL).logs.get(("t", 0))
            assert (read_all(found) if found else [])[:count] == GAPPY[:count]


def test_offset_missing_from_a_log_without_gaps_is_damage() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, *[batch(str(n)) for n in range(4)])
    size = log.size_bytes
    disk.flip_bit(log.segments.active.path(".log"), 8 * (size // 2 + 6))
    sizes_when_logged: list[int] = []
    disk.locked.clear()

    directory = open_directory(
        disk, when_lost=lambda: sizes_when_logged.append(disk.size(log.segments.active.path(".log")))
    )

    assert directory.logs["t", 0].log_end_offset == 2
    assert (directory.has_lost_records, sizes_when_logged) == (True, [size]), "logged before anything is cut"


@pytest.mark.parametrize(("torn_bytes", "high_watermark", "lost"), [(40, 2, False), (40, 3, True), (80, 2, False)])
def test_torn_last_batch_counts_as_loss_if_it_was_committed(torn_bytes: int, high_watermark: int, lost: bool) -> None:
    """A killed process leaves a batch that no leader has acknowledged; a damaged length looks the same."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, *[batch("a" * 30) for n in range(3)])
    directory.high_watermark_checkpoint({("t", 0): high_watermark}).write()
    disk.open(log.segments.active.path(".log")).truncate(log.size_bytes - torn_bytes)
    disk.locked.clear()

    directory = open_directory(disk)

    assert (directory.logs["t", 0].log_end_offset, directory.has_lost_records) == (2, lost)


@pytest.mark.parametrize("what", ["checksum", "torn after a clean stop", "segments after the cut"])
def test_records_that_recovery_truncates_are_reported(what: str) -> None:
    disk = FakeDisk()
    directory = open_directory(disk, SMALL)
    log = directory.create_log("t", 0, TOPIC_ID, SMALL, now_wall_ms=NOW)
    append(log, *[batch(str(n)) for n in range(5)])
    last, first = log.segments.active, log.segments[0]
    if what == "torn after a clean stop":
        directory.close()
        disk.open(last.path(".log")).truncate(last.size - 1)
    elif what == "checksum":
        disk.flip_bit(last.path(".log"), 8 * (last.size - 1))
    else:
        disk.open(first.path(".log")).truncate(first.size - 1)
    disk.locked.clear()

    assert open_directory(disk, SMALL).has_lost_records


def test_gap_wider_than_a_segment_can_index_begins_a_segment() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    far = INT32_MAX + 50
    expected = [(far, b"a"), (2 * far, b"b"), (2 * far + 1, b"c")]
    for offset, value in expected:
        copy_batch(log, offset, value.decode())

    assert [segment.base_offset for segment in log.segments] == [0, far, 2 * far]
    for found in (log, reopened(disk)):
        assert (found.log_start_offset, read_all(found)) == (0, expected)
        check_indexes(found)
    apply_retention(log, NOW + 10 * LogConfig().retention_ms, log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset


def test_segment_begun_for_a_wide_gap_goes_if_the_write_fails() -> None:
    """Another leader may have records in the gap."""
    disk = FakeDisk()
    log = new_log(disk)
    copy_batch(log, 0, "a")
    disk.fail("writev", OSError(errno.ENOSPC, "full"), after=3)

    with pytest.raises(KafkaStorageError):
        copy_batch(log, INT32_MAX + 50, "b")
    copy_batch(log, 1, "c")

    assert [segment.base_offset for segment in log.segments] == [0]
    assert read_all(log) == read_all(reopened(disk)) == [(0, b"a"), (1, b"c")]


def test_gap_that_cannot_be_noted_does_not_get_into_the_log() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    disk.fail("remove", OSError(errno.EIO, "broken"))

    with pytest.raises(KafkaStorageError, match="note the gaps"):
        copy_batch(log, 5, "a")

    assert (log.has_pending_writes, log.log_end_offset) == (False, 0)
    assert disk.exists(ROOT / "t-0" / NO_GAPS)
    copy_batch(log, 5, "a")
    assert read_all(log) == [(5, b"a")]
