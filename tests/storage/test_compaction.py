"""Compaction (§16.6.2–16.6.5): what stays, when, and that a crash in the middle of it harms nothing."""

import errno
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.records.batch import parse_batch_header
from ottla.storage import compaction
from ottla.storage.compaction import CompactionResult, begin_swap, compact, plan_compaction
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment_swap import SwapStep
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

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=400, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0
)
Pairs = list[tuple[int, bytes | None, bytes | None]]


def clean(log: Log, now: int = NOW) -> bool:
    plan = plan_compaction(log, now_wall_ms=now, upper_bound=log.log_end_offset)
    return plan is not None and apply_compaction(log, compact(plan), now_wall_ms=now)


def filled(disk: FakeDisk, config: LogConfig = COMPACTED, rounds: int = 20) -> Log:
    log = new_log(disk, config)
    fill(log, rounds)
    return log


def fill(log: Log, rounds: int = 20) -> None:
    for n in range(rounds):
        append(log, keyed((f"k{n % 3}", f"v{n}"), (f"once {n}", "kept")))


def compacted(log: Log) -> CompactionResult:
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    return compact(plan)


def latest(pairs: Pairs) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in pairs}


def test_last_record_of_each_key_stays_below_the_active_segment() -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    active_from = log.segments.active.base_offset

    assert clean(log)

    after = keys_and_values(log)
    last = {key: offset for offset, key, _ in before if offset < active_from}
    assert after == [r for r in before if r[0] >= active_from or last[r[1]] == r[0]]
    assert (log.cleaned_offset, log.log_end_offset) == (active_from, 40)
    check_indexes(log)
    assert keys_and_values(reopened(disk, COMPACTED)) == after


def test_a_clean_log_is_left_alone_until_it_is_dirty_enough() -> None:
    log = filled(FakeDisk())
    assert clean(log)
    assert not clean(log)

    log.configure(LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=400, min_cleanable_dirty_ratio=0.9))
    append(log, *[keyed(("k", "v"), ("l", "w")) for _ in range(6)])
    assert not clean(log)
    append(log, *[keyed(("k", "v"), ("l", "w")) for _ in range(200)])
    assert clean(log)


def test_min_lag_delays_young_records_max_lag_beats_the_ratio() -> None:
    young = LogConfig(
        cleanup_policy=COMPACTED.cleanup_policy,
        segment_bytes=400,
        min_compaction_lag_ms=1000,
        min_cleanable_dirty_ratio=0,
    )
    assert not clean(filled(FakeDisk(), young), NOW + 999)
    assert clean(filled(FakeDisk(), young), NOW + 1000)

    patient = LogConfig(
        cleanup_policy=COMPACTED.cleanup_policy,
        segment_bytes=400,
        max_compaction_lag_ms=5000,
        min_cleanable_dirty_ratio=1,
    )
    log = filled(FakeDisk(), patient, rounds=4)
    assert clean(log, NOW + 5001)
    assert len(log.segments) == 2, "the active segment was rolled for it"


def test_nothing_at_or_above_the_bound_is_cleaned() -> None:
    log = filled(FakeDisk())

    assert plan_compaction(log, now_wall_ms=NOW, upper_bound=log.segments[1].base_offset - 1) is None


def test_a_log_that_is_not_compacted_has_no_plan() -> None:
    log = filled(FakeDisk(), LogConfig(segment_bytes=400))

    assert plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset) is None


def test_tombstones_stay_until_their_delete_horizon() -> None:
    """§16.6.3: a reader that starts at the beginning within delete.retention.ms sees the delete."""
    log = new_log(FakeDisk(), COMPACTED)
    append(log, keyed(("a", "1")), keyed(("b", "1")), keyed(("a", None)))
    log.roll()
    append(log, keyed(("z", "1")))

    assert clean(log)
    assert latest(keys_and_values(log)) == {b"b": b"1", b"a": None, b"z": b"1"}
    tombstone = next(batch.header for batch in log.segments[0].batches_from(0) if batch.header.base_offset == 2)
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW + COMPACTED.delete_retention_ms

    for later, gone in ((COMPACTED.delete_retention_ms - 1, False), (COMPACTED.delete_retention_ms, True)):
        log.roll()
        append(log, keyed((f"later {later}", "1")))
        assert clean(log, NOW + later)
        assert (b"a" not in latest(keys_and_values(log))) is gone


def test_last_batch_of_a_producer_stays_even_when_empty() -> None:
    disk = FakeDisk()
    log = new_log(disk, COMPACTED)
    for n in range(3):
        append(log, keyed(("a", str(n)), producer_id=5, producer_epoch=0, base_sequence=n))
    append(log, keyed(("a", "newest")))
    log.roll()
    append(log, keyed(("z", "1")))

    assert clean(log)

    headers = [batch.header for batch in log.segments[0].batches_from(0)]
    assert [(header.base_offset, header.record_count) for header in headers] == [(2, 0), (3, 1)]
    for name in disk.list_directory(log.directory):
        if name.endswith(".snapshot"):
            disk.remove(log.directory / name)
    again = reopened(disk, COMPACTED)
    assert again.producers.states[5].batches[-1].last_sequence == 2
    assert keys_and_values(again) == [(3, b"a", b"newest"), (4, b"z", b"1")]


