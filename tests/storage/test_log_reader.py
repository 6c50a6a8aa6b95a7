"""Reads for which indexes have to be read, or made again, on a disk that refuses or is damaged."""

import errno

import pytest

from ottla.protocol.errors import CorruptMessage, KafkaStorageError
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import append, batch, new_log, read_all

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
