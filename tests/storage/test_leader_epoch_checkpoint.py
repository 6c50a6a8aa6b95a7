"""Leader epochs on disk: written late, never missing for a record that a crash left (§16.4)."""

import errno
import random

import pytest

from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.storage import checkpoints
from ottla.storage.compaction import compact, plan_compaction
from ottla.storage.files import write_atomically
from ottla.storage.leader_epoch_cache import (
    EpochEntry,
    build_epochs,
    parse_epochs,
)
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import (
    NOW,
    ROOT,
    TOPIC_ID,
    append,
    apply_compaction,
    batch,
    keyed,
    new_log,
    open_directory,
    read_all,
    reopened,
)

Entries = tuple[tuple[int, int], ...]


def test_checkpoint_of_leader_epochs_has_kafkas_form() -> None:
    assert build_epochs([EpochEntry(3, 40)]) == b"0\n1\n3 40\n"
    assert parse_epochs(b"0\n1\n3 40\n") == [(3, 40)]


def stored_epochs(disk: FakeDisk) -> Entries:
    path = ROOT / "t-0" / checkpoints.LEADER_EPOCHS
    return tuple(parse_epochs(disk.read_bytes(path))) if disk.exists(path) else ()


def store_epochs(disk: FakeDisk, entries: Entries) -> None:
    content = build_epochs(EpochEntry(*each) for each in entries)
    write_atomically(disk, ROOT / "t-0" / checkpoints.LEADER_EPOCHS, content)


def follow(log: Log, *batches: tuple[str, int]) -> None:
    """Append batches of one record each, (value, leader epoch), as they come from a leader."""
    for offset, (value, epoch) in enumerate(batches, start=log.log_end_offset):
        records = batch(value)
        assign_offset_and_epoch(records, 0, offset, epoch)
        log.append_as_follower(records, now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)


def epochs_of_batches(log: Log) -> list[tuple[int, int]]:
    """(base offset, leader epoch) of every batch."""
    headers = [found.header for segment in log.segments for found in segment.batches_from(0)]
    return [(header.base_offset, header.partition_leader_epoch) for header in headers]


def test_a_term_begins_without_a_write() -> None:
    """A broker that takes over a thousand partitions does it between two answers."""
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), leader_epoch=1)
    log.flush()
    before = len(disk.journal)

    log.maybe_assign_leader_epoch(2)

    assert (log.epochs.latest_epoch, len(disk.journal)) == (2, before)


def test_a_batch_of_another_term_costs_a_follower_one_write() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    follow(log, ("a", 1))
    before = len(disk.journal)

    follow(log, ("b", 2))

    assert log.epochs.entries == ((1, 0), (2, 1))
    assert [operation[0] for operation in disk.journal[before:]] == ["write"]


@pytest.mark.parametrize("loss", [Loss.NOTHING, Loss.UNSYNCED])
def test_a_flush_makes_the_epochs_of_its_records_durable(loss: Loss) -> None:
    """What is below the recovery point is not read again."""
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=100))
    append(log, batch("a"), batch("b"), leader_epoch=1)
    append(log, batch("c"), leader_epoch=2)
    append(log, batch("d"), leader_epoch=3)
    log.maybe_assign_leader_epoch(4)
    log.flush()

    disk = FakeDisk.after(disk.journal, loss)

    assert stored_epochs(disk) == ((1, 0), (2, 2), (3, 3)), "of the fourth there is no record"
    assert reopened(disk).epochs.entries == ((1, 0), (2, 2), (3, 3))


def test_a_flush_leaves_the_file_alone_that_has_what_is_needed() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), leader_epoch=1)
    log.flush()
    disk.fail("rename", OSError(errno.EIO, "nothing is to be written"))

    append(log, batch("b"), leader_epoch=1)
    log.maybe_assign_leader_epoch(2)
    log.flush()

    assert log.flushed_offset == 2


def test_term_without_records_costs_no_write_at_open_or_close() -> None:
    """Of a thousand partitions most may be empty or idle, and neither start nor stop should write a file for each."""
    disk = FakeDisk()
    directory = open_directory(disk)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("a"), leader_epoch=1)
    directory.close()

    directory = open_directory(disk)
    before = len(disk.journal)
    directory.logs["t", 0].maybe_assign_leader_epoch(2)
    directory.close()

    touched = [operation for operation in disk.journal[before:] if "t-0" in str(operation)]
    assert touched == []
    assert open_directory(disk).logs["t", 0].epochs.entries == ((1, 0),)


