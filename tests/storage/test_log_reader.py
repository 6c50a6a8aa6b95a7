"""Reads for which indexes have to be read, or made again: on a disk that refuses or is damaged, and in a thread."""

import errno
from collections.abc import Callable

import pytest

from ottla.protocol.errors import CorruptMessage, KafkaStorageError, NotLeaderOrFollower
from ottla.storage.files import AnyPath
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
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

EMFILE = OSError(errno.EMFILE, "too many files are open")


def released(disk: FakeDisk) -> Log:
    """Of its inactive segments nothing is in memory."""
    log = new_log(disk, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    append(log, *[batch("x" * 50) for _ in range(20)])
    log.release_idle()
    return log


def remove_indexes(disk: FakeDisk, log: Log) -> None:
    for suffix in (".index", ".timeindex"):
        disk.remove(log.segments[0].path(suffix))


def test_index_that_cannot_be_made_again_is_no_damage() -> None:
    """A replica would drop a segment that is sound."""
    disk = FakeDisk()
    log = released(disk)
    # It leads into the middle of a batch.
    disk.flip_bit(log.segments[0].path(".index"), 58)
    offset = 3
    disk.fail("open", EMFILE, after=1)

    with pytest.raises(KafkaStorageError):
        read_all(log, offset)

    assert len(read_all(log, offset)) == 20 - offset


def test_damage_found_while_an_index_is_made_is_of_records() -> None:
    disk = FakeDisk()
    log = released(disk)
    remove_indexes(disk, log)
    magic = 16
    disk.flip_bit(log.segments[0].path(".log"), 8 * magic)

    with pytest.raises(CorruptMessage):
        log.read(0, 100, upper_bound=20)
    with pytest.raises(CorruptMessage):
        log.bytes_between(0, 20)


def test_bytes_that_cannot_be_counted_are_a_storage_error() -> None:
    disk = FakeDisk()
    log = released(disk)
    remove_indexes(disk, log)
    disk.fail("pread", OSError(errno.EIO, "the disk refuses"))

    with pytest.raises(KafkaStorageError):
        log.bytes_between(0, 20)

    assert log.bytes_between(0, 20) == log.size_bytes


# Looking for a time, in a thread, beside the loop.

INDEXES = (".index", ".timeindex")
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=1000)


class BesideLoop(FakeDisk):
    """`loop_does` happens when a thread is about to read the file that ends in `suffix`."""

    def __init__(self) -> None:
        super().__init__()
        self.suffix = ""
        self.loop_does: Callable[[], None] | None = None

    def read_bytes(self, path: AnyPath) -> bytes:
        if self.loop_does is not None and str(path).endswith(self.suffix):
            action, self.loop_does = self.loop_does, None
            action()
        return super().read_bytes(path)


def searched(suffix: str) -> tuple[BesideLoop, Log]:
    disk = BesideLoop()
    disk.suffix = suffix
    log = new_log(disk, CONFIG)
    append(log, *[batch("x" * 50, timestamp=NOW + n) for n in range(20)])
    log.release_idle()
    return disk, log


@pytest.mark.parametrize("suffix", INDEXES)
def test_search_does_not_load_an_index_that_was_truncated(suffix: str) -> None:
    """What the thread has read of the file is older than what the loop has made of the index."""
    disk, log = searched(suffix)

    def truncate_and_append() -> None:
        log.truncate_to(5)
        append(log, *[batch("y" * 30, timestamp=NOW + n) for n in range(6)])

    disk.loop_does = truncate_and_append
    found = log.offset_for_timestamp(NOW + 2, 20)

    assert found is not None
    assert found.offset == 2
    check_indexes(log)
    assert len(read_all(log)) == 11


@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("closes", [False, True])
def test_search_makes_no_file_of_a_deleted_segment(suffix: str, closes: bool) -> None:
    """An empty segment before the first one would be taken for a log that has lost its records."""
    disk, log = searched(suffix)

    def retention() -> None:
        log.flush()
        apply_retention(log, NOW + 1_000_000, 15)

    disk.loop_does = retention
    with pytest.raises(NotLeaderOrFollower):
        log.offset_for_timestamp(NOW + 2, 20)

    assert [name for name in disk.list_directory(log.directory) if name.endswith(".log")] == [
        f"{segment.base_offset:020d}.log" for segment in log.segments
    ]
    if closes:
        log.close()
    assert len(read_all(reopened(disk, CONFIG))) == 12


def test_timestamp_is_that_of_the_batch_at_the_offset() -> None:
    log = new_log(FakeDisk(), CONFIG)
    append(log, *[batch("x", "y", timestamp=NOW + n) for n in range(20)])
    log.release_idle()

    assert [log.timestamp_at(offset, 39) for offset in (0, 1, 2, 37, 38, 39, 40)] == [
        NOW,
        NOW,
        NOW + 1,
        NOW + 18,
        NOW + 19,
        NOW + 19,
        None,
    ]
    assert log.timestamp_at(38, 38) is None


@pytest.mark.parametrize("suffix", INDEXES)
def test_looking_up_a_timestamp_changes_no_segment(suffix: str) -> None:
    """A log that is cut in between has another batch at the place where the search has stopped."""
    disk, log = searched(suffix)

    def truncate_and_append() -> None:
        log.truncate_to(2)
        append(log, *[batch("y" * 33, timestamp=NOW + n) for n in range(5)])

    disk.loop_does = truncate_and_append
    with pytest.raises(NotLeaderOrFollower):
        log.timestamp_at(3, 20)

    check_indexes(log)
    for offset in range(log.log_end_offset):
        read_all(log, offset)


def test_search_in_a_log_that_was_replaced_makes_no_file() -> None:
    disk = BesideLoop()
    directory = open_directory(disk, CONFIG)
    log = directory.create_log("t", 0, bytes(range(16)), CONFIG, now_wall_ms=NOW)
    append(log, *[batch("x" * 50, timestamp=NOW + n) for n in range(20)])
    log.release_idle()
    disk.suffix = ".index"
    disk.loop_does = lambda: directory.delete_log("t", 0, now_wall_ms=NOW)

    with pytest.raises(KafkaStorageError):
        log.offset_for_timestamp(NOW + 2, 20)

    assert not disk.exists(log.directory)
