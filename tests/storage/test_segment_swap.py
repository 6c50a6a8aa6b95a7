"""What a crash in the middle of a compaction leaves, and what opening the log makes of it."""

import pytest

from ottla.storage.checkpoints import COMPACTED_RANGES
from ottla.storage.compaction import CompactionResult, compact, plan_compaction
from ottla.storage.local_log import NO_GAPS
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk, Loss
from tests.storage.support import (
    NOW,
    TOPIC_ID,
    append,
    apply_compaction,
    check_indexes,
    keyed,
    keys_and_values,
    new_log,
    open_directory,
    reopened,
)

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2000, min_cleanable_dirty_ratio=0.0)
LARGE = "x" * 900


def fill(log: Log) -> None:
    """Three small segments, of which the first keeps its records, and a large one with what outdates the others."""
    segments = [("a", "b"), ("c", "d"), ("e", "f")]
    for keys in segments:
        append(log, keyed(*[(key, "1") for key in keys]))
        log.roll()
    append(log, keyed(("c", LARGE), ("c", LARGE)), keyed(("d", "2"), ("e", "2"), ("f", "2")))
    log.roll()
    append(log, keyed(("z", "active")))


def filled(disk: FakeDisk) -> Log:
    log = new_log(disk, COMPACTED)
    fill(log)
    return log


def compacted(log: Log) -> CompactionResult:
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    result = compact(plan)
    assert [group.new.base_offset for group in result.groups] == [0, 6]
    return result


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_step_leaves_no_segment_and_its_successor(loss: Loss) -> None:
    disk = FakeDisk()
    directory = open_directory(disk, COMPACTED)
    log = directory.create_log("t", 0, TOPIC_ID, COMPACTED, now_wall_ms=NOW)
    fill(log)
    log.flush()
    begin, before = len(disk.journal), keys_and_values(log)
    assert apply_compaction(log, compacted(log), now_wall_ms=NOW)
    after = keys_and_values(log)
    first_only = [record for record in after if record[0] < 6] + [record for record in before if record[0] >= 6]

    for operations in range(begin, len(disk.journal) + 1):
        crashed = FakeDisk.after(disk.journal[:operations], loss, seed=operations)
        recovered = reopened(crashed, COMPACTED)
        assert keys_and_values(recovered) in (before, first_only, after)
        check_indexes(recovered)


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_step_of_finishing_a_swap_changes_nothing(loss: Loss) -> None:
    disk = FakeDisk()
    log = filled(disk)
    log.flush()
    result = compacted(log)
    disk.remove(log.directory / NO_GAPS)
    for group in result.groups:
        group.new.rename(".swap")
    disk.sync_directory(log.directory)
    begin = len(disk.journal)
    after = keys_and_values(reopened(disk, COMPACTED))
    assert [offset for offset, _, _ in after] == [0, 1, 7, 8, 9, 10, 11]

    for operations in range(begin, len(disk.journal) + 1):
        crashed = FakeDisk.after(disk.journal[:operations], loss, seed=operations)
        assert keys_and_values(reopened(crashed, COMPACTED)) == after
        assert not [name for name in crashed.list_directory(log.directory) if name.endswith((".swap", ".cleaned"))]


def test_swap_after_an_incomplete_segment_does_not_count() -> None:
    """It may lack a tombstone of a record that the earlier one has as yet."""
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    compacted(log).groups[1].new.rename(".swap")
    begin = len(disk.journal)

    assert keys_and_values(reopened(disk, COMPACTED)) == before

    for operations in range(begin, len(disk.journal) + 1):
        assert keys_and_values(reopened(FakeDisk.after(disk.journal[:operations]), COMPACTED)) == before


@pytest.mark.parametrize("swapped", [[0, 1], [0], [1]])
def test_swap_left_by_kafka_replaces_segments_up_to_the_next(swapped: list[int]) -> None:
    """Its cleaner does not say which segments a compacted one replaces."""
    disk = FakeDisk()
    log = filled(disk)
    result = compacted(log)
    for name in (COMPACTED_RANGES, NO_GAPS):
        disk.remove(log.directory / name)
    for n in swapped:
        result.groups[n].new.rename(".swap")
    for name in disk.list_directory(log.directory):
        if name.endswith(".cleaned"):
            disk.remove(log.directory / name)

    bases = [segment.base_offset for segment in reopened(disk, COMPACTED).segments]

    assert bases == {2: [0, 6, 11], 1: [0, 2, 4, 6, 11]}[len(swapped)]


def test_compacted_segments_get_names_once_old_are_durably_gone() -> None:
    disk = FakeDisk()
    log = filled(disk)
    result = compacted(log)
    begin = len(disk.journal)

    apply_compaction(log, result, now_wall_ms=NOW)

    renamed_to = [
        operation[2].suffix if operation[0] == "rename" else operation[0]
        for operation in disk.journal[begin:]
        if operation[0] in ("rename", "syncdir")
    ]
    last_removed = len(renamed_to) - renamed_to[::-1].index(".deleted")
    assert ".log" not in renamed_to[:last_removed]
    assert renamed_to[last_removed] == "syncdir"
