"""A log with gaps that loses power: which missing offsets compaction explains, and which are lost records."""

import errno
from collections.abc import Callable

import pytest

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.checkpoints import COMPACTED_RANGES
from ottla.storage.compacted_ranges import CompactedRange, build_ranges, parse_ranges, read_ranges
from ottla.storage.compaction import CompactionPlan, begin_swap, compact, plan_compaction
from ottla.storage.local_log import NO_GAPS
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory
from ottla.storage.segment_swap import SwapStep
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import (
    NOW,
    ROOT,
    TOPIC_ID,
    append,
    apply_compaction,
    keyed,
    keys_and_values,
    open_directory,
    reopened,
)

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300, min_cleanable_dirty_ratio=0.0)
LIST = ROOT / "t-0" / COMPACTED_RANGES


def filled_log(disk: FakeDisk, records: int) -> tuple[LogDirectory, Log]:
    directory = open_directory(disk, COMPACTED)
    log = directory.create_log("t", 0, TOPIC_ID, COMPACTED, now_wall_ms=NOW)
    for n in range(records):
        append(log, keyed((f"k{n}" if n % 4 == 0 else "again", "v")))
    return directory, log


def compacted_log(disk: FakeDisk) -> tuple[LogDirectory, Log]:
    """Segments with gaps at their ends, then an empty one."""
    directory, log = filled_log(disk, 12)
    log.roll()
    compact_once(log)
    return directory, log


def planned(log: Log) -> CompactionPlan:
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    return plan


def compact_once(log: Log) -> None:
    assert apply_compaction(log, compact(planned(log)), now_wall_ms=NOW)


def follower_log(disk: FakeDisk) -> tuple[LogDirectory, Log]:
    """A copy of a log that its leader had compacted."""
    directory = open_directory(disk, COMPACTED)
    log = directory.create_log("t", 0, TOPIC_ID, COMPACTED, now_wall_ms=NOW)
    for offset in (0, 3, 7, 8):
        log.append_as_follower(memoryview(keyed(("a", "v"), base_offset=offset)), now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)
    return directory, log


@pytest.mark.parametrize("made", [compacted_log, follower_log])
@pytest.mark.parametrize("loss", list(Loss))
def test_power_loss_leaves_no_hole_in_a_log_with_gaps(
    made: Callable[[FakeDisk], tuple[LogDirectory, Log]], loss: Loss
) -> None:
    """An unsynced segment that lost its end is no gap: what stands behind it goes too (§16.4.3)."""
    disk = FakeDisk()
    directory, log = made(disk)
    log.flush()
    directory.recovery_point_checkpoint().write()
    for n in range(12):
        append(log, keyed((f"later{n}", "v")))
    written = keys_and_values(log)

    for seed in range(25):
        crashed = open_directory(FakeDisk.after(disk.journal, loss, seed), COMPACTED)
        found = keys_and_values(crashed.logs["t", 0])
        assert found == written[: len(found)], seed


def test_lost_end_of_a_segment_behind_gaps_counts_as_a_loss() -> None:
    disk = FakeDisk()
    _, log = compacted_log(disk)
    log.flush()
    end_offset = lose_end_of_a_segment(disk, log)

    directory = open_directory(disk, COMPACTED)

    assert directory.has_lost_records
    assert directory.logs["t", 0].log_end_offset == end_offset


@pytest.mark.parametrize("left_bytes", [1, 20, 70])
def test_lost_end_before_a_torn_segment_counts_as_a_loss(left_bytes: int) -> None:
    """What the next segment begins with cannot be read whole: it explains no gap, and it does not stop the start."""
    disk = FakeDisk()
    _, log = compacted_log(disk)
    log.flush()
    end_offset = lose_end_of_a_segment(disk, log)
    disk.open(log.segments[-2].path(".log")).truncate(left_bytes)

    directory = open_directory(disk, COMPACTED)

    assert directory.has_lost_records
    assert directory.logs["t", 0].log_end_offset == end_offset


def lose_end_of_a_segment(disk: FakeDisk, log: Log) -> int:
    """Of one that more are appended behind; the offset where what is left of it ends."""
    for n in range(12):
        append(log, keyed((f"later{n}", "v")))
    victim = log.segments[-3]
    last = list(victim.batches_from(0))[-1]
    disk.open(victim.path(".log")).truncate(last.position)
    disk.locked.clear()
    return last.header.base_offset


def test_gaps_of_several_passes_survive_the_kill_of_a_process() -> None:
    """No checkpoint of recovery points was written since: only the list says what is missing for good."""
    disk = FakeDisk()
    _, log = compacted_log(disk)
    for again in range(2):
        for n in range(8):
            append(log, keyed((f"more{n % 3}", f"{again}")))
        log.roll()
        compact_once(log)
    written = keys_and_values(log)
    disk.locked.clear()

    directory = open_directory(disk, COMPACTED)

    assert keys_and_values(directory.logs["t", 0]) == written
    assert not directory.has_lost_records


def test_pass_that_is_abandoned_keeps_the_list_of_earlier_ones() -> None:
    disk = FakeDisk()
    _, log = compacted_log(disk)
    for n in range(8):
        append(log, keyed((f"k{n}", "again")))
    log.roll()
    append(log, keyed(("last", "v")))
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    result = compact(plan)
    log.truncate_to(log.log_end_offset - 1)
    assert not apply_compaction(log, result, now_wall_ms=NOW)
    written = keys_and_values(log)

    assert keys_and_values(reopened(disk, COMPACTED)) == written


