"""Writes of leader epochs in threads: which of several remains, and what is left of one that fails or is not wanted."""

import contextlib
import errno

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.compaction import compact, plan_compaction
from ottla.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache, LeaderEpochCheckpointFile
from ottla.storage.log_config import COMPACT, LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, ROOT, TOPIC_ID, append, batch, keyed, new_log, open_directory, read_all, reopened
from tests.storage.test_leader_epoch_checkpoint import follow, stored_epochs


def test_of_several_writes_under_way_the_latest_remains() -> None:
    """The flush of a truncation and a common one may run in two threads."""
    disk = FakeDisk()
    new_log(disk)
    file = LeaderEpochCheckpointFile(disk, ROOT / "t-0", [])
    first = file.begin_write(LeaderEpochCache([EpochEntry(1, 0), EpochEntry(2, 5)]), 9)
    second = file.begin_write(LeaderEpochCache([EpochEntry(1, 0), EpochEntry(3, 4)]), 9)
    assert first is not None
    assert second is not None
    second.run()
    first.run()

    assert stored_epochs(disk) == ((1, 0), (3, 4))
    assert file.begin_write(LeaderEpochCache([EpochEntry(1, 0), EpochEntry(3, 4), EpochEntry(4, 9)]), 9) is None


def test_what_a_write_under_way_has_is_not_yet_durable() -> None:
    disk = FakeDisk()
    new_log(disk)
    file = LeaderEpochCheckpointFile(disk, ROOT / "t-0", [])
    epochs = LeaderEpochCache([EpochEntry(1, 0)])
    assert file.begin_write(epochs, 9) is not None

    second = file.begin_write(epochs, 9)

    assert second is not None
    second.run()
    assert stored_epochs(disk) == ((1, 0),)


@pytest.mark.parametrize("compacts", [False, True])
def test_epochs_of_a_deleted_log_do_not_reach_the_next(compacts: bool) -> None:
    """A thread is still at work on the log when another is made in its place, and has written its own epochs."""
    config = LogConfig(segment_bytes=1000, cleanup_policy=frozenset({COMPACT}), min_cleanable_dirty_ratio=0.0)
    disk = FakeDisk()
    directory = open_directory(disk, config)
    old = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(old, *[keyed(("k", "x" * 90)) for _ in range(10)], leader_epoch=1)
    append(old, *[keyed(("k", "x" * 90)) for _ in range(10)], leader_epoch=4)
    plan = plan_compaction(old, now_wall_ms=NOW, upper_bound=20)
    assert plan is not None
    work = None if compacts else old.begin_flush()

    directory.delete_log("t", 0, now_wall_ms=NOW)
    new = directory.create_log("t", 0, bytes(range(1, 17)), config, now_wall_ms=NOW)
    append(new, batch("y", key="k"), leader_epoch=0)
    new.flush()
    if work is not None:
        work.run()
    with contextlib.suppress(KafkaStorageError):
        compact(plan)

    assert stored_epochs(disk) == ((0, 0),)
    directory.close()
    assert read_all(reopened(disk, config)) == [(0, b"y")]


@pytest.mark.parametrize("operation", ["writev", "fsync"])
def test_epochs_that_are_not_written_leave_no_file(operation: str) -> None:
    disk = FakeDisk()
    new_log(disk)
    before = disk.list_directory(ROOT / "t-0")
    file = LeaderEpochCheckpointFile(disk, ROOT / "t-0", [])
    write = file.begin_write(LeaderEpochCache([EpochEntry(1, 0)]), 9)
    assert write is not None
    disk.fail(operation, OSError(errno.EIO, "the disk refuses"))

    with pytest.raises(OSError, match="the disk refuses"):
        write.run()

    assert disk.list_directory(ROOT / "t-0") == before


def test_epochs_that_cannot_be_begun_are_begun_again() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    follow(log, ("a", 1))
    disk.fail("open", OSError(errno.EMFILE, "too many files are open"))
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.failure is None

    log.flush()
    assert stored_epochs(disk) == ((1, 0),)


def test_flush_that_fails_keeps_no_file_open() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    follow(log, ("a", 1))
    work = log.begin_flush()
    log.release()
    disk.fail("fsync", OSError(errno.EIO, "the disk refuses"))
    work.run()

    assert work.sync_error is not None
    assert not disk.open_files


@pytest.mark.parametrize("spoil", ["damage", "refuse"])
def test_pass_that_fails_leaves_no_epochs_aside(spoil: str) -> None:
    """A damaged log is tried again in each round of the cleaner."""
    config = LogConfig(segment_bytes=400, cleanup_policy=frozenset({COMPACT}), min_cleanable_dirty_ratio=0.0)
    disk = FakeDisk()
    log = new_log(disk, config)
    append(log, *[keyed(("k", "x" * 90)) for _ in range(10)], leader_epoch=1)
    before = set(disk.list_directory(log.directory))
    for _ in range(2):
        plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
        assert plan is not None
        disk.fail("pread" if spoil == "damage" else "writev", OSError(errno.EIO, "the disk refuses"))
        with pytest.raises(KafkaStorageError):
            compact(plan)

    assert set(disk.list_directory(log.directory)) == before


def test_flush_that_may_open_no_file_leaves_no_epochs_aside() -> None:
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=100))
    follow(log, ("a", 1), ("b", 2), ("c", 3))
    before = set(disk.list_directory(log.directory))
    work = log.begin_flush()
    disk.fail("open", OSError(errno.EMFILE, "too many files are open"))
    work.run()

    assert work.open_error is not None
    assert set(disk.list_directory(log.directory)) == before