def test_small_segments_are_merged() -> None:
    log = new_log(FakeDisk(), COMPACTED)
    for n in range(12):
        append(log, keyed(("same", str(n))))
        log.roll()

    assert clean(log)

    assert len(log.segments) == 4
    assert clean(log) is False


def test_truncation_during_a_pass_abandons_the_pass() -> None:
    disk = FakeDisk()
    log = filled(disk)
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    result = compact(plan)

    log.truncate_to(5)

    assert not apply_compaction(log, result, now_wall_ms=NOW)
    assert not [name for name in disk.list_directory(log.directory) if name.endswith(".cleaned")]
    assert log.log_end_offset <= 5


@pytest.mark.parametrize("prepared", [False, True])
def test_a_truncation_abandons_a_swap_that_recovery_would_finish(prepared: bool) -> None:
    disk = FakeDisk()
    log = filled(disk)
    swap = begin_swap(log, compacted(log))
    assert swap is not None
    if prepared:
        swap.prepare()

    log.truncate_to(2)
    if not prepared:
        swap.prepare()
    append(log, keyed(("new", "1")), keyed(("new", "2")))

    assert log.swaps.apply(swap, NOW) is SwapStep.END
    assert swap.is_abandoned
    log.flush()
    expected = keys_and_values(log)
    assert [name for name in disk.list_directory(log.directory) if name.endswith((".swap", ".cleaned"))] == []
    for loss in (Loss.NOTHING, Loss.UNSYNCED):
        assert keys_and_values(reopened(FakeDisk.after(disk.journal, loss), COMPACTED)) == expected


def test_truncation_during_a_swap_names_the_placed_segments() -> None:
    disk = FakeDisk()
    log = filled(disk)
    swap = begin_swap(log, compacted(log))
    assert swap is not None
    swap.prepare()
    assert log.swaps.apply(swap, NOW) is not SwapStep.END

    log.truncate_to(log.log_end_offset - 1)

    assert swap.is_abandoned
    assert [name for name in disk.list_directory(log.directory) if name.endswith((".swap", ".cleaned"))] == []
    log.flush()
    expected = keys_and_values(log)
    for loss in (Loss.NOTHING, Loss.UNSYNCED):
        assert keys_and_values(reopened(FakeDisk.after(disk.journal, loss), COMPACTED)) == expected


def test_swap_that_failed_is_abandoned_and_next_pass_succeeds() -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    result = compacted(log)
    disk.fail("sync_directory", OSError(errno.EMFILE, "too many"))

    with pytest.raises(KafkaStorageError, match="too many files open"):
        apply_compaction(log, result, now_wall_ms=NOW)
    assert (log.failure, keys_and_values(log)) == (None, before)

    assert apply_compaction(log, compacted(log), now_wall_ms=NOW)
    assert len(keys_and_values(log)) < len(before)


def test_pass_begins_only_when_the_last_swap_is_abandoned() -> None:
    """What is left to be removed of it has the names of the next pass's files."""
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    disk.fail("rename", OSError(errno.EIO, "the disk refuses"), after=2)
    result = compacted(log)
    disk.fail("remove", OSError(errno.EIO, "the disk refuses"), after=1)
    disk.fail("remove", OSError(errno.EIO, "the disk refuses"))
    with pytest.raises(KafkaStorageError):
        apply_compaction(log, result, now_wall_ms=NOW)

    with pytest.raises(KafkaStorageError):
        clean(log)
    assert clean(log)

    assert latest(keys_and_values(log)) == latest(before)
    log.flush()
    assert latest(keys_and_values(reopened(disk, COMPACTED))) == latest(before)


def test_segment_whose_records_are_missing_takes_no_ones_place() -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    result = compacted(log)
    disk.remove(result.groups[0].new.path(".log"))

    with pytest.raises(KafkaStorageError):
        apply_compaction(log, result, now_wall_ms=NOW)

    assert (log.failure, keys_and_values(log)) == (None, before)


def test_a_pass_offers_the_interpreter_after_every_few_records() -> None:
    log = new_log(FakeDisk(), LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0))
    records = 20 * compaction.RECORDS_PER_PAUSE
    append(log, keyed(*[(f"k{n}", "v") for n in range(records)]))
    log.roll()
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    compact(plan, pause)

    # The batch is read twice.
    assert pauses >= 2 * records // compaction.RECORDS_PER_PAUSE


def test_appends_and_reads_go_on_while_a_pass_runs() -> None:
    log = filled(FakeDisk())
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    append(log, *[keyed(("k0", "during it")) for _ in range(8)])

    assert apply_compaction(log, compact(plan), now_wall_ms=NOW)

    assert latest(keys_and_values(log))[b"k0"] == b"during it"
    check_indexes(log)


