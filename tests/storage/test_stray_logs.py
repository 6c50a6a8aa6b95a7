"""Logs of partitions that are elsewhere by now: set aside, and no record of them is lost.

The metadata that says so may be an older copy which an operator has put back (docs/decisions/0012).
"""

import errno

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, ROOT, TOPIC_ID, append, batch, open_directory, read_all, reopened


def stray(disk: FakeDisk) -> LogDirectory:
    directory = open_directory(disk)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("kept"))
    return directory


def test_stray_log_keeps_its_files_and_is_not_loaded() -> None:
    """An operator can give it its name back."""
    disk, notices = FakeDisk(), list[str]()
    directory = stray(disk)
    target = directory.set_stray_aside("t", 0)

    assert (directory.logs, target) == ({}, ROOT / "t-0.1-stray")
    directory.close()
    assert open_directory(disk, notices=notices.append).logs == {}
    assert notices == [f"{target} is no log of a partition and is left alone"]
    disk.rename(target, ROOT / "t-0")
    assert read_all(reopened(disk)) == [(0, b"kept")]


def test_stray_logs_of_one_name_take_each_other_nothing() -> None:
    disk = FakeDisk()
    directory = stray(disk)
    directory.set_stray_aside("t", 0)
    directory.close()
    disk.locked.clear()

    again = stray(disk)
    again.set_stray_aside("t", 0)

    names = [name for name in disk.list_directory(ROOT) if name.endswith("-stray")]
    assert sorted(names) == ["t-0.1-stray", "t-0.2-stray"]


def test_stray_log_that_keeps_its_name_stays_a_log() -> None:
    disk = FakeDisk()
    directory = stray(disk)
    disk.fail("rename", OSError(errno.EIO, "bad"))

    with pytest.raises(KafkaStorageError, match="could not set aside"):
        directory.set_stray_aside("t", 0)

    assert read_all(directory.logs["t", 0]) == [(0, b"kept")]