def test_truncation_into_a_gap_at_a_segments_end_is_no_loss() -> None:
    disk = FakeDisk()
    _, log = compacted_log(disk)
    known = read_ranges(disk, log.directory)
    assert known is not None
    gap = next(each for each in known if ends_before(log, each))
    log.truncate_to(gap.end_offset - 1)
    log.roll()
    append(log, keyed(("next", "v")))
    written = keys_and_values(log)

    assert keys_and_values(reopened(disk, COMPACTED)) == written


def ends_before(log: Log, known: CompactedRange) -> bool:
    segment = log.segments[log.segments.index_of(known.base_offset)]
    return list(segment.batches_from(0))[-1].header.next_offset < known.end_offset - 1


def test_log_with_gaps_but_no_list_believes_them() -> None:
    """As Kafka or an earlier version left it."""
    disk = FakeDisk()
    _, log = compacted_log(disk)
    written = keys_and_values(log)
    disk.remove(LIST)

    assert keys_and_values(reopened(disk, COMPACTED)) == written


@pytest.mark.parametrize("is_empty", [False, True])
def test_new_log_that_lost_its_mark_gets_it_again(is_empty: bool) -> None:
    """A loss of power may take the name of one file and leave the others. The lost end of a segment is no gap later."""
    disk = FakeDisk()
    small = LogConfig(segment_bytes=300)
    log = open_directory(disk).create_log("t", 0, TOPIC_ID, small, now_wall_ms=NOW)
    if not is_empty:
        append(log, keyed(("first", "v")))
    disk.remove(log.directory / NO_GAPS)
    disk.locked.clear()
    log = open_directory(disk, small).logs["t", 0]
    assert disk.exists(log.directory / NO_GAPS)
    end_offset = lose_end_of_a_segment(disk, log)

    directory = open_directory(disk, small)

    assert directory.has_lost_records
    assert directory.logs["t", 0].log_end_offset == end_offset


def test_log_with_a_gap_in_its_only_segment_gets_no_mark() -> None:
    disk = FakeDisk()
    _, log = follower_log(disk)
    disk.remove(LIST)
    written = keys_and_values(log)
    assert len(log.segments) == 1
    disk.locked.clear()

    log = open_directory(disk, COMPACTED).logs["t", 0]

    assert not disk.exists(log.directory / NO_GAPS)
    assert keys_and_values(log) == written


def test_gap_too_wide_for_one_segment_is_no_loss() -> None:
    """The follower begins a segment where the gap ends."""
    disk = FakeDisk()
    _, log = follower_log(disk)
    log.append_as_follower(memoryview(keyed(("b", "v"), base_offset=1 << 32)), now_wall_ms=NOW)
    log.write_pending(now_wall_ms=NOW)
    written = keys_and_values(log)

    assert keys_and_values(reopened(disk, COMPACTED)) == written


def test_first_gap_of_a_follower_begins_the_list() -> None:
    disk = FakeDisk()
    _, log = follower_log(disk)

    assert read_ranges(disk, log.directory) == []
    assert not disk.exists(log.directory / NO_GAPS)


def test_list_keeps_lines_of_earlier_versions() -> None:
    ranges = [CompactedRange(0, 10, 300), CompactedRange(0, 20, 300), CompactedRange(20, 25, 0)]

    assert parse_ranges(build_ranges(ranges)) == ranges
    assert parse_ranges(b"0\n1\n7 9\n") == [CompactedRange(7, 9, None)]


@pytest.mark.parametrize("content", [b"", b"0\n1\na b c\n", b"0\n2\n1 2 3\n", b"\xff"])
def test_unreadable_list_counts_as_empty(content: bytes) -> None:
    disk = FakeDisk()
    disk.make_directory(LIST.parent)
    disk.open(LIST).writev([content])

    assert read_ranges(disk, ROOT / "t-0") == []


def test_log_without_gaps_has_no_list() -> None:
    disk = FakeDisk()
    directory = open_directory(disk, COMPACTED)
    log = directory.create_log("t", 0, TOPIC_ID, COMPACTED, now_wall_ms=NOW)
    append(log, keyed(("a", "v")))

    assert read_ranges(disk, log.directory) is None


@pytest.mark.parametrize("pauses_before", [0, 30])
def test_pass_over_a_deleted_log_leaves_nothing_in_the_next(pauses_before: int) -> None:
    """Another log is made in its place while a thread compacts it: before its first new segment, or after."""
    disk = FakeDisk()
    directory, log = filled_log(disk, 24)
    plan, pauses, before = planned(log), 0, list[str]()

    def delete_and_make_again() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == pauses_before + 1:
            directory.delete_log("t", 0, now_wall_ms=NOW)
            directory.create_log("t", 0, bytes(range(1, 17)), COMPACTED, now_wall_ms=NOW)
            before.extend(disk.list_directory(ROOT / "t-0"))

    with pytest.raises(KafkaStorageError):
        compact(plan, delete_and_make_again)

    assert before
    assert sorted(disk.list_directory(ROOT / "t-0")) == sorted(before)


def test_names_that_an_abandoned_swap_gives_are_synced() -> None:
    """No name is left that recovery would act upon."""
    disk = FakeDisk()
    _, log = filled_log(disk, 24)
    swap = begin_swap(log, compact(planned(log)))
    assert swap is not None
    swap.prepare()
    while log.swaps.apply(swap, NOW) is not SwapStep.SYNC:
        pass
    log.flush()
    disk.fail("sync_directory", OSError(errno.EMFILE, "too many"))
    swap.sync()
    with pytest.raises(KafkaStorageError):
        log.swaps.apply(swap, NOW)

    log.flush()

    after = FakeDisk.after(disk.journal, Loss.UNSYNCED)
    assert [name for name in after.list_directory(log.directory) if name.endswith(".swap")] == []
