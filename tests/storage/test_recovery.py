"""What a crash leaves, at every point of a scripted life (§16.4), and what damage does."""

import pytest

from ottla.protocol.errors import CorruptMessage
from ottla.storage import checkpoints
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import CLEAN_SHUTDOWN_FILE
from tests.fakes.disk import FakeDisk, Loss
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
    records_in,
    reopened,
)

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_bytes=1200, file_delete_delay_ms=0)


class ScriptedLife:
    """A log that is appended to, flushed, rolled, truncated, trimmed, closed and opened again.

    `promises` holds, for the number of operations done by then, what must be found from there on: the log start and
    all records written, and the offset below which they were synced.
    """

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.promises: list[tuple[int, int, list[tuple[int, bytes | None]], int]] = []
        self._directory = open_directory(self.disk, CONFIG)
        log = self._directory.create_log("t", 0, TOPIC_ID, CONFIG, now_wall_ms=NOW)
        for n in range(30):
            sequence = {"producer_id": 9, "producer_epoch": 0, "base_sequence": n}
            append(log, batch(f"value {n}", timestamp=NOW + n, **sequence), leader_epoch=n // 8)
            self._promise(log)
            log = self._do_something(n, log)
            self._promise(log)

    def _do_something(self, n: int, log: Log) -> Log:
        directory = self._directory
        if n % 4 == 3:
            log.flush()
            directory.recovery_point_checkpoint().write()
        if n == 10:
            log.delete_records_before(3)
            directory.log_start_checkpoint().write()
        if n in (12, 20, 25):
            log.expire(NOW + n, log.log_end_offset)
            directory.log_start_checkpoint().write()
            log.delete_expired(log.log_start_offset, NOW + n)
            due = directory.take_due_deletions(NOW + n + 1)
            if due is not None:
                due.run()
        if n == 17:
            directory.close()
            self._directory = open_directory(self.disk, CONFIG)
            return self._directory.logs["t", 0]
        return log

    def _promise(self, log: Log) -> None:
        self.promises.append((len(self.disk.journal), log.log_start_offset, read_all(log), log.flushed_offset))


@pytest.fixture(scope="module")
def life() -> ScriptedLife:
    return ScriptedLife()


@pytest.mark.parametrize("loss", list(Loss))
def test_no_promised_record_is_missing_after_any_crash(life: ScriptedLife, loss: Loss) -> None:
    """Acknowledged records survive a killed process; flushed ones survive a power failure."""
    for operations in range(len(life.disk.journal) + 1):
        disk = FakeDisk.after(life.disk.journal[:operations], loss, seed=operations)
        directory = open_directory(disk, CONFIG)
        log = directory.logs.get(("t", 0))
        promised = [promise for promise in life.promises if promise[0] <= operations]
        if log is None:
            assert not promised or (loss is not Loss.NOTHING and promised[-1][3] == 0)
            continue
        check_indexes(log)
        found = read_all(log)
        assert found == [(offset, b"value %d" % offset) for offset, _ in found], "only what was written"
        assert [offset for offset, _ in found] == list(range(log.log_start_offset, log.log_end_offset))
        if promised:
            check_promise(promised[-1], found, loss)
            start_later = [promise[1] for promise in life.promises if promise[0] > operations][:1]
            assert log.log_start_offset <= max([promised[-1][1], *start_later])
        check_producer(log)


def check_promise(
    promise: tuple[int, int, list[tuple[int, bytes | None]], int], found: list[tuple[int, bytes | None]], loss: Loss
) -> None:
    _, _, written, flushed_offset = promise
    durable = written if loss is Loss.NOTHING else [record for record in written if record[0] < flushed_offset]
    # Retention may be on its way to the next promise; it takes from the start only.
    missing = [record for record in durable if record not in found]
    assert not missing or (found and missing[-1][0] < found[0][0])


def check_producer(log: Log) -> None:
    """The next sequence number is what follows on the last record."""
    if log.log_end_offset > log.log_start_offset:
        state = log.producers.states[9]
        assert state.batches[-1].last_offset == log.log_end_offset - 1


def test_a_clean_shutdown_is_believed_once(life: ScriptedLife) -> None:
    disk = FakeDisk()
    directory = open_directory(disk)
    append(directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_wall_ms=NOW), batch("a"))
    directory.close()
    assert disk.exists(ROOT / CLEAN_SHUTDOWN_FILE)

    directory = open_directory(disk)
    assert directory.was_closed_cleanly
    assert not disk.exists(ROOT / CLEAN_SHUTDOWN_FILE), "gone before anything is loaded (T-22)"
    assert directory.logs["t", 0].flushed_offset == 1
    directory.close(clean=False)
    assert not open_directory(disk).was_closed_cleanly


