"""Group commit: one flush for all that waits, and what is promised when it is done."""

import errno
from collections.abc import Callable

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.durability import FAILED_SYNC, Flushable, Flusher, run_all
from ottla.storage.files import AnyPath
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import file_name
from tests.fakes.disk import FakeDisk, FakeFile, Loss
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
    reopened,
)
from tests.storage.transactional import ABORT, end, write

EACH = LogConfig(flush_messages=1)


class Thread:
    """An executor that does its work when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done()


class FlushedLogs:
    def __init__(self) -> None:
        self.thread = Thread()
        self.outcomes: list[tuple[Flushable, Exception | None]] = []
        self.flusher = Flusher(self.thread.submit, lambda log, error: self.outcomes.append((log, error)))


def test_acknowledgement_waits_for_the_flush_after_its_write() -> None:
    flushed, disk = FlushedLogs(), FakeDisk()
    log = new_log(disk, EACH)
    append(log, batch("a"))
    assert log.needs_flush
    flushed.flusher.request(log)

    append(log, batch("b"))
    flushed.flusher.request(log)
    assert len(flushed.thread.jobs) == 1, "one flush is on its way at most"
    flushed.thread.run()

    assert (log.flushed_offset, log.sync_required_offset) == (1, 2), "b came after the flush had begun"
    flushed.thread.run()
    assert (log.flushed_offset, log.needs_flush) == (2, False)
    assert flushed.outcomes == [(log, None), (log, None)]
    assert flushed.thread.jobs == []
    assert read_all(reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED), EACH)) == [(0, b"a"), (1, b"b")]


def test_what_is_flushed_keeps_its_topic_id() -> None:
    disk = FakeDisk()
    log = new_log(disk, EACH)
    append(log, batch("a"))
    log.flush()
    assert reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED), EACH).topic_id == TOPIC_ID


def test_epochs_whose_write_failed_are_written_by_the_next_flush() -> None:
    disk = FakeDisk()
    log = new_log(disk, EACH)
    append(log, batch("a"), leader_epoch=3)
    disk.fail("writev", OSError(errno.ENOSPC, "full"))
    with pytest.raises(KafkaStorageError, match="leader epochs"):
        log.flush()
    assert (log.failure, log.flushed_offset) == (None, 0), "the recovery point may not pass what the file lacks"

    append(log, batch("b"), leader_epoch=3)
    log.flush()
    after = reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED), EACH)
    assert (read_all(after), after.epochs.latest_epoch) == ([(0, b"a"), (1, b"b")], 3)


def test_all_logs_that_wait_are_flushed_together() -> None:
    flushed, disk = FlushedLogs(), FakeDisk()
    directory = open_directory(disk, EACH)
    logs = [directory.create_log("t", n, TOPIC_ID, EACH, now_wall_ms=NOW) for n in range(5)]
    for log in logs:
        append(log, batch("a"))
        flushed.flusher.request(log)
    flushed.thread.run()
    flushed.thread.run()

    assert not flushed.thread.jobs
    assert [log.flushed_offset for log in logs] == [1] * 5


def test_flush_with_a_truncation_under_it_counts_for_nothing() -> None:
    flushed = FlushedLogs()
    log = new_log(FakeDisk(), EACH)
    append(log, batch("a"), batch("b"))
    flushed.flusher.request(log)

    log.truncate_to(1)
    append(log, batch("c"))
    flushed.thread.run()
    assert log.flushed_offset == 0

    flushed.thread.run()
    assert log.flushed_offset == 2


def test_a_failed_flush_closes_the_log() -> None:
    flushed, disk = FlushedLogs(), FakeDisk()
    log = new_log(disk, EACH)
    append(log, batch("a"))
    disk.fail("fsync", OSError(errno.EIO, "bad"))
    flushed.flusher.request(log)
    flushed.thread.run()

    (_, error), *_ = flushed.outcomes
    assert "input/output error" in str(error)
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch("b"), leader_epoch=0, now_wall_ms=NOW)
    flushed.flusher.request(log)
    assert isinstance(flushed.outcomes[-1][1], KafkaStorageError)


def test_what_a_failed_sync_left_in_the_cache_is_written_again() -> None:
    """Else the flush of the next process would say that it is durable, and the next loss of power take it."""
    flushed, disk = FlushedLogs(), FakeDisk()
    log = new_log(disk, EACH)
    append(log, batch("a"))
    log.flush()
    append(log, batch("b"))
    disk.fail("fsync", OSError(errno.EIO, "bad"))
    flushed.flusher.request(log)
    flushed.thread.run()

    again = reopened(disk, EACH)
    again.flush()
    after = FakeDisk.after(disk.journal, Loss.UNSYNCED)

    assert read_all(reopened(after, EACH)) == [(0, b"a"), (1, b"b")]
    assert not disk.exists(again.directory / FAILED_SYNC)


@pytest.mark.parametrize(
    ("config", "requires"),
    [
        (LogConfig(), [0, 0, 0, 0]),
        (LogConfig(flush_messages=1), [1, 2, 3, 4]),
        (LogConfig(flush_messages=3), [0, 0, 3, 4]),
        (LogConfig(flush_ms=2), [0, 0, 3, 4]),
    ],
)
def test_flush_messages_and_flush_ms_say_which_append_waits(config: LogConfig, requires: list[int]) -> None:
    log = new_log(FakeDisk(), config)
    found: list[int] = []
    for n in range(4):
        append(log, batch("a"), now=NOW + n)
        found.append(log.sync_required_offset)

    assert found == requires


def test_log_is_overdue_after_flush_ms_or_a_complete_segment() -> None:
    log = new_log(FakeDisk(), LogConfig(flush_ms=10))
    append(log, batch("a"))
    assert not log.is_flush_overdue(NOW + 9)
    assert log.is_flush_overdue(NOW + 10)
    log.flush()
    assert not log.is_flush_overdue(NOW + 100)

    log = new_log(FakeDisk())
    append(log, batch("a"))
    assert not log.is_flush_overdue(NOW * 2)
    log.roll()
    assert log.is_flush_overdue(NOW)

    log = new_log(FakeDisk())
    append(log, batch("a"))
    log.flush()
    log.roll()
    assert log.is_flush_overdue(NOW), "its indexes are not on the disk"
    log.flush()
    assert not log.is_flush_overdue(NOW)


def test_what_a_closed_log_flushes_survives_a_power_failure() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log: Log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"))
    directory.close()

    after = FakeDisk.after(disk.journal, Loss.UNSYNCED)
    directory = open_directory(after)
    assert directory.was_closed_cleanly
    assert read_all(directory.logs["t", 0]) == [(0, b"a")]
    assert not after.exists(ROOT / "t-0" / "leader-epoch-checkpoint.tmp")


@pytest.mark.parametrize("are_remade", [False, True], ids=["written", "remade"])
def test_indexes_of_a_closed_log_survive_a_power_failure(*, are_remade: bool) -> None:
    """The next start believes a part of one, if it ends with an entry: then no timestamp leads to what it misses."""
    disk, config = FakeDisk(), LogConfig(index_interval_bytes=10)
    directory = open_directory(disk, config)
    log: Log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(str(n), timestamp=NOW + n) for n in range(8)])
    directory.close()
    paths = log.segments.active.index_paths()
    if are_remade:
        for path in paths:
            disk.remove(path)
        disk.sync_directory(log.directory)
        open_directory(disk, config).close()

    after = FakeDisk.after(disk.journal, Loss.UNSYNCED)

    sizes = {path.suffix: len(after.read_bytes(path)) for path in paths}
    assert sizes == {".index": 7 * 8, ".timeindex": 7 * 12}
    directory = open_directory(after, config)
    assert directory.was_closed_cleanly
    check_indexes(directory.logs["t", 0])


@pytest.mark.parametrize(("code", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_no_segment_begins_while_names_cannot_be_synced(code: int, *, fails: bool) -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    disk.fail("sync_directory", OSError(code, "x"))

    with pytest.raises(KafkaStorageError, match="could not sync the directory"):
        log.roll()

    assert (len(log.segments), log.failure is not None) == (1, fails)


def test_names_that_change_during_their_sync_are_synced_again() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    work = log.begin_names_sync()
    log.roll()
    work.run()
    log.finish_names_sync(work)

    assert not log.has_durable_names
    log.flush()
    assert log.has_durable_names


def test_flush_that_may_not_look_for_a_file_can_be_repeated() -> None:
    """Nothing was synced that could be lost."""
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    disk.fail("exists", OSError(errno.EIO, "bad"))

    with pytest.raises(KafkaStorageError, match="input/output error"):
        log.flush()

    assert log.failure is None
    assert log.flush() == 1


class RemovedInBetween(FakeDisk):
    """What a thread asks for is there, and the loop removes it before the thread opens it."""

    removes = False

    def exists(self, path: AnyPath) -> bool:
        found = super().exists(path)
        if self.removes and found:
            self.remove(path)
        return found


def test_flush_does_not_make_a_file_that_was_removed() -> None:
    disk = RemovedInBetween()
    log = new_log(disk, EACH)
    append(log, batch("a"))
    log.roll()
    work = log.begin_flush()
    before = disk.list_directory(log.directory)
    disk.removes = True
    work.run()
    disk.removes = False

    left = disk.list_directory(log.directory)
    assert set(before) - set(left) > {file_name(0, ".index"), file_name(0, ".timeindex")}
    assert set(left) - set(before) == {"leader-epoch-checkpoint"}


class Shortage(FakeDisk):
    """No further file can be opened, while there `is_one`."""

    is_one = False

    def open(self, path: AnyPath, *, create: bool = True) -> FakeFile:
        self._check()
        return super().open(path, create=create)

    def read_bytes(self, path: AnyPath) -> bytes:
        self._check()
        return super().read_bytes(path)

    def _check(self) -> None:
        if self.is_one:
            raise OSError(errno.EMFILE, "too many open files")


def test_flush_without_descriptors_is_a_storage_error() -> None:
    """Also where a segment has aborted transactions, whose index was released."""
    disk = Shortage()
    log = new_log(disk, EACH)
    write(log, "a", producer=5)
    end(log, producer=5, commit=ABORT)
    log.roll()
    append(log, batch("b"))
    log.release_idle()
    disk.is_one = True
    other = new_log(FakeDisk(), EACH)
    append(other, batch("c"))
    flushed = FlushedLogs()
    flushed.flusher._is_running = True
    for each in (log, other):
        flushed.flusher.request(each)

    flushed.flusher._start()
    flushed.thread.run()

    assert [(each, type(error)) for each, error in flushed.outcomes] == [(log, KafkaStorageError), (other, type(None))]
    disk.is_one = False
    assert log.flush() == 3
    after = reopened(FakeDisk.after(disk.journal, Loss.UNSYNCED), EACH)
    assert after.aborted_transactions(0, 3) == log.aborted_transactions(0, 3) != []


def test_flush_that_was_broken_off_makes_nothing_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = new_log(FakeDisk(), EACH), new_log(FakeDisk(), EACH)
    for log in (broken, sound):
        append(log, batch("a"))
    monkeypatch.setattr(broken.files, "exists", lambda _: 1 // 0)
    work, other = broken.begin_flush(), sound.begin_flush()

    with pytest.raises(ExceptionGroup):
        run_all([work, other])
    sound.finish_flush(other)
    with pytest.raises(KafkaStorageError):
        broken.finish_flush(work)

    assert (broken.flushed_offset, sound.flushed_offset) == (0, 1)
    monkeypatch.undo()
    assert broken.flush() == 1