def test_a_clean_stop_leaves_the_epochs_in_the_file() -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"), leader_epoch=1)
    append(log, batch("b"), leader_epoch=4)
    directory.close()

    disk = FakeDisk.after(disk.journal, Loss.UNSYNCED)

    assert stored_epochs(disk) == ((1, 0), (4, 1))
    assert open_directory(disk).logs["t", 0].epochs.entries == ((1, 0), (4, 1))


@pytest.mark.parametrize("in_file", [((0, 0), (3, 1)), ((0, 0), (7, 2)), ((5, 0),), ()])
def test_epochs_of_batches_count_more_than_the_file(in_file: Entries) -> None:
    """By these entries replicas find where their logs part."""
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), batch("b"), leader_epoch=0)
    append(log, batch("c"), leader_epoch=3)
    store_epochs(disk, in_file)

    log = reopened(disk)
    assert log.epochs.entries == ((0, 0), (3, 2))

    log.close()
    assert stored_epochs(disk) == ((0, 0), (3, 2)), "the next life may find the log closed cleanly"


@pytest.mark.parametrize("in_file", [((0, 0), (3, 1)), ((5, 0),), ()])
def test_file_wrong_below_recovery_point_is_corrected_at_once(in_file: Entries) -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"), batch("b"), leader_epoch=0)
    append(log, batch("c"), leader_epoch=3)
    log.flush()
    directory.recovery_point_checkpoint().write()
    store_epochs(disk, in_file)

    log = reopened(disk)

    assert log.epochs.entries == stored_epochs(disk) == ((0, 0), (3, 2))


def test_recovery_point_of_a_log_without_epochs_is_ignored() -> None:
    """It is that of a topic of the same name, which was deleted."""
    disk = FakeDisk()
    directory = open_directory(disk)
    config = LogConfig(segment_bytes=100)
    append(directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW), *map(batch, "abcdef"), leader_epoch=9)
    directory.logs["t", 0].flush()
    directory.recovery_point_checkpoint().write()
    directory.delete_log("t", 0, now_wall_ms=NOW)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    for n, value in enumerate("uvwxyz"):
        append(log, batch(value), leader_epoch=n)
    assert len(log.segments) > 2

    log = reopened(disk, config)

    assert log.epochs.entries == tuple((n, n) for n in range(6))


def test_epochs_of_records_that_are_gone_do_not_come_back() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), leader_epoch=1)
    log.flush()
    append(log, batch("lost"), leader_epoch=2)
    disk = FakeDisk.after(disk.journal, Loss.UNSYNCED)

    log = reopened(disk)

    assert read_all(log) == [(0, b"a")]
    assert log.epochs.entries == stored_epochs(disk) == ((1, 0),)


def test_epochs_of_a_log_that_was_lost_do_not_come_back() -> None:
    """Seed 174 of the cluster: a replica without a record claimed an epoch, and truncated its log for it."""
    disk = FakeDisk()
    new_log(disk)
    store_epochs(disk, ((8, 2),))
    log = reopened(disk)
    log.truncate_fully_and_start_at(5)
    log.flush()

    assert stored_epochs(disk) == ()
    assert reopened(disk).epochs.entries == ()


