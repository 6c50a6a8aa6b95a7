"""Base offsets and leader epochs lie outside a batch's checksum: what recovery makes of those that contradict."""

import pytest

from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, TOPIC_ID, batch, open_directory, read_all

CONFIG = LogConfig(segment_bytes=2 * len(batch("0")))
"""Two batches in each segment."""
BASE_OFFSET_BYTES, LEADER_EPOCH_BYTES = 8, 16
"""Where these fields of a batch end."""


def log_of(disk: FakeDisk, *batches: tuple[int, int]) -> Log:
    """Batches of one record each, as they come from a leader: (base offset, leader epoch)."""
    log = open_directory(disk, CONFIG).create_log("t", 0, TOPIC_ID, CONFIG, now_wall_ms=NOW)
    for offset, epoch in batches:
        records = batch(str(offset % 10))
        assign_offset_and_epoch(records, 0, offset, epoch)
        log.append_as_follower(records, now_wall_ms=NOW)
        log.write_pending(now_wall_ms=NOW)
    return log


def flip(disk: FakeDisk, log: Log, n: int, end_of_field: int, bit: int) -> None:
    """A bit in a field of the n-th batch, counted from the lowest one."""
    batches = [(segment, found) for segment in log.segments for found in segment.batches_from(0)]
    segment, found = batches[n]
    disk.flip_bit(segment.path(".log"), 8 * (found.position + end_of_field - 1 - bit // 8) + bit % 8)


def recovered(disk: FakeDisk) -> tuple[list[int], bool]:
    """The offsets that are left, and whether the broker knows that some may be missing."""
    disk.locked.clear()
    directory = open_directory(disk, CONFIG)
    log = directory.logs["t", 0]
    offsets = [offset for offset, _ in read_all(log)]
    assert log.log_end_offset == (offsets[-1] + 1 if offsets else log.log_start_offset)
    epochs = [entry.epoch for entry in log.epochs.entries]
    assert all(epoch < 100 for epoch in epochs), "of no damaged batch"
    return offsets, directory.has_lost_records


@pytest.mark.parametrize("n", range(5))
def test_log_ends_before_a_batch_whose_epoch_rose(n: int) -> None:
    """Seed 1117 of the cluster: the epochs of all batches before it were forgotten."""
    disk = FakeDisk()
    flip(disk, log_of(disk, *((n, 1) for n in range(6))), n, LEADER_EPOCH_BYTES, 24)

    assert recovered(disk) == (list(range(n)), True)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_log_ends_before_a_batch_whose_epoch_fell(n: int) -> None:
    disk = FakeDisk()
    flip(disk, log_of(disk, *((n, 5) for n in range(6))), n, LEADER_EPOCH_BYTES, 2)

    assert recovered(disk) == (list(range(n)), True)


def test_first_batch_of_an_epoch_is_believed_if_it_is_stored() -> None:
    disk = FakeDisk()
    log = log_of(disk, (0, 1), (1, 1), (2, 5), (3, 5))
    log.flush()
    flip(disk, log, 3, LEADER_EPOCH_BYTES, 2)

    assert recovered(disk) == ([0, 1, 2], True)


def test_epochs_that_rise_from_batch_to_batch_are_sound() -> None:
    disk = FakeDisk()
    log_of(disk, (0, 1), (1, 2), (2, 7), (3, 9))

    assert recovered(disk) == ([0, 1, 2, 3], False)


@pytest.mark.parametrize("bit", [3, 4])
def test_batch_moved_over_the_next_one_ends_a_log_with_gaps(bit: int) -> None:
    disk = FakeDisk()
    flip(disk, log_of(disk, (0, 1), (2, 1), (4, 1), (6, 1)), 1, BASE_OFFSET_BYTES, bit)

    assert recovered(disk) == ([0], True)


def test_gaps_are_no_damage() -> None:
    disk = FakeDisk()
    log_of(disk, (0, 1), (3, 1), (7, 1), (8, 1), (20, 1))

    assert recovered(disk) == ([0, 3, 7, 8, 20], False)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("bit", range(0, 40, 3))
def test_log_without_gaps_ends_before_any_batch_that_moved(n: int, bit: int) -> None:
    disk = FakeDisk()
    flip(disk, log_of(disk, *((n, 1) for n in range(6))), n, BASE_OFFSET_BYTES, bit)

    assert recovered(disk) == (list(range(n)), True)
