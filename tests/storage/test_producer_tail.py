"""Batches that are sent again after the producers were read from a snapshot, which has only the last one of each."""

import errno
from random import Random

import pytest

from ottla.protocol.errors import InvalidProducerEpoch, KafkaStorageError, OutOfOrderSequenceNumber
from ottla.storage.append_queue import AppendInfo
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_tail import BATCHES_MAX, BYTES_MAX
from tests.fakes.disk import FakeDisk, FakeFile
from tests.storage.support import NOW, append, batch, new_log, reopened

FIVE_BATCHES = LogConfig(segment_bytes=600)


def sent(sequence: int, *, producer: int = 7, epoch: int = 0, value: str = "x" * 40) -> memoryview:
    return batch(value, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def copy(records: memoryview) -> memoryview:
    """For a log, which writes offsets into what it gets."""
    return memoryview(bytearray(records))


def again(log: Log, records: memoryview) -> AppendInfo:
    return log.append_as_leader(records, leader_epoch=0, now_wall_ms=NOW)


def first_offset(log: Log, records: memoryview) -> int | None:
    """Of the batch that this one repeats; None for what the log refuses as out of order."""
    try:
        info = again(log, records)
    except OutOfOrderSequenceNumber:
        return None
    assert info.duplicate
    return info.base_offset


def bytes_read_by(log: Log, records: memoryview, monkeypatch: pytest.MonkeyPatch) -> int:
    """While the log refuses a batch as out of order."""
    sizes: list[int] = []
    pread = FakeFile.pread

    def counting(file: FakeFile, size: int, position: int) -> bytes:
        sizes.append(len(data := pread(file, size, position)))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(FakeFile, "pread", counting)
        assert first_offset(log, records) is None
    return sum(sizes)


def killed_behind_a_roll(disk: FakeDisk, count: int = 10) -> Log:
    """The snapshot of the roll stands right behind the last batch."""
    log = new_log(disk, FIVE_BATCHES)
    append(log, *map(sent, range(count)))
    log.roll()
    return reopened(disk, FIVE_BATCHES)


def closed_and_opened(disk: FakeDisk, count: int = 10) -> Log:
    log = new_log(disk, FIVE_BATCHES)
    append(log, *map(sent, range(count)))
    log.close()
    return reopened(disk, FIVE_BATCHES)


@pytest.mark.parametrize("start", [killed_behind_a_roll, closed_and_opened])
def test_last_five_batches_are_known_again_and_no_more(start) -> None:
    log = start(FakeDisk())
    assert log.producers.snapshot_offset == 10

    assert [first_offset(log, sent(n)) for n in range(10)] == [None] * 5 + [5, 6, 7, 8, 9]
    assert again(log, sent(10)).base_offset == 10


def test_what_never_was_in_the_log_stays_out_of_order() -> None:
    log = killed_behind_a_roll(FakeDisk())

    assert first_offset(log, sent(12)) is None
    assert first_offset(log, batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=8)) is None


def test_batches_of_an_earlier_epoch_are_no_repetitions() -> None:
    disk = FakeDisk()
    log = new_log(disk, FIVE_BATCHES)
    append(log, sent(0), sent(1), sent(0, epoch=1), sent(1, epoch=1))
    log.roll()
    log = reopened(disk, FIVE_BATCHES)

    assert first_offset(log, sent(0, epoch=1)) == 2
    with pytest.raises(InvalidProducerEpoch):
        again(log, sent(1))


@pytest.mark.parametrize("seed", range(20))
def test_reopened_log_answers_as_the_one_before(seed: int) -> None:
    rng = Random(seed)
    config = LogConfig(segment_bytes=rng.choice([300, 600, 5000]), index_interval_bytes=rng.choice([100, 4096]))
    disk = FakeDisk()
    log = new_log(disk, config)
    sequences = dict.fromkeys(range(4), 0)
    batches = []
    for _ in range(rng.randint(20, 80)):
        producer = rng.choice(list(sequences))
        batches.append(sent(sequences[producer], producer=producer, value="x" * rng.randrange(200)))
        sequences[producer] += 1
        append(log, copy(batches[-1]))
    expected = [first_offset(log, copy(one)) for one in batches]
    if rng.random() < 0.5:
        log.close()

    log = reopened(disk, config)

    assert [first_offset(log, copy(one)) for one in batches] == expected


def test_log_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = killed_behind_a_roll(FakeDisk())

    assert bytes_read_by(log, sent(30), monkeypatch) > 0
    assert log.producers.snapshot_offset is None
    assert bytes_read_by(log, sent(40), monkeypatch) == 0


def test_log_that_knows_all_its_batches_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(FakeDisk(), FIVE_BATCHES)
    append(log, *map(sent, range(10)))

    assert bytes_read_by(log, sent(3), monkeypatch) == 0


@pytest.mark.parametrize(("count", "size"), [(8 * BATCHES_MAX, 10), (300, 100_000)])
def test_look_backward_is_bounded(count: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    log = new_log(disk)
    for n in range(count):
        append(log, sent(n // 500, producer=n % 500, value="x" * size))
    log.roll()
    log = reopened(disk)
    one = len(sent(0, value="x" * size))

    read = bytes_read_by(log, sent(10**6, producer=3), monkeypatch)

    assert read < min(3 * BATCHES_MAX * one, BYTES_MAX + 2 * 1024 * 1024)
    assert sum(len(state.batches) > 1 for state in log.producers.states.values()) < 2 * BATCHES_MAX


def test_batches_without_a_producer_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    log = new_log(disk)
    append(log, sent(0), *[batch("x") for _ in range(8 * BATCHES_MAX)], sent(1))
    log.roll()
    log = reopened(disk)

    assert bytes_read_by(log, sent(0), monkeypatch) < 3 * BATCHES_MAX * len(batch("x"))
    assert first_offset(log, sent(1)) == 8 * BATCHES_MAX + 1


def test_damaged_batch_ends_the_look_backward() -> None:
    """What a batch says whose checksum does not match may be wrong."""
    disk = FakeDisk()
    log = new_log(disk, FIVE_BATCHES)
    append(log, *map(sent, range(5)))
    log.roll()
    log = reopened(disk, FIVE_BATCHES)
    segment = log.segments[0]
    position = [one.position for one in segment.batches_from(0)][3]
    # A sequence: the third of its four bytes.
    disk.flip_bit(segment.path(".log"), (position + 55) * 8)

    assert first_offset(log, sent(3)) is None
    assert log.failure is None
    assert again(log, sent(5)).base_offset == 5


def test_refusing_disk_is_asked_again() -> None:
    disk = FakeDisk()
    log = killed_behind_a_roll(disk)
    disk.fail("pread", OSError(errno.EIO, "no"))

    with pytest.raises(KafkaStorageError):
        again(log, sent(8))

    assert log.failure is None
    assert first_offset(log, sent(8)) == 8


def test_queue_that_is_lost_leaves_the_earlier_batches_known() -> None:
    disk = FakeDisk()
    log = killed_behind_a_roll(disk)
    again(log, sent(10))
    assert first_offset(log, sent(7)) == 7

    disk.fail("writev", OSError(errno.ENOSPC, "full"))
    with pytest.raises(KafkaStorageError):
        log.write_pending(now_wall_ms=NOW)

    assert [first_offset(log, sent(n)) for n in range(5, 10)] == [5, 6, 7, 8, 9]
    assert again(log, sent(10)).base_offset == 10
