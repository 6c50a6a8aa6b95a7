"""Snapshots of logs with many producers are written after the roll: what a start reads is the same for that."""

import errno
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.protocol.errors import KafkaStorageError
from ottla.storage import found_log, log_producers, producer_pages, producer_table
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_snapshots import SnapshotWrite
from ottla.storage.producer_state import DuplicateOf, ProducerStateManager
from tests.fakes.disk import FakeDisk
from tests.storage.producers import batch as header_of
from tests.storage.support import NOW, append, apply_retention, batch, new_log, open_directory, read_all, reopened

ONE = len(batch("x", producer_id=1, producer_epoch=0, base_sequence=0))
FOREVER = LogConfig(segment_bytes=4 * ONE, retention_ms=-1)
PATCHES = (
    (log_producers, "SNAPSHOT_IN_PLACE_MAX", 0),
    (found_log, "SNAPSHOT_IN_PLACE_MAX", 0),
    (producer_pages, "PRODUCERS_PER_PAGE", 4),
    (producer_table, "RECENT_MAX", 2),
    (producer_table, "PACKED_AT_ONCE", 1),
)


@pytest.fixture(autouse=True)
def few_are_many() -> Iterator[None]:
    """Every producer is one too many, so that all snapshots are late."""
    patches = [patch.object(*each) for each in PATCHES]
    for each in patches:
        each.start()
    yield
    for each in patches:
        each.stop()


def sent(producer: int, sequence: int = 0) -> memoryview:
    return batch("x", producer_id=producer, producer_epoch=0, base_sequence=sequence)


def snapshots_of(log: Log) -> list[int]:
    return log._producers.snapshots.newest_first(at_most=log.log_end_offset)[::-1]


def write_late(log: Log) -> None:
    write = log.begin_snapshot()
    assert write is not None
    write.run()
    log.finish_snapshot(write)


def last_batches(producers: ProducerStateManager) -> dict[int, tuple[int, int]]:
    """The last sequence and the last offset of each producer."""
    return {
        producer_id: (state.batches[-1].last_sequence, state.batches[-1].last_offset)
        for producer_id, state in producers.states.items()
    }


def test_late_snapshot_has_the_producers_as_of_the_roll() -> None:
    disk = FakeDisk()
    log = new_log(disk, FOREVER)
    append(log, *map(sent, range(4)))
    log.roll()
    assert snapshots_of(log) == []
    assert log.has_snapshot_to_write
    write = log.begin_snapshot()
    assert write is not None

    append(log, sent(0, 1), sent(9))
    write.run()
    append(log, sent(3, 1))
    log.finish_snapshot(write)

    assert snapshots_of(log) == [4]
    assert not log.has_snapshot_to_write
    loaded = ProducerStateManager()
    loaded.load(log._producers.snapshots.read(4), NOW, 4)
    assert last_batches(loaded) == {producer: (0, producer) for producer in range(4)}
    assert last_batches(reopened(disk, FOREVER).producers) == last_batches(log.producers)


def test_repetition_is_recognised_after_a_kill_before_the_write() -> None:
    disk = FakeDisk()
    log = new_log(disk, FOREVER)
    append(log, *map(sent, range(10)))
    write = log.begin_snapshot()
    assert write is not None
    write.run()

    log = reopened(disk, FOREVER)

    info = log.append_as_leader(sent(3), leader_epoch=0, now_wall_ms=NOW)
    assert (info.duplicate, info.base_offset) == (True, 3)


def test_while_one_is_written_only_the_newest_roll_waits() -> None:
    log = new_log(FakeDisk(), FOREVER)
    append(log, *map(sent, range(5)))
    first = log.begin_snapshot()
    assert first is not None
    append(log, *map(sent, range(5, 14)))
    assert log.begin_snapshot() is None
    first.run()
    log.finish_snapshot(first)
    write_late(log)

    assert [segment.base_offset for segment in log.segments] == [0, 4, 8, 12]
    assert snapshots_of(log) == [4, 12]
    assert log.begin_snapshot() is None


def test_truncation_below_a_late_snapshot_discards_it() -> None:
    """Another leader's records may come to stand there."""
    disk = FakeDisk()
    log = new_log(disk, FOREVER)
    append(log, *map(sent, range(5)))
    write = log.begin_snapshot()
    assert write is not None
    log.truncate_to(3)
    append(log, sent(77), sent(78))
    write.run()
    log.finish_snapshot(write)

    assert snapshots_of(log) == []
    assert not [name for name in disk.list_directory(log.directory) if "snapshot" in name]
    write_late(log)
    assert snapshots_of(log) == [4]
    assert set(last_batches(reopened(disk, FOREVER).producers)) == {0, 1, 2, 77, 78}


def test_segments_stay_until_their_producers_are_in_a_snapshot() -> None:
    disk = FakeDisk()
    config = LogConfig(segment_bytes=4 * ONE, retention_ms=-1, retention_bytes=4 * ONE)
    log = new_log(disk, config)
    append(log, *map(sent, range(10)))
    apply_retention(log, NOW, 10)
    assert (log.log_start_offset, log.segments[0].base_offset) == (4, 0)
    assert set(last_batches(reopened(disk, config).producers)) == set(range(10))

    write_late(log)
    append(log, *map(sent, range(10, 14)))
    write_late(log)
    apply_retention(log, NOW, 14)

    assert (log.log_start_offset, log.segments[0].base_offset) == (8, 8)
    assert set(last_batches(reopened(disk, config).producers)) == set(range(14))


