"""Compaction of a log with transactions (§45): readers of committed records find the same last value for each key."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.control import marker_of
from ottla.storage.compaction import compact, plan_compaction
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.transactions import AbortedTxn
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, TOPIC_ID, apply_compaction, keys_and_values, new_log, open_directory, reopened
from tests.storage.transactional import ABORT, COMMIT, committed, end, write

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=100_000,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def log(disk: FakeDisk) -> Log:
    return new_log(disk, CONFIG)


def clean(log: Log, *, now: int = NOW) -> None:
    log.roll()
    plan = plan_compaction(log, now_wall_ms=now, upper_bound=log.last_stable_offset(log.log_end_offset))
    if plan is not None:
        assert apply_compaction(log, compact(plan), now_wall_ms=now)


def copy_from(leader: Log, follower: Log) -> None:
    """As a fetcher does."""
    while follower.log_end_offset < leader.log_end_offset:
        found = leader.read(follower.log_end_offset, 1 << 20, upper_bound=leader.log_end_offset, wait=True)
        follower.append_as_follower(memoryview(bytearray(found.records)), now_wall_ms=NOW)
        follower.write_pending(now_wall_ms=NOW)


def markers(log: Log) -> list[int]:
    """Offsets of markers that are left."""
    return [
        batch.header.base_offset
        for segment in log.segments
        for batch in segment.batches_from(0)
        if batch.header.is_control and marker_of(batch.view) is not None
    ]


def values(log: Log) -> list[tuple[int, bytes | None]]:
    return [(offset, value) for offset, key, value in keys_and_values(log) if key is not None and len(key) == 1]


def test_aborted_value_does_not_outdate_the_committed_one(log: Log) -> None:
    """TT-27."""
    write(log, "old", producer=7, key="k")
    end(log, producer=7, commit=COMMIT)
    write(log, "aborted", producer=7, key="k")
    end(log, producer=7, commit=ABORT)
    clean(log)

    assert values(log) == [(0, b"old")]
    assert committed(log, 0, high_watermark=4) == [(0, b"old")]


def test_markers_do_not_outdate_each_other(log: Log) -> None:
    """§45.7: all commits share one key."""
    for number in range(3):
        write(log, f"v{number}", producer=number, key=f"{number}")
        end(log, producer=number, commit=COMMIT)
    clean(log)

    assert markers(log) == [1, 3, 5]


def test_marker_goes_later_than_its_records(log: Log) -> None:
    """§45.5."""
    write(log, "first", producer=7, key="k")
    end(log, producer=7, commit=COMMIT)
    write(log, "second", producer=7, key="k")
    end(log, producer=7, commit=COMMIT)
    clean(log)
    assert (values(log), markers(log)) == ([(2, b"second")], [1, 3]), "the first pass has met its records"

    write(log, "x", producer=8, key="x")
    end(log, producer=8, commit=COMMIT)
    clean(log)
    assert 1 in markers(log), "a reader may be between the records and their end"
    write(log, "y", producer=8, key="x")
    end(log, producer=8, commit=COMMIT)
    clean(log, now=NOW + 1001)
    assert markers(log)[0] == 3


def test_undecided_records_are_not_cleaned(log: Log) -> None:
    """§45.3."""
    write(log, "a", producer=7, key="k")
    log.roll()
    write(log, "b", producer=7, key="k")
    clean(log)

    assert values(log) == [(0, b"a"), (1, b"b")]


def test_marker_beyond_what_is_cleaned_says_what_was_aborted(log: Log) -> None:
    write(log, "kept", producer=8, key="k")
    end(log, producer=8, commit=COMMIT)
    write(log, "aborted", producer=7, key="k")
    log.roll()
    end(log, producer=7, commit=ABORT)
    write(log, "open", producer=9, key="z")
    clean(log)

    assert values(log)[0] == (0, b"kept")
    assert b"aborted" not in [value for _, value in values(log)]


def test_a_transaction_whose_marker_may_be_cut_takes_nothing(disk: FakeDisk) -> None:
    """After a restart no snapshot says that it ended by a marker that was not committed yet."""
    directory = open_directory(disk, CONFIG)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, now_wall_ms=NOW)
    write(log, "old", producer=7, key="k")
    first = end(log, producer=7, commit=COMMIT) + 1
    write(log, "new", producer=7, key="k")
    marker = end(log, producer=7, commit=COMMIT)
    assert log.compactable_offset(marker) == first

    directory.close()
    again = reopened(disk, CONFIG)

    assert again.last_stable_offset(marker) == marker
    assert again.compactable_offset(marker) == again.log_start_offset
    assert again.compactable_offset(marker + 1) == marker + 1


def test_emptied_batch_keeps_the_marker_that_ends_it(disk: FakeDisk, log: Log) -> None:
    """Else its transaction would be open again after the next start, and for ever."""
    write(log, "aborted", producer=7, key="k")
    marker = end(log, producer=7, commit=ABORT)
    write(log, "x", producer=8, key="x")
    end(log, producer=8, commit=COMMIT)
    for later in (0, 5000, 10_000):
        clean(log, now=NOW + later)
        write(log, "y", producer=8, key="x")
        end(log, producer=8, commit=COMMIT)
    assert marker in markers(log)
    assert log.aborted_transactions(0, 1) == [AbortedTxn(7, 0, marker, marker + 1)]

    again = reopened(disk, CONFIG)

    assert dict(again.producers.open_transactions) == {}
    assert again.last_stable_offset(again.log_end_offset) == again.log_end_offset
    assert committed(again, 0, high_watermark=again.log_end_offset) == committed(
        log, 0, high_watermark=log.log_end_offset
    )


@pytest.mark.parametrize("is_reopened", [False, True])
def test_emptied_marker_ends_what_a_late_follower_has_open(disk: FakeDisk, log: Log, is_reopened: bool) -> None:
    """§45.5. What its producer writes afterwards is seen."""
    write(log, "aborted", producer=7, key="k")
    follower_disk = FakeDisk()
    follower = new_log(follower_disk, CONFIG)
    copy_from(log, follower)
    marker = end(log, producer=7, epoch=1, commit=ABORT)
    for later in (0, 1, 5_000):
        clean(log, now=NOW + later)
        write(log, "x", producer=8, key="x")
        end(log, producer=8, commit=COMMIT)
    assert marker not in markers(log)

    copy_from(log, follower)
    if is_reopened:
        follower = reopened(follower_disk, CONFIG)
    offset = write(log, "later", producer=7, epoch=1, key="k")
    end(log, producer=7, epoch=2, commit=COMMIT)
    copy_from(log, follower)

    assert dict(follower.producers.open_transactions) == {}
    assert follower.log_end_offset == log.log_end_offset
    found = committed(follower, 0, high_watermark=follower.log_end_offset)
    assert found[-1] == (offset, b"later")
    assert b"aborted" not in [value for _, value in found]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from("abc")),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.sampled_from(["roll", "clean", "later", "kill"]), st.just(0), st.just("")),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_readers_find_the_last_committed_value_of_each_key(steps: list[tuple[str, int, str | bool]]) -> None:
    """I-T20, over passes at different times, rolls and restarts."""
    disk = FakeDisk()
    log, now = new_log(disk, CONFIG), NOW
    pending: dict[int, dict[str, tuple[int, bytes]]] = {}
    expected: dict[str, tuple[int, bytes]] = {}
    for what, producer, argument in steps:
        if what == "write":
            assert isinstance(argument, str)
            value = f"{argument}{log.log_end_offset}"
            offset = write(log, value, producer=producer, key=argument)
            pending.setdefault(producer, {})[argument] = (offset, value.encode())
        elif what == "end":
            end(log, producer=producer, commit=bool(argument), now=now)
            ended = pending.pop(producer, {})
            for key, found in ended.items() if argument else ():
                expected[key] = max(found, expected.get(key, found))
        else:
            log, now = _do(what, log, disk, now)
    for producer in list(pending):
        end(log, producer=producer, commit=ABORT, now=now)
    clean(log, now=now)

    for reader in (log, reopened(disk, CONFIG)):
        found = committed(reader, reader.log_start_offset, high_watermark=reader.log_end_offset)
        last = {value.decode()[0]: (offset, value) for offset, value in found if value is not None}
        assert last == expected


def _do(what: str, log: Log, disk: FakeDisk, now: int) -> tuple[Log, int]:
    actions: dict[str, Callable[[], None]] = {"roll": log.roll, "clean": lambda: clean(log, now=now)}
    if what in actions:
        actions[what]()
        return log, now
    if what == "later":
        return log, now + 1500
    log.flush()
    return reopened(disk, CONFIG), now
