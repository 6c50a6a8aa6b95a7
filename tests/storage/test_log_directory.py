"""Whose a data directory is, what is in it, and the sentences for those who bring the wrong one."""

import errno
from pathlib import Path

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage import checkpoints
from ottla.storage.files import OsFileSystem
from ottla.storage.found_log import FoundLog
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory, partition_of
from ottla.storage.meta_properties import DataDirectoryError
from ottla.storage.recovery import LogHistory
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import NOW, ROOT, TOPIC_ID, append, batch, open_directory, read_all, reopened

NEW_TOPIC_ID = bytes(15) + b"2"


def put(disk: FakeDisk, name: str, content: bytes) -> None:
    disk.make_directory(ROOT)
    file = disk.open(ROOT / name)
    file.truncate(0)
    file.writev([content])


def test_a_new_directory_gets_an_identity_and_keeps_it() -> None:
    disk = FakeDisk()
    directory = open_directory(disk, cluster_id="cluster")
    directory.close()

    again = open_directory(disk)

    assert again.meta_properties == directory.meta_properties
    assert (again.meta_properties.cluster_id, again.meta_properties.node_id) == ("cluster", 1)
    fields = checkpoints.parse_properties(disk.read_bytes(ROOT / "meta.properties"))
    assert (fields["version"], fields["node.id"], fields["cluster.id"]) == ("1", "1", "cluster")


def test_only_one_broker_uses_a_directory() -> None:
    disk = FakeDisk()
    first = open_directory(disk)

    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        open_directory(disk)

    first.close()
    open_directory(disk)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"version=1\ncluster.id=c\nnode.id=7\n", "belongs to node 7, this is node 1"),
        (b"version=1\ncluster.id=other\nnode.id=1\n", "belongs to cluster other, this broker to mine"),
        (b"version=0\nbroker.id=1\n", "format version 0"),
        (b"version=2\ncluster.id=c\nnode.id=1\n", "format version 2"),
        (b"version=1\nnode.id=1\n", "lacks a valid 'cluster.id'"),
        (b"\xff\xfe", "not readable"),
    ],
)
def test_a_directory_of_others_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    disk = FakeDisk()
    put(disk, "meta.properties", content)

    with pytest.raises(DataDirectoryError, match=sentence):
        open_directory(disk, cluster_id="mine")

    assert not disk.locked


def test_a_directory_with_other_files_is_no_data_directory() -> None:
    disk = FakeDisk()
    put(disk, "holiday.jpg", b"")

    with pytest.raises(DataDirectoryError, match=r"holds holiday\.jpg but no meta\.properties"):
        open_directory(disk)


def test_interrupted_start_does_not_make_a_directory_foreign() -> None:
    disk = FakeDisk()
    put(disk, "meta.properties.tmp", b"ver")
    put(disk, "ottla-metadata.sqlite", b"")

    assert open_directory(disk).logs == {}


def test_empty_checkpoints_of_kafka_say_nothing_and_are_sound() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    directory.close()
    put(disk, checkpoints.CLEANED_OFFSETS, b"")
    put(disk, f"t-0/{checkpoints.LEADER_EPOCHS}", b"")

    log = open_directory(disk, notices=pytest.fail).logs["t", 0]

    assert (log.cleaned_offset, log.epochs.entries) == (0, ())


@pytest.mark.parametrize(
    ("code", "sentence"), [(errno.EACCES, "permission is denied"), (errno.EROFS, "read-only"), (errno.ENOSPC, "space")]
)
def test_disk_that_refuses_is_reported_in_plain_words(code: int, sentence: str) -> None:
    disk = FakeDisk()
    disk.fail("make_directory", OSError(code, "x"))

    with pytest.raises(DataDirectoryError, match=f"cannot use data directory /data: .*{sentence}"):
        open_directory(disk)


def test_a_log_that_cannot_be_created_is_not_there() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    disk.fail("open", OSError(errno.EMFILE, "x"))

    with pytest.raises(KafkaStorageError, match="too many files open"):
        directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)

    assert directory.logs == {}
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)


def test_deleted_logs_vanish_at_once_and_their_files_later() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"))
    directory.delete_log("t", 0, now_wall_ms=NOW)

    assert directory.logs == {}
    directory.create_log("t", 0, bytes(15) + b"2", LogConfig(), now_wall_ms=NOW)
    due = directory.take_due_deletions(NOW + 60_000)
    assert due is not None
    due.run()
    assert [name for name in disk.list_directory(ROOT) if disk.is_directory(ROOT / name)] == ["t-0"]
    assert reopened(disk).log_end_offset == 0


