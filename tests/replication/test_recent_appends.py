"""What was appended last is given to followers from memory, and is what the log has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.recent_appends import COPIED_BYTES_MAX, HELD_BYTES_MAX, RecentAppends
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.replication.recent import PLENTY, append_and_record, as_in_log, as_sent
from tests.storage.support import append, batch, new_log

LONG = "x" * COPIED_BYTES_MAX


@pytest.fixture
def log() -> Log:
    log = new_log(FakeDisk())
    append(log, batch("a"), batch("b"))
    return log


def test_a_short_append_is_copied_for_its_buffer_is_used_again(log: Log) -> None:
    recent = RecentAppends()
    received = [batch("d"), batch("e")]

    begin = append_and_record(recent, log, *received)
    for view in received:
        view[:] = bytes(len(view))

    assert as_sent(recent.read(log, begin, PLENTY)) == as_in_log(log, begin)


def test_long_batch_stays_in_its_buffer_short_ones_are_copied(log: Log) -> None:
    """A short one may lie in a buffer that is used again, whatever else was appended to the log since."""
    recent = RecentAppends()
    received = [batch("c"), batch("d"), batch(LONG), batch("e"), batch(LONG), batch(LONG), batch("f")]

    begin = append_and_record(recent, log, *received)
    for view in (received[0], received[1], received[3], received[6]):
        view[:] = bytes(len(view))

    found = recent.read(log, begin, PLENTY)
    assert as_sent(found) == as_in_log(log, begin)
    assert [view.obj is one.obj for view in found for one in received].count(True) == 3
    assert as_sent(recent.read(log, begin + 4, PLENTY)) == as_in_log(log, begin + 4)


def test_short_batches_are_copied_in_pieces_that_fit_a_response(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, *[batch("x" * 1000) for _ in range(100)])

    found = recent.read(log, begin, 2 * COPIED_BYTES_MAX)

    assert len(as_sent(found)) > COPIED_BYTES_MAX
    assert as_in_log(log, begin).startswith(as_sent(found))
    assert as_sent(recent.read(log, begin, PLENTY)) == as_in_log(log, begin)
    assert recent.held_bytes == len(as_in_log(log, begin))


def test_a_buffer_is_held_once_for_all_the_batches_in_it(log: Log) -> None:
    recent = RecentAppends()
    one = batch(LONG)
    buffer = memoryview(bytearray(5 * len(one)))
    views = [buffer[number * len(one) :][: len(one)] for number in range(3)]
    for view in views:
        view[:] = batch(LONG)

    begin = append_and_record(recent, log, *views)

    assert recent.held_bytes == len(buffer)
    recent.passed(log, begin + 2)
    assert recent.held_bytes == len(buffer)
    recent.passed(log, begin + 3)
    assert recent.held_bytes == 0


def test_appends_that_follow_each_other_are_given_together(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch("d"))
    second = append_and_record(recent, log, batch(LONG), batch(LONG))
    append_and_record(recent, log, batch("f"))

    assert as_sent(recent.read(log, begin, PLENTY)) == as_in_log(log, begin)
    assert as_sent(recent.read(log, second + 1, PLENTY)) == as_in_log(log, second + 1)


def test_no_more_is_given_than_fits(log: Log) -> None:
    recent = RecentAppends()
    one = batch(LONG)
    size = len(one)
    begin = append_and_record(recent, log, one, batch(LONG), batch(LONG))

    assert as_sent(recent.read(log, begin, 3 * size - 1)) == as_in_log(log, begin, 3 * size - 1)
    assert len(recent.read(log, begin, 3 * size - 1)) == 2
    assert recent.read(log, begin, size - 1) == []


def test_appends_that_were_not_recorded_are_not_skipped(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch("d"))
    append(log, batch("nothing is sent"))
    later = append_and_record(recent, log, batch("f"))

    assert recent.read(log, begin, PLENTY) == []
    assert as_sent(recent.read(log, later, PLENTY)) == as_in_log(log, later)


def test_an_offset_within_a_batch_is_left_to_the_log(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch("d", "e"))

    assert recent.read(log, begin + 1, PLENTY) == []


def test_records_that_were_cut_off_are_not_given_out(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch("d"))

    log.truncate_to(begin)
    append(log, batch("other"))

    assert recent.read(log, begin, PLENTY) == []


def test_what_the_isr_has_is_let_go(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch(LONG), batch(LONG))
    append_and_record(recent, log, batch(LONG))
    append_and_record(recent, log, batch("g"))

    recent.passed(log, begin + 3)

    assert recent.read(log, begin, PLENTY) == []
    assert as_sent(recent.read(log, begin + 3, PLENTY)) == as_in_log(log, begin + 3)
    recent.passed(log, begin + 4)
    assert recent.held_bytes == 0


def test_a_batch_that_the_isr_has_in_part_is_kept(log: Log) -> None:
    recent = RecentAppends()
    begin = append_and_record(recent, log, batch("d", "e"))

    recent.passed(log, begin + 1)

    assert as_sent(recent.read(log, begin, PLENTY)) == as_in_log(log, begin)


def test_cache_of_all_logs_is_bounded_and_drops_the_oldest_first() -> None:
    """A part of a buffer holds the whole buffer."""
    recent = RecentAppends()
    third = HELD_BYTES_MAX // 3
    logs = [new_log(FakeDisk(), topic=f"t{number}") for number in range(4)]
    for log in logs:
        view = batch(LONG)
        buffer = memoryview(bytearray(third))
        buffer[: len(view)] = view
        append_and_record(recent, log, buffer[: len(view)])

    assert [bool(recent.read(log, 0, PLENTY)) for log in logs] == [False, True, True, True]
    assert recent.held_bytes <= HELD_BYTES_MAX


def test_a_batch_that_is_too_large_is_not_held() -> None:
    recent, log = RecentAppends(), new_log(FakeDisk(), LogConfig(max_message_bytes=2 * HELD_BYTES_MAX))
    begin = append_and_record(recent, log, batch("x" * HELD_BYTES_MAX))

    assert recent.read(log, begin, PLENTY) == []
    assert recent.held_bytes == 0


@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.sampled_from(["a", "b" * 5000, LONG]), min_size=1, max_size=3),
            st.sampled_from(["nothing is sent", "cut"]),
            st.integers(min_value=0, max_value=12),
        ),
        max_size=12,
    ),
    offset=st.integers(min_value=0, max_value=20),
    max_bytes=st.integers(min_value=0, max_value=3 * COPIED_BYTES_MAX),
)
def test_what_is_given_is_what_the_log_would_give(
    steps: list[list[str] | str | int], offset: int, max_bytes: int
) -> None:
    recent, log = RecentAppends(), new_log(FakeDisk())
    for step in steps:
        if isinstance(step, list):
            append_and_record(recent, log, *map(batch, step))
        elif isinstance(step, int):
            recent.passed(log, min(step, log.log_end_offset))
        elif step == "cut":
            log.truncate_to(log.log_end_offset // 2)
        else:
            append(log, batch(step))

    found = as_sent(recent.read(log, offset, max_bytes))

    assert len(found) <= max_bytes
    assert not found or as_in_log(log, offset, max_bytes).startswith(found)