@pytest.mark.parametrize("garbage", [b"\0", bytes(61), bytes(500), b"\xff" * 500])
def test_a_torn_tail_is_cut_off(garbage: bytes) -> None:
    disk = FakeDisk()
    append(new_log(disk), batch("a"), batch("b"))
    path = ROOT / "t-0" / "00000000000000000000.log"
    disk.open(path).writev([garbage])
    notices: list[str] = []

    disk.locked.clear()
    log = open_directory(disk, notices=notices.append).logs["t", 0]

    assert read_all(log) == [(0, b"a"), (1, b"b")]
    assert len(notices) == 1
    append(log, batch("c"))
    assert read_all(reopened(disk)) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_segments_after_a_damaged_one_are_removed() -> None:
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=200))
    append(log, *[batch(str(n)) for n in range(10)])
    second = log.segments[1]
    disk.flip_bit(second.path(".log"), 8 * (second.size - 1))

    log = reopened(disk, log.config)

    assert log.log_end_offset == second.base_offset + 1 == 3
    assert len(log.segments) == 2
    assert [name for name in disk.list_directory(log.directory) if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
    ]


def test_segments_after_one_that_lost_its_tail_are_removed() -> None:
    """Its bytes may have got to the disk later than the name of the next one; a replica fetches from the end only."""
    disk = FakeDisk()
    log = new_log(disk, CONFIG)
    for n in range(20):
        append(log, batch(f"value {n}"))
    second = log.segments[1]
    last = list(second.batches_from(0))[-1]
    file = disk.open(second.path(".log"))
    file.truncate(last.position)
    notices: list[str] = []
    disk.locked.clear()

    log = open_directory(disk, CONFIG, notices=notices.append).logs["t", 0]

    assert [offset for offset, _ in read_all(log)] == list(range(last.header.base_offset))
    assert log.log_end_offset == last.header.base_offset
    assert f"ends at offset {log.log_end_offset}" in notices[0]


def test_bad_indexes_are_rebuilt_even_after_a_clean_shutdown() -> None:
    config = LogConfig(segment_bytes=500, index_interval_bytes=10)
    disk = FakeDisk()
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(str(n), timestamp=NOW + n) for n in range(30)])
    entries = [len(segment.offset_index) for segment in log.segments]
    paths = [log.segments[n].path(suffix) for n, suffix in ((0, ".index"), (1, ".timeindex"))]
    damaged = log.segments[2].path(".index")
    directory.close()
    for path in paths:
        disk.remove(path)
    disk.flip_bit(damaged, 0)

    log = reopened(disk, config)

    assert [len(segment.offset_index) for segment in log.segments] == entries
    check_indexes(log)
    assert len(read_all(log)) == 30


def test_index_without_its_log_and_deleted_files_are_removed() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"))
    stray = ("00000000000000000099.index", "00000000000000000001.log.deleted", "00000000000000000000.log.cleaned")
    for name in (*stray, "leader-epoch-checkpoint.tmp"):
        disk.open(log.directory / name).writev([b"x"])

    log = reopened(disk)

    names = disk.list_directory(log.directory)
    assert not set(stray) & set(names)
    assert "leader-epoch-checkpoint.tmp" not in names


def test_log_that_ends_before_its_start_begins_there() -> None:
    """§16.4.4"""
    disk = FakeDisk()
    append(new_log(disk), batch("a"))
    starts = checkpoints.build_offsets({("t", 0): 50})
    disk.open(ROOT / checkpoints.LOG_START_OFFSETS).writev([starts])

    log = reopened(disk)

    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    append(log, batch("b"))
    assert read_all(log) == [(50, b"b")]


def test_a_corrupt_snapshot_gives_way_to_the_log() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a", producer_id=3, producer_epoch=0, base_sequence=0))
    log.roll()
    append(log, batch("b", producer_id=3, producer_epoch=0, base_sequence=1))
    disk.flip_bit(log.directory / "00000000000000000001.snapshot", 100)

    log = reopened(disk)

    assert log.producers.states[3].batches[-1].last_sequence == 1
    assert len(log.producers.states[3].batches) == 2


def test_unreadable_checkpoint_is_reported_and_taken_as_missing() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, batch("a"), leader_epoch=4)
    for path in (ROOT / checkpoints.RECOVERY_POINTS, log.directory / checkpoints.LEADER_EPOCHS):
        file = disk.open(path)
        file.truncate(0)
        file.writev([b"what\n"])
    notices: list[str] = []
    disk.locked.clear()

    log = open_directory(disk, notices=notices.append).logs["t", 0]

    assert read_all(log) == [(0, b"a")]
    assert log.epochs.entries == ((4, 0),), "found in the batches"
    assert len(notices) == 2


def flippable_log(*, cold_start: bool) -> tuple[FakeDisk, Log, int]:
    disk = FakeDisk()
    config = LogConfig(index_interval_bytes=150)
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(f"value {n}", "more", timestamp=NOW + n) for n in range(6)], leader_epoch=2)
    if cold_start:
        directory.close()
        log = reopened(disk, config)
    return disk, log, log.size_bytes