class Files:
    """A `LogFill` with those of a log that was closed."""

    def __init__(self, disk: FakeDisk, directory: LogDirectory) -> None:
        self.known: FoundLog | None = None
        self.source = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
        append(self.source, batch("a", "b"))
        self.source.close()
        self._disk = disk

    def put(self, directory: Path) -> LogHistory:
        for name in self._disk.list_directory(self.source.directory):
            put(self._disk, f"{directory.name}/{name}", self._disk.read_bytes(self.source.directory / name))
        return LogHistory(was_closed_cleanly=True, recovery_point=2, high_watermark=1)


def test_log_is_created_of_the_files_that_are_put_there() -> None:
    """Once: the next one of the name is empty."""
    disk = FakeDisk()
    directory = open_directory(disk)
    fill = Files(disk, directory)
    source = fill.source

    directory.fills["u", 0] = fill
    log = directory.create_log("u", 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW)

    assert (log.log_end_offset, log.restored_high_watermark, log.topic_id) == (2, 1, NEW_TOPIC_ID)
    assert read_all(log) == read_all(source)
    directory.delete_log("u", 0, now_wall_ms=NOW)
    assert directory.create_log("u", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW).log_end_offset == 0


def test_files_that_are_put_again_are_not_looked_at_again() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    fill = Files(disk, directory)
    directory.fills |= {("u", 0): fill, ("v", 0): fill}
    first = directory.create_log("u", 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(first, batch("c"))
    put(disk, "t-0/00000000000000000000.index", b"damaged")

    second = directory.create_log("v", 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW)

    assert read_all(second) == read_all(fill.source)
    assert (second.directory, second.restored_high_watermark, second.topic_id) == (ROOT / "v-0", 1, NEW_TOPIC_ID)


def test_files_that_have_to_be_mended_are_mended_each_time() -> None:
    notices: list[str] = []
    disk = FakeDisk()
    directory = open_directory(disk, notices=notices.append)
    fill = Files(disk, directory)
    disk.remove(ROOT / "t-0/00000000000000000000.index")
    directory.fills |= {("u", 0): fill, ("v", 0): fill}

    logs = [directory.create_log(name, 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW) for name in "uv"]

    assert fill.known is None
    assert [read_all(log) for log in logs] == [read_all(fill.source)] * 2
    assert [notice.partition("/")[0] for notice in notices] == ["u-0", "v-0"]


def test_topic_never_begins_with_records_of_its_deleted_namesake() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("old"))
    disk.fail("rename", OSError(errno.ENOSPC, "full"))
    disk.fail("rename", OSError(errno.ENOSPC, "full"))

    with pytest.raises(KafkaStorageError, match="could not delete"):
        directory.delete_log("t", 0, now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError, match="could not create"):
        directory.create_log("t", 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    assert directory.has_log_of({TOPIC_ID, NEW_TOPIC_ID}) == {TOPIC_ID}

    log = directory.create_log("t", 0, NEW_TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    assert read_all(log) == []
    assert directory.has_log_of({TOPIC_ID, NEW_TOPIC_ID}) == {NEW_TOPIC_ID}
    assert (reopened(disk).topic_id, read_all(reopened(disk))) == (NEW_TOPIC_ID, [])


def test_deleted_log_that_kept_its_name_is_renamed_later() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    disk.fail("rename", OSError(errno.EIO, "bad"))
    with pytest.raises(KafkaStorageError):
        directory.delete_log("t", 0, now_wall_ms=NOW)

    due = directory.take_due_deletions(NOW + 60_000)
    assert due is not None
    due.run()

    assert not [name for name in disk.list_directory(ROOT) if disk.is_directory(ROOT / name)]
    assert directory.has_log_of({TOPIC_ID}) == set()


def test_files_that_could_not_be_removed_are_due_again() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    for partition in range(2):
        directory.create_log("t", partition, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
        directory.delete_log("t", partition, now_wall_ms=NOW)
    disk.fail("remove", OSError(errno.EIO, "bad"))

    first = directory.take_due_deletions(NOW + 60_000)
    assert first is not None
    first.run()
    with pytest.raises(KafkaStorageError, match="could not remove"):
        directory.finish_deletions(first, NOW + 60_000)
    second = directory.take_due_deletions(NOW + 60_000)
    assert second is not None
    second.run()

    assert len(second.paths) == 1
    assert not [name for name in disk.list_directory(ROOT) if disk.is_directory(ROOT / name)]


def test_log_whose_deletion_was_interrupted_goes_at_the_start() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    directory.create_log("t" * 249, 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    directory.delete_log("t" * 249, 0, now_wall_ms=NOW)
    assert max(len(name) for name in disk.list_directory(ROOT)) <= 255
    disk.locked.clear()

    directory = open_directory(disk)

    assert directory.logs == {}
    assert not [name for name in disk.list_directory(ROOT) if name.endswith("-delete")]


def test_directories_that_are_no_logs_are_kept_and_mentioned() -> None:
    disk = FakeDisk()
    open_directory(disk).close()
    disk.make_directory(ROOT / "notes")
    notices: list[str] = []

    assert open_directory(disk, notices=notices.append).logs == {}
    assert notices == ["/data/notes is no log of a partition and is left alone"]


def test_a_missing_topic_id_can_be_assigned() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    disk.remove(log.directory / "partition.metadata")
    disk.locked.clear()
    directory = open_directory(disk)
    assert directory.logs["t", 0].topic_id is None

    directory.assign_topic_id(directory.logs["t", 0], TOPIC_ID)

    assert reopened(disk).topic_id == TOPIC_ID


@pytest.mark.parametrize(
    ("name", "key"),
    [("a-0", ("a", 0)), ("my-topic-12", ("my-topic", 12)), ("a", None), ("a-b", None), ("-1", None)],
)
def test_topic_and_partition_are_read_off_the_directory_name(name: str, key: tuple[str, int] | None) -> None:
    assert partition_of(name) == key


def test_the_real_file_system_does_the_same(tmp_path: Path) -> None:
    def opened() -> LogDirectory:
        return LogDirectory.open(
            tmp_path / "data",
            node_id=1,
            cluster_id="c",
            new_id=lambda: "id",
            config_of=lambda _: config,
            now_wall_ms=NOW,
            files=OsFileSystem(),
        )

    config = LogConfig(segment_bytes=400)
    directory = opened()
    with pytest.raises(DataDirectoryError, match="in use"):
        opened()
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(str(n)) for n in range(20)])
    assert len(log.segments) > 2
    expected = read_all(log)
    directory.close(clean=False)

    directory = opened()
    assert read_all(directory.logs["t", 0]) == expected
    directory.close()
    directory = opened()
    assert directory.was_closed_cleanly
    log = directory.logs["t", 0]
    assert read_all(log) == expected
    log.truncate_to(3)
    append(log, batch("x"))
    assert read_all(log) == [*expected[:3], (3, b"x")]
    directory.delete_log("t", 0, now_wall_ms=NOW)
    due = directory.take_due_deletions(NOW + 60_000)
    assert due is not None
    due.run()
    directory.close()
    assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]


def test_logs_unchanged_since_the_clean_stop_are_not_written() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    for topic in ("busy", "quiet"):
        append(directory.create_log(topic, 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("a"))
    directory.close()
    directory = open_directory(disk)
    append(directory.logs["busy", 0], batch("b"))
    before = len(disk.journal)

    directory.close()

    touched = {str(word) for operation in disk.journal[before:] for word in operation if isinstance(word, Path)}
    assert any("busy-0" in path for path in touched)
    assert not any("quiet-0" in path for path in touched)
    disk.locked.clear()
    again = open_directory(FakeDisk.after(disk.journal, Loss.UNSYNCED))
    assert again.was_closed_cleanly
    assert [len(read_all(again.logs[topic, 0])) for topic in ("busy", "quiet")] == [2, 1]


def test_log_start_of_a_deleted_log_cuts_nothing_off_the_next() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a", "b"), batch("c"))
    log.delete_records_before(2)
    directory.log_start_checkpoint().write()

    directory.delete_log("t", 0, now_wall_ms=NOW)
    append(directory.create_log("t", 0, bytes(15) + b"x", LogConfig(), now_wall_ms=NOW), batch("d"))

    assert read_all(reopened(disk)) == [(0, b"d")]


def test_refused_log_starts_may_be_in_the_file() -> None:
    """The name was there and could not be synced: a new log of the name must not begin at the old one's start."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"), batch("b"))
    log.delete_records_before(2)
    disk.fail("sync_directory", OSError(errno.EIO, "the disk refuses"))
    with pytest.raises(KafkaStorageError):
        directory.log_start_checkpoint().write()
    directory.delete_log("t", 0, now_wall_ms=NOW)

    append(directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("new"))

    assert read_all(reopened(FakeDisk.after(disk.journal))) == [(0, b"new")]


def test_older_log_starts_are_not_written_over_newer_ones() -> None:
    """A thread may have begun to write them before the log was deleted."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"))
    log.delete_records_before(1)
    begun = directory.log_start_checkpoint()

    directory.delete_log("t", 0, now_wall_ms=NOW)
    append(directory.create_log("t", 0, bytes(15) + b"x", LogConfig(), now_wall_ms=NOW), batch("b"))
    begun.write()

    assert read_all(reopened(disk)) == [(0, b"b")]
