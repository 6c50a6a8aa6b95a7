"""A queue that the disk refuses leaves log, producers and file as they were, wherever it stops."""

import errno
import os
import random
from contextlib import suppress

import pytest

from ottla.broker.replicas.follower_log import perform
from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.replication.follower_effects import AppendRecords, Effect, LogEffect, Truncate
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.replication.support import take
from tests.storage.support import NOW, TOPIC_ID, append, batch, new_log, read_all, reopened

EIO = OSError(errno.EIO, "the disk refuses")
# `make nightly` walks more.
WALKS = int(os.environ.get("OTTLA_WALKS", "12"))
STEPS = 60


def of_producer(value: str, sequence: int) -> memoryview:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)


def forgetful(disk: FakeDisk) -> Log:
    """Two batches of a producer, which a truncation has made it forget."""
    log = new_log(disk, LogConfig(index_interval_bytes=0))
    append(log, of_producer("0", 0), of_producer("1", 1), of_producer("2", 2))
    log.truncate_to(2)
    assert log.known_producers is None
    return log


def check(log: Log) -> None:
    """Offsets, queue and file agree."""
    local = log._local
    assert (local.next_offset, log.has_pending_writes) == (log.log_end_offset, False)
    active = log.segments.active
    assert active.base_offset <= log.log_end_offset
    assert active.size == active.end_position == active.file.size()


def test_append_needs_no_producers_that_it_does_not_change() -> None:
    disk = FakeDisk()
    log = forgetful(disk)
    disk.fail("pread", EIO)

    append(log, batch("plain"))
    check(log)
    with disk.nothing_fails():
        assert read_all(log) == [(0, b"0"), (1, b"1"), (2, b"plain")]
        assert read_all(reopened(disk)) == read_all(log)


def test_refused_write_is_undone_where_no_producers_are_known() -> None:
    disk = FakeDisk()
    log = forgetful(disk)
    disk.fail("pread", EIO)
    disk.torn_bytes = 20
    disk.fail("writev", OSError(errno.ENOSPC, "full"))

    with pytest.raises(KafkaStorageError):
        append(log, batch("lost"))
    check(log)
    disk._failures.clear()
    append(log, batch("acknowledged"), of_producer("2", 2))
    assert read_all(log) == [(0, b"0"), (1, b"1"), (2, b"acknowledged"), (3, b"2")]
    log.truncate_to(1)
    assert read_all(log) == [(0, b"0")]


def perform_one(effect: LogEffect) -> Exception | None:
    reported: list[Exception | None] = []

    def report(_: LogEffect, error: Exception | None, __: int) -> list[Effect]:
        reported.append(error)
        return []

    perform([effect], report, now_ms=0, wall_ms=NOW)
    return reported[0]


def test_follower_whose_producers_are_unreadable_goes_on_later() -> None:
    """The batches before the one that needs them are not queued either."""
    disk = FakeDisk()
    log = forgetful(disk)
    replica = Partition("t", 0, TOPIC_ID, log, local_id=1)
    take(replica, lead=2)
    source = new_log(FakeDisk())
    append(source, of_producer("0", 0), of_producer("1", 1), batch("plain"), of_producer("2", 2))
    records = memoryview(bytearray(source.read(2, 1 << 20, upper_bound=4).records))
    disk.fail("pread", EIO)

    assert isinstance(perform_one(AppendRecords(replica, records, 2, 0, 0)), KafkaStorageError)
    check(log)
    take(replica, lead=3, epoch=9, version=2)
    assert perform_one(Truncate(replica, 1, 2, 0)) is None
    records = memoryview(bytearray(source.read(1, 1 << 20, upper_bound=4).records))
    assert perform_one(AppendRecords(replica, records, 1, 0, 0)) is None
    assert read_all(log) == read_all(source)


def test_lost_queue_of_others_fails_their_write_too() -> None:
    """A caller that has queued before notices it by `write_pending`."""
    disk = FakeDisk()
    log = forgetful(disk)
    log.append_as_leader(batch("plain"), leader_epoch=0, now_wall_ms=NOW)
    later = of_producer("2", 2)
    assign_offset_and_epoch(later, 0, 3, 0)
    disk.fail("pread", EIO)

    with pytest.raises(KafkaStorageError):
        log.append_as_follower(later, now_wall_ms=NOW)
    with pytest.raises(KafkaStorageError):
        log.write_pending(NOW)
    check(log)


class Walk:
    """A log with producers and transactions, on a disk that refuses anything now and then."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._disk = FakeDisk()
        self._config = LogConfig(segment_bytes=300, index_interval_bytes=80)
        self._log = new_log(self._disk, self._config)
        self._records: list[tuple[int, bytes]] = []

    def run(self) -> None:
        steps = [self._append] * 5 + [self._truncate] * 2 + [self._release, self._roll]
        for n in range(STEPS):
            if self._rng.random() < 0.4:
                self._refuse()
            with suppress(KafkaStorageError):
                self._rng.choice(steps)(n)
            end = self._log.log_end_offset
            self._records = [record for record in self._records if record[0] < end]
            if self._log.failure is not None or self._rng.random() < 0.05:
                self._disk._failures.clear()
                self._log = reopened(self._disk, self._config)
            with self._disk.nothing_fails():
                self._check()

    def _refuse(self) -> None:
        for kind in self._rng.sample(["pread", "open", "writev", "truncate", "rename", "remove"], 2):
            error = OSError(self._rng.choice([errno.EIO, errno.EMFILE]), "the disk refuses")
            self._disk.fail(kind, error, after=self._rng.randint(0, 4))
        self._disk.torn_bytes = self._rng.randint(0, 60)

    def _batch(self, value: str, producer: int) -> memoryview:
        """Of a producer, for a follower, which takes any sequence."""
        if not producer:
            return batch(value)
        return batch(value, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=producer == 2)

    def _append(self, n: int) -> None:
        offset = self._log.log_end_offset
        gap = self._rng.choice([0, 0, 0, 5, 1 << 31])
        records = bytearray()
        for i in range(self._rng.randint(1, 4)):
            made = self._batch(f"{n} {i}", self._rng.randint(0, 2))
            at = offset + i + (gap if i else 0)
            assign_offset_and_epoch(made, 0, at, 0)
            records += made
            self._records.append((at, f"{n} {i}".encode()))
        try:
            self._log.append_as_follower(memoryview(records), now_wall_ms=NOW)
        finally:
            self._log.write_pending(NOW)

    def _truncate(self, _: int) -> None:
        self._log.truncate_to(self._rng.choice([offset + 1 for offset, _ in self._records[-4:]] or [0]))

    def _release(self, _: int) -> None:
        self._log.release_idle()

    def _roll(self, _: int) -> None:
        self._log.roll()

    def _check(self) -> None:
        check(self._log)
        assert read_all(self._log) == self._records
        again = reopened(FakeDisk.after(self._disk.journal), self._config)
        assert read_all(again) == self._records
        assert again.log_end_offset <= self._log.log_end_offset, "before the gap in which a truncation may end"
        assert dict(again.producers.open_transactions) == dict(self._log.producers.open_transactions)


@pytest.mark.parametrize("seed", range(WALKS))
def test_refused_appends_leave_the_log_as_it_was(seed: int) -> None:
    Walk(seed).run()