@pytest.mark.parametrize("cold_start", [False, True])
def test_any_flipped_bit_is_found_by_readers_and_never_served(cold_start: bool) -> None:
    """Every single bit of a segment: a consumer gets the records before the damage, then an error."""
    disk, log, size = flippable_log(cold_start=cold_start)
    good = read_all(log)
    path = log.segments.active.path(".log")
    for bit in range(size * 8):
        disk.flip_bit(path, bit)
        damaged_from = bit // 8 // (size // 6) * 2
        served, error = read_until_error(log)
        assert served == [record for record in good if record[0] < damaged_from]
        assert isinstance(error, CorruptMessage)
        disk.flip_bit(path, bit)


def read_until_error(log: Log) -> tuple[list[tuple[int, bytes | None]], CorruptMessage | None]:
    served: list[tuple[int, bytes | None]] = []
    at = 0
    while at < log.log_end_offset:
        try:
            result = log.read(at, 1 << 20, upper_bound=log.log_end_offset)
        except CorruptMessage as error:
            return served, error
        served += [(record.offset, record.value) for record in records_in(result.records)]
        at = result.end_offset
    return served, None


@pytest.mark.parametrize("bit", range(0, 64, 5))
def test_a_damaged_index_does_not_hide_good_records(bit: int) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    disk = FakeDisk()
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(str(n), timestamp=NOW + n) for n in range(30)])
    expected = read_all(log)
    directory.close()
    disk.flip_bit(log.segments[0].path(".index"), 64 + bit)
    log = reopened(disk, config)

    for offset in range(30):
        assert read_all(log, offset) == expected[offset:]


def test_any_flipped_bit_is_found_by_recovery() -> None:
    disk, log, size = flippable_log(cold_start=False)
    good = read_all(log)
    path = log.segments.active.path(".log")
    for bit in range(0, size * 8, 3):
        copy = FakeDisk.after(disk.journal)
        copy.flip_bit(path, bit)
        damaged_from = bit // 8 // (size // 6) * 2
        # A leader epoch stands outside the checksum: recovery takes it as it is, and readers compare it.
        if 12 <= bit // 8 % (size // 6) < 16:
            continue
        assert read_all(reopened(copy, log.config)) == [record for record in good if record[0] < damaged_from]


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("was_closed", [True, False])
def test_a_flipped_bit_at_the_end_of_a_flushed_segment_is_found(is_last: bool, was_closed: bool) -> None:
    """Also in a base offset, which no checksum covers: a log that believed it to end at offset 65,766 was cut where its
    leader's log ended, and went on there, with a hole before it."""
    config = LogConfig(segment_bytes=320, index_interval_bytes=100)
    disk = FakeDisk()
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(f"value {n}", "more", timestamp=NOW + n) for n in range(10)])
    log.flush()
    directory.recovery_point_checkpoint().write()
    good = read_all(log)
    assert len(log.segments) > 2
    segment = log.segments[-1 if is_last else 1]
    *_, end = segment.batches_from(0)
    if was_closed:
        directory.close()
    journal, path = tuple(disk.journal), segment.path(".log")

    for bit in range(end.position * 8, segment.size * 8):
        if 12 <= bit // 8 - end.position < 16:
            continue  # A leader epoch, which recovery takes as it is.
        copy = FakeDisk.after(journal)
        copy.flip_bit(path, bit)
        found = reopened(copy, config)
        # Where the batch begins and ends: base offset, length, magic, last offset delta.
        moves_an_end = bit // 8 - end.position in {*range(12), 16, *range(23, 27)}
        if not is_last and (was_closed or not moves_an_end):
            assert found.log_end_offset == log.log_end_offset, "readers find it"
            continue
        assert read_all(found) == [record for record in good if record[0] < end.header.base_offset]
        assert found.log_end_offset == end.header.base_offset


@pytest.mark.parametrize("bit", range(64))
def test_rotted_base_offset_of_a_cold_batch_is_corrupt(bit: int) -> None:
    """Also one that fits into no index, when the reader makes those of the segment again."""
    config = LogConfig(segment_bytes=320, index_interval_bytes=10)
    disk = FakeDisk()
    directory = open_directory(disk, config)
    log = directory.create_log("t", 0, TOPIC_ID, config, now_wall_ms=NOW)
    append(log, *[batch(f"value {n}", timestamp=NOW + n) for n in range(10)])
    directory.close()
    segment = log.segments[1]
    rotted = list(segment.batches_from(0))[1]
    disk.flip_bit(segment.path(".log"), rotted.position * 8 + bit)

    found = reopened(disk, config)

    with pytest.raises(CorruptMessage):
        found.read(rotted.header.base_offset, 1 << 20, found.log_end_offset, wait=True)
    assert found.log_end_offset == log.log_end_offset


def test_no_segment_survives_a_power_failure_alone() -> None:
    """A log that was never flushed, on a disk that keeps no order between names, has records from its begin on."""
    disk = FakeDisk()
    log = new_log(disk, LogConfig(segment_bytes=120))
    for n in range(6):
        append(log, batch(f"{n}"))

    for seed in range(200):
        survived = open_directory(FakeDisk.after(disk.journal, Loss.UNORDERED, seed)).logs.get(("t", 0))
        assert survived is None or survived.log_start_offset == 0, seed
