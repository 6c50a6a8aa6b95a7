"""Of each kind of bad history exactly that kind is found, and nothing in its innocent twin."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.testing.audit.findings import FindingKind
from ottla.testing.audit.history import (
    READ_COMMITTED,
    Aborted,
    Assigned,
    AuditHistory,
    Fell,
    FinalLog,
    Gap,
    Removed,
    SentBatch,
    StoredBatch,
)
from ottla.testing.audit.judge import judge
from tests.audit.building import (
    ADDRESS,
    A,
    B,
    committed,
    delivered,
    history,
    idempotent,
    in_doubt,
    kinds,
    log,
    of_producer,
    sent,
    stored,
)

TWO = (stored(0), stored(1))
TWO_GROUPS = {"g": {"m": ("a", ADDRESS)}, "h": {"n": ("b", ADDRESS)}}


@pytest.mark.parametrize(
    ("batch", "final", "found"),
    [
        (sent(2), log(*TWO), [FindingKind.B1]),
        (sent(1), log(*TWO), []),
        (in_doubt(2), log(*TWO), []),
        (sent(2, answered=11), log(*TWO), []),
        (sent(1), log(stored(0), stored(1, crc=5)), [FindingKind.B1]),
        (sent(1), log(stored(0), stored(1, crc=5), keeps_crcs=False), []),
        (sent(1), log(*TWO, high_watermark=1, last_stable_offset=1), [FindingKind.B1]),
        (sent(1), log(stored(0), stored(2)), [FindingKind.B1]),
        (sent(1), log(stored(0), stored(2), is_compacted=True), []),
        (sent(1, acks=1), log(stored(0), stored(2), has_followers=True), []),
        (sent(1), log(stored(0), stored(2), may_lose=True), []),
        (idempotent(1, 0), log(stored(0), of_producer(1, 1)), [FindingKind.B1]),
        (idempotent(1, 0), log(stored(0), of_producer(1, 0)), []),
        (sent(1), None, []),
    ],
    ids=[
        "it is lost", "it is there", "in doubt", "an answer that may not have left", "another batch is there",
        "the broker stamps batches", "above the high watermark", "a hole", "compaction", "acks=1 with followers",
        "unclean election", "another sequence is there", "the same sequence", "its topic is deleted",
    ],
)  # fmt: skip
def test_what_is_acknowledged_is_in_the_log(batch: SentBatch, final: FinalLog | None, found: list[FindingKind]) -> None:
    assert kinds([batch], final) == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, [FindingKind.B1]),
        ({"deleted_before": 1}, []),
        ({"deleted_before": 0}, [FindingKind.B1]),
        ({"expires_before_ms": 50}, []),
        ({"expires_before_ms": 9}, [FindingKind.B1]),
    ],
    ids=["nothing", "DeleteRecords", "DeleteRecords of what is before", "retention", "retention of what is older"],
)
def test_a_log_begins_later_if_something_deletes(fields: dict[str, Any], found: list[FindingKind]) -> None:
    assert kinds([sent(0, max_timestamp=10)], log(stored(1), log_start_offset=1, **fields)) == found


def test_what_was_there_before_is_not_judged() -> None:
    given = history([sent(0)], log(stored(1)))
    given.partitions[0] = replace(given.partitions[0], begin_offset=1)

    assert judge(given) == []


@pytest.mark.parametrize(
    ("batches", "fields", "found"),
    [
        ((of_producer(0, 0), of_producer(1, 1)), {}, []),
        ((of_producer(0, 0), of_producer(1, 0)), {}, [FindingKind.B2]),
        ((of_producer(0, 0), of_producer(1, 0, epoch=1)), {}, []),
        ((of_producer(0, 5), of_producer(1, 6)), {}, []),
        ((of_producer(0, 0), of_producer(1, 2)), {}, [FindingKind.B3]),
        ((of_producer(0, 1), of_producer(1, 0)), {}, [FindingKind.B3]),
        ((of_producer(0, 0, epoch=1), of_producer(1, 1, epoch=0)), {}, [FindingKind.B3]),
        ((of_producer(0, 2**31 - 1), of_producer(1, 0)), {}, []),
        ((of_producer(0, 0), of_producer(1, 2)), {"forged": {7}}, []),
        ((of_producer(0, 0), of_producer(1, -1, is_control=True), of_producer(2, 1)), {}, []),
    ],
    ids=[
        "in order", "twice", "twice, in epochs", "begins anywhere", "a gap", "the other way round", "an older epoch",
        "wraps", "forged by the test", "a marker between",
    ],
)  # fmt: skip
def test_sequences_are_there_once_in_order(
    batches: tuple[StoredBatch, ...], fields: dict[str, Any], found: list[FindingKind]
) -> None:
    assert kinds([], log(*batches), **fields) == found


def test_sequences_of_forgotten_producers_begin_anywhere() -> None:
    final = log(of_producer(0, 0), of_producer(1, 2))
    given = history([], final)
    given.partitions[0] = replace(given.partitions[0], judges_sequences=False)

    assert judge(given) == []
    assert kinds([], replace(final, is_compacted=True)) == []


def test_numbers_that_one_connection_gets_do_not_fall() -> None:
    fallen = [Fell(0, A, 0, "high watermark", 2, 1)]

    assert kinds([], log(*TWO), fallen=fallen) == [FindingKind.B4]
    assert kinds([], log(*TWO, may_lose=True), fallen=fallen) == []
    assert kinds([], None, fallen=fallen) == [], "its topic is deleted"


@pytest.mark.parametrize(
    ("stretch", "fields", "found"),
    [
        (delivered(0, 2), {}, []),
        (delivered(0, 2, limit=1), {}, [FindingKind.B5]),
        (delivered(0, 3, limit=3), {}, [FindingKind.B5]),
        (delivered(0, 3, limit=3), {"may_lose": True}, []),
        (delivered(0, 2, isolation=READ_COMMITTED, limit=1), {}, [FindingKind.B5]),
    ],
    ids=["all that is there", "above the high watermark", "and gone", "gone in an unclean election", "undecided"],
)
def test_readers_get_what_is_committed(stretch: Any, fields: dict[str, Any], found: list[FindingKind]) -> None:
    assert kinds([], log(*TWO, **fields), deliveries=[stretch]) == found


@pytest.mark.parametrize(
    ("isolation", "listed", "found"),
    [
        (READ_COMMITTED, frozenset(), [FindingKind.B5]),
        (READ_COMMITTED, frozenset({(7, 0)}), []),
        (0, frozenset(), []),
    ],
)
def test_aborted_records_are_listed(
    isolation: int, listed: frozenset[tuple[int, int]], found: list[FindingKind]
) -> None:
    final = log(of_producer(0, 0, is_transactional=True), stored(1, is_control=True), aborted=[Aborted(7, 0, 1)])
    reads = [delivered(0, 2, isolation=isolation, listed=listed)]

    assert kinds([], final, deliveries=reads) == found


def test_what_a_fetch_left_out_is_still_in_the_log() -> None:
    gaps = [Gap(0, A, 0, 0, 1)]
    read = [delivered(1, 2)]

    assert kinds([], log(*TWO), gaps=gaps, deliveries=read) == [FindingKind.B6]
    assert kinds([], log(stored(1)), gaps=gaps, deliveries=read) == [], "it has been deleted or compacted away"


@pytest.mark.parametrize(
    ("commit", "found"),
    [
        (committed(1, generation=1, generation_then=2), [FindingKind.B7]),
        (committed(1, generation=2, generation_then=2), []),
        (committed(1, generation=-1, generation_then=2), []),
    ],
    ids=["of the one before", "of this", "of a tool"],
)
def test_commits_are_of_the_generation(commit: Any, found: list[FindingKind]) -> None:
    assert kinds([], log(*TWO), commits=[commit], deliveries=[delivered(0, 2)]) == found


@pytest.mark.parametrize(
    ("theirs", "fields", "found"),
    [
        (TWO, {}, []),
        ((stored(0), stored(1, crc=5)), {}, [FindingKind.B9]),
        ((stored(0), stored(1, leader_epoch=3)), {}, [FindingKind.B9]),
        ((stored(0),), {}, []),
        ((stored(1),), {"log_start_offset": 1}, []),
        ((stored(0), stored(1, crc=5)), {"is_compacted": True}, []),
    ],
    ids=["alike", "another batch", "another epoch", "it has not caught up", "it deletes earlier", "compacted"],
)
def test_replicas_are_alike(theirs: tuple[StoredBatch, ...], fields: dict[str, Any], found: list[FindingKind]) -> None:
    assert kinds([], log(*TWO, replicas={2: theirs}, **fields)) == found


def test_a_batch_that_is_sent_again_in_doubt_may_be_there_twice() -> None:
    twice = log(stored(0, crc=5), stored(1, crc=5))
    again = sent(1, crc=5)

    assert kinds([in_doubt(0, crc=5), again], twice) == [FindingKind.P1]
    assert kinds([in_doubt(0, crc=5), sent(0, crc=5)], log(stored(0, crc=5))) == [], "it was not written at first"
    assert kinds([sent(0, crc=5), again], twice) == [], "both were acknowledged: the application means it"
    assert kinds([in_doubt(0, crc=5, connection=B), again], twice) == [], "of two clients"
    assert kinds([in_doubt(0, crc=5), again], replace(twice, keeps_crcs=False)) == []


@pytest.mark.parametrize(
    ("offset", "fields", "found"),
    [
        (2, {}, []),
        (3, {}, [FindingKind.P2]),
        (3, {"ends": {(0, ("a", ADDRESS)): 3}}, []),
        (3, {"shared": {("a", ADDRESS)}}, []),
        (3, {"transactional": {"g"}}, []),
        (3, {"set_offsets": {("g", 0): [(1, 3)]}}, []),
        (3, {"set_offsets": {("g", 0): [(3, 3)]}}, [FindingKind.P2]),
    ],
    ids=[
        *("what was delivered", "beyond", "the end, by ListOffsets", "two members alike", "in a transaction"),
        *("where the test has set it", "where the test sets it later"),
    ],
)
def test_commits_are_not_beyond_deliveries(offset: int, fields: dict[str, Any], found: list[FindingKind]) -> None:
    given = {"commits": [committed(offset)], "deliveries": [delivered(0, 2)], **fields}

    assert kinds([], log(*TWO, stored(2)), **given) == [*found, FindingKind.P5]


def test_commits_do_not_go_back_unless_the_client_does() -> None:
    commits = [committed(2, 2), committed(1, 5)]
    read = [delivered(0, 2)]

    assert kinds([], log(*TWO), commits=commits, deliveries=read) == [FindingKind.P3]
    assert kinds([], log(*TWO), commits=commits, deliveries=[*read, delivered(0, 2, number=3)]) == []
    assert kinds([], log(*TWO), commits=commits, deliveries=read, forgotten={"g": 4}) == [], "set by a tool"
    assert kinds([], log(*TWO), commits=commits, deliveries=read, forgotten={"g": 2}) == [], "right after a commit"
    assert kinds([], log(*TWO), commits=[commits[0], commits[1]._replace(generation=-1)], deliveries=read) == []


def test_what_is_not_committed_comes_to_the_next_member() -> None:
    reads = [delivered(0, 2), delivered(0, 2, connection=B, number=5)]
    members = {"g": {"m": ("a", ADDRESS), "n": ("b", ADDRESS)}}

    assert kinds([], log(*TWO), deliveries=reads, members=members) == [FindingKind.P4]
    assert kinds([], log(*TWO), deliveries=reads, members=members, commits=[committed(2)]) == []
    assert kinds([], log(*TWO), deliveries=reads, members=members, commits=[committed(1)]) == [FindingKind.P4]
    assert (
        kinds([], log(*TWO), deliveries=reads, members={"g": {"m": ("a", ADDRESS)}, "h": {"n": ("b", ADDRESS)}}) == []
    )
    assert kinds([], log(*TWO), deliveries=reads, members=members, shared={("a", ADDRESS)}) == []


def test_records_are_consumed_where_a_client_consumes() -> None:
    assert kinds([], log(*TWO), deliveries=[delivered(0, 1)]) == [FindingKind.P5]
    assert kinds([], log(*TWO), deliveries=[delivered(0, 2)]) == []
    assert kinds([], log(*TWO)) == [], "no client reads the topic"
    assert kinds([], log(stored(0), stored(1, is_control=True)), deliveries=[delivered(0, 1)]) == []


def test_a_transaction_is_not_left_open() -> None:
    assert kinds([], log(*TWO, last_stable_offset=1)) == [FindingKind.P6]


def test_a_member_is_removed_for_its_silence() -> None:
    removed = [Removed("g", "m", ("a", ADDRESS), "session expired")]

    assert kinds(removed=removed) == [FindingKind.P7]


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([sent(-1, error=18)], [FindingKind.P8]),
        ([sent(-1, error=18), sent(-1, error=18, crc=7)], [FindingKind.P8]),
        ([sent(-1, error=6)], []),
        ([sent(-1, error=18, crc=5), sent(0, crc=5)], []),
        ([sent(-1, error=18, crc=5), in_doubt(0, crc=5)], []),
        ([sent(0)], []),
    ],
    ids=["for good", "two, reported as one", "to be tried again", "and then taken", "and then in doubt", "taken"],
)
def test_records_are_refused_for_good(batches: list[SentBatch], found: list[FindingKind]) -> None:
    assert kinds(batches, log(stored(0, crc=batches[-1].crc))) == found


@pytest.mark.parametrize(
    ("members", "protocol", "found"),
    [
        ({"m": {"t": (0,)}, "n": {"t": (1,)}}, "range", []),
        ({"m": {"t": (0, 1)}, "n": {"t": (1,)}}, "range", [FindingKind.P9]),
        ({"m": {"t": (0,)}, "n": {}}, "range", [FindingKind.P9]),
        ({"m": {"t": (0,)}, "n": {}}, "cooperative-sticky", []),
    ],
    ids=["each one", "one twice", "one left", "one left for the next generation"],
)
def test_partitions_are_assigned_once(members: Any, protocol: str, found: list[FindingKind]) -> None:
    assigned = [Assigned("g", 1, protocol, members)]

    assert kinds(assigned=assigned, partition_counts={"t": 2}) == found


def test_unassigned_partitions_count_in_the_last_generation() -> None:
    first = Assigned("g", 1, "range", {"m": {"t": (0,)}})
    second = Assigned("g", 2, "range", {"m": {"t": (0, 1)}})

    assert kinds(assigned=[first, second], partition_counts={"t": 2}) == []


def test_a_finding_has_its_events() -> None:
    given: AuditHistory = history([sent(2, at_ns=1_500_000)], log(*TWO))

    (finding,) = judge(given)

    assert finding.lines() == [
        "B1 t-0: offsets 2 to 2 are acknowledged, and the high watermark is 2",
        "    +1.5 ms  a  Produce t-0 crc 00000066, 1 records: offsets 2 to 2",
    ]