@pytest.mark.parametrize("operation", ["writev", "fsync", "open"])
def test_a_failing_disk_ends_the_pass_and_leaves_the_log_alone(operation: str) -> None:
    disk = FakeDisk()
    log = filled(disk)
    before = keys_and_values(log)
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None
    disk.fail(operation, OSError(errno.ENOSPC, "full"), after=2)

    with pytest.raises(KafkaStorageError, match="no space is left"):
        compact(plan)

    assert keys_and_values(log) == before
    assert not [name for name in disk.list_directory(log.directory) if name.endswith(".cleaned")]


def test_a_damaged_batch_stops_the_pass() -> None:
    disk = FakeDisk()
    log = filled(disk)
    disk.flip_bit(log.segments[1].path(".log"), 8 * 80)
    plan = plan_compaction(log, now_wall_ms=NOW, upper_bound=log.log_end_offset)
    assert plan is not None

    with pytest.raises(KafkaStorageError, match="checksum"):
        compact(plan)


def test_more_keys_than_fit_are_cleaned_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEYS_PER_PASS_MAX", 7)
    log = filled(FakeDisk())
    before = latest(keys_and_values(log))

    passes = 0
    while clean(log):
        passes += 1
        assert passes < 30

    assert passes > 1
    assert log.cleaned_offset == log.segments.active.base_offset
    assert latest(keys_and_values(log)) == before
    below = [key for offset, key, _ in keys_and_values(log) if offset < log.cleaned_offset]
    assert len(below) == len(set(below))


@pytest.mark.parametrize("loss", list(Loss))
def test_a_crash_at_any_step_of_a_compaction_loses_no_key(loss: Loss) -> None:
    """Only one outcome per key may be visible: the newest value of every key is there, whatever was finished."""
    disk = FakeDisk()
    directory = open_directory(disk, COMPACTED)
    log = directory.create_log("t", 0, bytes(16), COMPACTED, now_wall_ms=NOW)
    for n in range(20):
        append(log, keyed((f"k{n % 3}", f"v{n}"), (f"once {n}", "kept"), timestamp=NOW + n))
    log.flush()
    directory.recovery_point_checkpoint().write()
    begin = len(disk.journal)
    before = keys_and_values(log)
    assert clean(log)
    directory.cleaner_checkpoint().write()
    due = directory.take_due_deletions(NOW + COMPACTED.file_delete_delay_ms)
    assert due is not None
    due.run()

    for operations in range(begin, len(disk.journal) + 1):
        crashed = FakeDisk.after(disk.journal[:operations], loss, seed=operations)
        log = open_directory(crashed, COMPACTED).logs["t", 0]
        found = keys_and_values(log)
        assert latest(found) == latest(before)
        assert set(found) <= set(before)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        check_indexes(log)
        append(log, keyed(("k0", "after")))
        assert latest(keys_and_values(log))[b"k0"] == b"after"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["1", "2" * 40, None])), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0, 1, 2, 3, 4]),
)
def test_compaction_never_changes_the_newest_value_of_a_key(
    batches: list[list[tuple[str, str | None]]], codec: int
) -> None:
    log = new_log(FakeDisk(), COMPACTED)
    for n, pairs in enumerate(batches):
        append(log, keyed(*pairs, timestamp=NOW + n, codec=codec))
        if n % 10 == 9:
            before = keys_and_values(log)
            clean(log, NOW + n)
            after = keys_and_values(log)
            assert latest(after) == latest(before)
            assert set(after) <= set(before)
            check_indexes(log)
    headers = [parse_batch_header(batch.view) for segment in log.segments for batch in segment.batches_from(0)]
    assert all(a.last_offset < b.base_offset for a, b in itertools.pairwise(headers))


@pytest.mark.parametrize("operation", ["open", "pread"])
@pytest.mark.parametrize("after", range(8))
def test_plan_that_the_disk_refuses_is_a_storage_error(operation: str, after: int) -> None:
    """When a segment began is read from it where it was not asked for since the start."""
    disk = FakeDisk()
    patient = COMPACTED._replace(max_compaction_lag_ms=1_000_000, min_cleanable_dirty_ratio=1.0)
    first = open_directory(disk, patient)
    fill(first.create_log("t", 0, TOPIC_ID, patient, now_wall_ms=NOW))
    first.close()
    log = reopened(disk, patient)
    log.swaps.cleaned_offset = log.segments[2].base_offset
    log.release_idle()
    disk.fail(operation, OSError(errno.EMFILE, "too many open files"), after=after)
    later = NOW + 2_000_000

    try:
        plan = plan_compaction(log, now_wall_ms=later, upper_bound=log.log_end_offset)
    except KafkaStorageError:
        plan = plan_compaction(log, now_wall_ms=later, upper_bound=log.log_end_offset)

    assert plan is not None
    with disk.nothing_fails():
        assert apply_compaction(log, compact(plan), now_wall_ms=later)
