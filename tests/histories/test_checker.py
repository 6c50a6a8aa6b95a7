"""Good histories are found good, and of each kind of bad history exactly that kind is found."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories.checker import Kind, check
from tests.histories.events import (
    NONE_COMMITTED,
    Acknowledged,
    CommitAcknowledged,
    CommitRead,
    CommitRefused,
    CommitSent,
    EndSeen,
    Event,
    FinalLog,
    Read,
    Refused,
    Sent,
)
from tests.histories.perfect import PerfectCluster

HERE = ("t", 0)


def sent(value: str, number: int, at_us: int = 0, **fields: object) -> Sent:
    return replace(Sent(at_us, "p", "t", 0, number, value), **fields)  # type: ignore[arg-type]


def acked(value: str, offset: int, at_us: int = 10) -> Acknowledged:
    return Acknowledged(at_us, value, offset)


def read(value: str, offset: int, at_us: int = 20, session: int = 0) -> Read:
    return Read(at_us, "c", session, "t", 0, offset, value)


def end(offset: int, sent_us: int, at_us: int, client: str = "c") -> EndSeen:
    return EndSeen(sent_us, at_us, client, "t", 0, offset)


def commit(commit_id: str, offset: int, at_us: int) -> CommitSent:
    return CommitSent(at_us, "g", "t", 0, offset, commit_id)


def committed(commit_id: str | None, offset: int, sent_us: int, at_us: int) -> CommitRead:
    return CommitRead(sent_us, at_us, "g", "t", 0, offset, commit_id)


def kinds(events: list[Event], *values: str, log_start_offset: int = 0) -> set[Kind]:
    """Of what is wrong where the final log holds `values`, an empty text standing for no record."""
    stored = tuple((offset, value) for offset, value in enumerate(values, log_start_offset) if value)
    return {found.kind for found in check(events, {HERE: FinalLog(log_start_offset, stored)})}


THREE: list[Event] = [sent("a", 0), sent("b", 1), sent("c", 2), acked("a", 0), acked("b", 1), acked("c", 2)]


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_history_of_a_perfect_cluster_is_good_in_any_order(seed: int, steps: int) -> None:
    cluster = PerfectCluster(seed).run(steps)
    by_client = sorted(cluster.events, key=lambda event: (type(event).__name__, getattr(event, "consumer", "")))

    assert check(cluster.events, cluster.final_logs) == []
    assert check(by_client, cluster.final_logs) == []


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    assert kinds(THREE, "a", "b") == {Kind.LOST}
    assert kinds([*THREE[:2], acked("a", 0), acked("b", 0)], "b") == {Kind.LOST}, "another took its place"
    assert kinds([sent("a", 0), acked("a", -1)]) == {Kind.LOST}, "its offset is not known"


def test_a_partition_without_a_final_log_has_lost_all() -> None:
    assert {found.kind for found in check(THREE, {})} == {Kind.LOST}


def test_a_record_in_doubt_may_be_there_or_not() -> None:
    assert kinds([sent("a", 0)], "a") == set()
    assert kinds([sent("a", 0)]) == set()


def test_what_the_leader_alone_acknowledged_may_be_gone() -> None:
    assert kinds([sent("a", 0, acks=1), acked("a", 0)]) == set()


def test_what_retention_removed_is_not_lost() -> None:
    assert kinds([*THREE, read("a", 0)], "b", "c", log_start_offset=1) == set()


def test_a_record_at_two_offsets_is_duplicated() -> None:
    assert kinds(THREE, "a", "b", "c", "b") == {Kind.DUPLICATED}
    assert kinds([sent("a", 0)], "a", "a") == {Kind.DUPLICATED}, "in doubt, it may be there once"


@pytest.mark.parametrize(
    ("writers", "found"),
    [
        ({0: (7, 0), 1: (7, 1)}, set()),
        ({0: (7, 0), 1: (7, 0)}, {Kind.DUPLICATED}),
        ({0: (7, 0), 1: (8, 1)}, {Kind.DUPLICATED}),
        ({0: (7, 0)}, {Kind.DUPLICATED}),
    ],
)
def test_producer_may_repeat_a_record_in_a_new_epoch(writers: dict[int, tuple[int, int]], found: set[Kind]) -> None:
    log = FinalLog(0, ((0, "a"), (1, "a")), writers)

    assert {violation.kind for violation in check([sent("a", 0)], {HERE: log})} == found


def test_producer_without_idempotence_may_duplicate_and_reorder() -> None:
    one, two = sent("a", 0, idempotent=False), sent("b", 1, idempotent=False)
    assert kinds([one, two, acked("a", 1)], "b", "a", "b") == set()


def test_records_of_one_producer_in_another_order_are_reordered() -> None:
    assert kinds([*THREE[:2], acked("b", 0), acked("a", 1)], "b", "a") == {Kind.REORDERED}
    assert kinds([*THREE[:2]], "b", "a") == {Kind.REORDERED}, "in doubt too"


def test_record_sent_after_an_acknowledgement_is_stored_later() -> None:
    early, late = sent("a", 0, at_us=0), sent("b", 0, at_us=11, producer="q")
    acknowledgements: list[Event] = [acked("b", 0, at_us=20), acked("a", 1, at_us=10)]

    assert kinds([early, late, *acknowledgements], "b", "a") == {Kind.REORDERED}
    assert kinds([early, replace(late, at_us=10), *acknowledgements], "b", "a") == set(), "they were under way together"


def test_a_record_elsewhere_than_acknowledged_or_read_has_moved() -> None:
    assert kinds([sent("a", 0), sent("b", 1), acked("b", 0)], "a", "b") == {Kind.MOVED}
    assert kinds([sent("a", 0), sent("b", 1), read("b", 0)], "a", "b") == {Kind.MOVED}
    assert kinds([sent("a", 0), acked("a", 0), acked("a", 1)], "a") == {Kind.MOVED}, "acknowledged at two offsets"


def test_record_that_was_read_and_is_not_stored_has_vanished() -> None:
    assert kinds([sent("a", 0), read("a", 0)]) == {Kind.VANISHED}


def test_record_that_was_not_sent_is_invented() -> None:
    assert kinds([], "a") == {Kind.INVENTED}
    assert kinds([read("a", 0)]) == {Kind.INVENTED}
    assert kinds([sent("a", 0, partition=1)], "a") == {Kind.INVENTED}, "not to this partition"


def test_a_refused_record_may_not_be_there() -> None:
    assert kinds([sent("a", 0), Refused(5, "a")], "a") == {Kind.REFUSED_BUT_WRITTEN}
    assert kinds([sent("a", 0), Refused(5, "a")]) == set()


def test_an_offset_without_a_record_is_a_hole() -> None:
    assert kinds([sent("a", 0), sent("b", 1)], "a", "", "b") == {Kind.HOLE}
    assert kinds([sent("b", 1)], "", "b") == {Kind.HOLE}, "at the start of the log"


def test_offsets_of_a_consumer_are_consecutive_until_it_seeks() -> None:
    stored = "a", "b", "c"
    assert kinds([*THREE, read("a", 0), read("c", 2, at_us=21)], *stored) == {Kind.SKIPPED}
    assert kinds([*THREE, read("b", 1), read("a", 0, at_us=21)], *stored) == {Kind.SKIPPED}, "back"
    assert kinds([*THREE, read("a", 0), read("c", 2, at_us=21, session=1)], *stored) == set()


def test_end_that_a_client_sees_never_falls() -> None:
    stored = "a", "b", "c"
    assert kinds([*THREE, end(3, 10, 11), end(2, 12, 13)], *stored) == {Kind.END_FELL}
    assert kinds([*THREE, end(3, 10, 12), end(2, 12, 13)], *stored) == set(), "asked together"
    assert kinds([*THREE, end(3, 10, 11), end(2, 12, 13, client="d")], *stored) == set()
    assert kinds([*THREE, end(4, 10, 11)], *stored) == {Kind.END_FELL}, "the final log ends before"


def test_none_committed_after_an_acknowledged_commit_is_a_loss() -> None:
    none = committed("", NONE_COMMITTED, 10, 11)
    assert kinds([commit("x", 5, 0), CommitAcknowledged(1, "x"), none]) == {Kind.COMMIT_LOST}
    assert kinds([commit("x", 5, 0), committed("x", 5, 1, 2), none]) == {Kind.COMMIT_LOST}, "it had been read"
    assert kinds([commit("x", 5, 0), none]) == set(), "in doubt"
    assert kinds([commit("x", 5, 0), CommitAcknowledged(10, "x"), none]) == set(), "under way together"


def test_an_older_commit_read_after_a_later_one_is_a_move_back() -> None:
    older: list[Event] = [commit("x", 5, 0), CommitAcknowledged(1, "x")]
    later: list[Event] = [commit("y", 6, 2), CommitAcknowledged(3, "y")]

    assert kinds([*older, *later, committed("x", 5, 4, 5)]) == {Kind.COMMIT_MOVED_BACK}
    assert kinds([*older, *later, committed("x", 5, 3, 5)]) == set(), "asked before the answer"
    assert kinds([*older, later[0], committed("y", 6, 4, 5), committed("x", 5, 6, 7)]) == {Kind.COMMIT_MOVED_BACK}
    assert kinds([*older, later[0], committed("x", 5, 4, 5), committed("y", 6, 6, 7)]) == set(), "late, but applied"


def test_a_commit_to_a_smaller_offset_is_no_move_back() -> None:
    events: list[Event] = [commit("x", 5, 0), CommitAcknowledged(1, "x"), commit("y", 2, 2), CommitAcknowledged(3, "y")]
    assert kinds([*events, committed("y", 2, 4, 5)]) == set()


def test_offset_without_commit_id_means_its_only_commit() -> None:
    older: list[Event] = [commit("x", 5, 0), CommitAcknowledged(1, "x")]
    later: list[Event] = [commit("y", 6, 2), CommitAcknowledged(3, "y")]
    untold = committed(None, 5, 8, 9)

    assert kinds([*older, untold]) == set()
    assert kinds([*older, *later, untold]) == {Kind.COMMIT_MOVED_BACK}
    assert kinds([*older, committed(None, NONE_COMMITTED, 8, 9)]) == {Kind.COMMIT_LOST}
    assert kinds([*older, *later, commit("z", 5, 4), untold]) == set(), "it may be the last"
    assert kinds([*later, untold]) == {Kind.COMMIT_INVENTED}


@pytest.mark.parametrize(
    "events",
    [
        [committed("x", 5, 4, 5)],
        [commit("x", 6, 0), committed("x", 5, 4, 5)],
        [commit("x", 5, 0), CommitRefused(1, "x"), committed("x", 5, 4, 5)],
        [commit("x", 5, 6), committed("x", 5, 4, 5)],
    ],
    ids=["never made", "another offset", "refused", "read before it was made"],
)
def test_a_commit_that_was_not_made_so_is_invented(events: list[Event]) -> None:
    assert kinds(events) == {Kind.COMMIT_INVENTED}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_acknowledged_record_cut_from_a_logs_end_is_lost(seed: int) -> None:
    """With the reads and ends that depend on it, whatever else the history holds."""
    cluster = PerfectCluster(seed).run(200)
    durable = {event.value for event in cluster.events if isinstance(event, Acknowledged)}
    partitions = [partition for partition, values in cluster.logs.items() if values and values[-1] in durable]
    if not partitions:
        return
    cluster.logs[random.Random(seed).choice(partitions)].pop()

    found = {violation.kind for violation in check(cluster.events, cluster.final_logs)}

    assert Kind.LOST in found
    assert found <= {Kind.LOST, Kind.VANISHED, Kind.END_FELL}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_first_of_two_acknowledged_commits_is_not_read_last(seed: int) -> None:
    cluster = PerfectCluster(seed).run(100)
    now_us = cluster.now_us + 1
    first: list[Event] = [commit("first", 5, now_us), CommitAcknowledged(now_us + 1, "first")]
    second: list[Event] = [commit("second", 6, now_us + 2), CommitAcknowledged(now_us + 3, "second")]
    stale = committed("first", 5, now_us + 4, now_us + 5)

    found = check([*cluster.events, *first, *second, stale], cluster.final_logs)

    assert [violation.kind for violation in found] == [Kind.COMMIT_MOVED_BACK]