def test_refusing_disk_does_not_keep_retention_from_making_room() -> None:
    disk = FakeDisk()
    config = LogConfig(segment_bytes=4 * ONE, retention_ms=-1, retention_bytes=4 * ONE)
    log = new_log(disk, config)
    append(log, *map(sent, range(6)))
    disk.fail("writev", OSError(errno.ENOSPC, "full"))
    with pytest.raises(KafkaStorageError):
        write_late(log)
    append(log, *map(sent, range(6, 10)))
    disk.fail("open", OSError(errno.EMFILE, "too many"))
    with pytest.raises(KafkaStorageError):
        log.begin_snapshot()

    apply_retention(log, NOW, 10)

    assert log.segments[0].base_offset == 4
    assert log.failure is None
    append(log, *map(sent, range(10, 15)))
    write_late(log)
    assert snapshots_of(log) == [12]


def test_snapshot_lost_by_a_kill_is_missed_until_a_later_one() -> None:
    disk = FakeDisk()
    append(new_log(disk, FOREVER), *map(sent, range(6)))
    log = reopened(disk, FOREVER)
    log.delete_records_before(4)
    log.delete_expired(4, NOW)
    assert log.segments[0].base_offset == 0

    append(log, *map(sent, range(6, 9)))
    write_late(log)
    log.delete_records_before(8)
    log.delete_expired(8, NOW)

    assert log.segments[0].base_offset == 8
    assert set(last_batches(reopened(disk, FOREVER).producers)) == set(range(9))


def test_deleted_log_lets_go_of_its_producers_at_once() -> None:
    """A thread that writes a snapshot holds the log."""
    directory = open_directory(FakeDisk(), FOREVER)
    log = directory.create_log("t", 0, bytes(16), FOREVER, now_wall_ms=NOW)
    append(log, *map(sent, range(6)))
    write = log.begin_snapshot()
    assert write is not None
    append(log, *map(sent, range(6, 11)))

    directory.delete_log("t", 0, now_wall_ms=NOW)
    write.run()
    log.finish_snapshot(write)

    assert len(log.producers) == 0
    assert not log.has_snapshot_to_write


class LateSnapshots(RuleBasedStateMachine):
    """Appends, rolls, late writes, truncations, retention, kills, beside a list of what is in the log."""

    @initialize()
    def begin(self) -> None:
        self.patches = [patch.object(*each) for each in PATCHES]
        for each in self.patches:
            each.start()
        self.disk = FakeDisk()
        self.log = new_log(self.disk, FOREVER)
        self.writes: list[SnapshotWrite] = []
        # Producer and sequence, by offset.
        self.written: list[tuple[int, int]] = []

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    def known(self, end: int) -> dict[int, tuple[int, int]]:
        return {
            producer: (sequence, offset) for offset, (producer, sequence) in enumerate(self.written) if offset < end
        }

    @rule(producers=st.lists(st.integers(0, 6), min_size=1, max_size=6))
    def append(self, producers: list[int]) -> None:
        for producer in producers:
            last = self.known(len(self.written)).get(producer, (-1, 0))[0]
            self.written.append((producer, last + 1))
            append(self.log, sent(producer, last + 1))

    @rule(producer=st.integers(0, 6))
    def send_again(self, producer: int) -> None:
        if producer in (known := self.known(len(self.written))):
            sequence, offset = known[producer]
            header = header_of(sequence, producer=producer)
            assert self.log.producers.check(header) == DuplicateOf(offset, offset, NOW)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def begin_write(self) -> None:
        write = self.log.begin_snapshot()
        if write is not None:
            self.writes.append(write)

    @precondition(lambda self: self.writes)
    @rule()
    def finish_write(self) -> None:
        write = self.writes.pop()
        write.run()
        self.log.finish_snapshot(write)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        start = self.log.log_start_offset
        end = start + round((self.log.log_end_offset - start) * fraction)
        self.log.truncate_to(end)
        del self.written[end:]

    @rule(fraction=st.floats(0, 1))
    def retain(self, fraction: float) -> None:
        start = self.log.log_start_offset
        self.log.delete_records_before(start + round((self.log.log_end_offset - start) * fraction))
        self.log.delete_expired(self.log.log_start_offset, NOW)

    @rule()
    def kill(self) -> None:
        start = self.log.log_start_offset
        self.writes.clear()
        self.log = reopened(self.disk, FOREVER)
        self.log.delete_records_before(start)

    @invariant()
    def snapshots_say_what_was_below_them(self) -> None:
        for offset in snapshots_of(self.log) if hasattr(self, "log") else ():
            loaded = ProducerStateManager()
            loaded.load(self.log._producers.snapshots.read(offset), NOW, offset)
            assert last_batches(loaded) == self.known(offset)

    @invariant()
    def producers_are_those_of_the_log(self) -> None:
        if hasattr(self, "log"):
            assert last_batches(self.log.producers) == self.known(self.log.log_end_offset)
            assert len(read_all(self.log)) == self.log.log_end_offset - self.log.log_start_offset


TestLateSnapshots = LateSnapshots.TestCase
TestLateSnapshots.settings = settings(max_examples=50, stateful_step_count=30)