def test_an_empty_log_claims_no_epoch_of_what_was_deleted() -> None:
    """Records of epoch 2 were deleted before it was stored: the log start is in no epoch that the file knows."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"), leader_epoch=1)
    log.flush()
    append(log, batch("b"), leader_epoch=2)
    log.delete_records_before(2)
    directory.log_start_checkpoint().write()

    log = reopened(disk)

    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (2, 2, ())


def test_recovery_point_above_log_end_is_lowered_before_appends() -> None:
    """Else the records to come would count as durable, and as read, because others were."""
    disk = FakeDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW)
    append(log, batch("a"), batch("b"))
    log.flush()
    directory.recovery_point_checkpoint().write()
    log.truncate_to(1)

    log = reopened(disk)

    assert log.flushed_offset == 1
    content = FakeDisk.after(disk.journal, Loss.UNSYNCED).read_bytes(ROOT / checkpoints.RECOVERY_POINTS)
    assert checkpoints.parse_offsets(content) == {("t", 0): 1}


def test_epochs_of_batches_whose_write_failed_are_forgotten() -> None:
    """The next leader may send others for these offsets, of an older term."""
    disk = FakeDisk()
    log = new_log(disk)
    follow(log, ("a", 1))
    disk.fail("writev", OSError(errno.ENOSPC, "no space"))
    with pytest.raises(Exception, match="no space"):
        follow(log, ("b", 3), ("c", 4))

    follow(log, ("d", 2))

    assert log.epochs.entries == ((1, 0), (2, 1))


def test_compaction_first_writes_epochs_whose_batches_it_removes() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=400, min_cleanable_dirty_ratio=0.0)
    disk = FakeDisk()
    log = new_log(disk, config)
    for n in range(12):
        append(log, keyed(("k", f"v{n}")), leader_epoch=n // 3)
        if n == 0:
            log.flush()
    epochs = log.epochs.entries

    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    assert apply_compaction(log, compact(plan), now_wall_ms=NOW)

    assert len(epochs_of_batches(log)) < 12, "there are batches that went"
    for loss in (Loss.NOTHING, Loss.UNSYNCED):
        kept = reopened(FakeDisk.after(disk.journal, loss), config)
        assert kept.epochs.entries == tuple(entry for entry in epochs if entry[1] < kept.log_end_offset)


class FollowersLife:
    """A replica that is led, leads, is cut, rolls, flushes and has its recovery point written down, by chance."""

    CONFIG = LogConfig(segment_bytes=250, index_interval_bytes=80)

    def __init__(self, seed: int) -> None:
        self.disk = FakeDisk()
        self.directory = open_directory(self.disk, self.CONFIG)
        self.log = self.directory.create_log("t", 0, TOPIC_ID, self.CONFIG, now_wall_ms=NOW)
        # Of a log that was never flushed, a disk that keeps no order may lose the first segment and keep another.
        self.log.flush()
        self.rng = random.Random(seed)
        self.epoch = 0
        for n in range(60):
            self._do_something(n)

    def _do_something(self, n: int) -> None:
        match self.rng.randrange(10):
            case 0 | 1:
                self.epoch += self.rng.randint(1, 2)
            case 2:
                self.epoch += 1
                self.log.maybe_assign_leader_epoch(self.epoch)
            case 3:
                self._be_cut()
            case 4:
                self.log.flush()
            case 5:
                self.directory.recovery_point_checkpoint().write()
            case 6:
                self.directory.close()
                self._open()
            case _:
                follow(self.log, *[(f"value {n}", self.epoch) for _ in range(self.rng.randint(1, 3))])

    def _be_cut(self) -> None:
        """As a follower is by its leader (§14.5), who is in a later term."""
        self.epoch += 1
        self.log.truncate_to(self.rng.randint(self.log.log_end_offset // 2, self.log.log_end_offset))
        self.log.flush()
        self.directory.recovery_point_checkpoint().write()

    def _open(self) -> None:
        self.directory = open_directory(self.disk, self.CONFIG)
        self.log = self.directory.logs["t", 0]


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_in_its_batchs_epoch_after_any_crash(seed: int, loss: Loss) -> None:
    journal = FollowersLife(seed).disk.journal
    for operations in range(0, len(journal) + 1, 3):
        disk = FakeDisk.after(journal[:operations], loss, seed=operations)
        directory = open_directory(disk, FollowersLife.CONFIG)
        log = directory.logs.get(("t", 0))
        if log is None:
            continue
        batches = epochs_of_batches(log)
        assert [offset for offset, _ in batches] == list(range(log.log_end_offset)), "there is no hole"
        assert [(offset, log.epochs.epoch_at(offset)) for offset, _ in batches] == batches
        assert {epoch for epoch, _ in log.epochs.entries} <= {epoch for _, epoch in batches}
        directory.close()
        assert reopened(disk, FollowersLife.CONFIG).epochs.entries == log.epochs.entries
