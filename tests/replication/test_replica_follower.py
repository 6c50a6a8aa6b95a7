"""A follower's decisions: §14.4, §14.5.3, §14.5.4, R02, R04."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.follower_log import perform
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.replication.follower_effects import BackedOff, Effect, Failed, Fenced, Fetched, Restarted, Truncated
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import (
    BACK_OFF_MS_FIRST,
    EpochRequest,
    FollowerState,
    OffsetRequest,
    ReplicaFollower,
)
from ottla.storage.leader_epoch_cache import UNKNOWN_OFFSET
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, TOPIC_ID, append, batch, new_log

LEADER, HERE = 1, 2


def follower_with(*epochs: int, high_watermark: int = 0, term: int = 9) -> ReplicaFollower:
    """A follower whose log has one record of each of these epochs."""
    log = new_log(FakeDisk())
    for epoch in epochs:
        append(log, batch("x"), leader_epoch=epoch)
    partition = Partition("t", 0, TOPIC_ID, log, local_id=HERE, high_watermark=high_watermark)
    partition.apply_state(
        leader=LEADER, leader_epoch=term, partition_epoch=term, replicas=(LEADER, HERE), isr=(LEADER,), now_ms=0
    )
    follower = ReplicaFollower(partition, back_off_ms_max=1000)
    assert performed(follower, follower.start()) == []
    return follower


def performed(follower: ReplicaFollower, effects: list[Effect]) -> list[Any]:
    """What has happened when the shell has done its part."""
    return perform(effects, follower.performed, now_ms=0, wall_ms=NOW)


def answer(follower: ReplicaFollower, **fields: Any) -> list[Any]:
    defaults = {"error_code": 0, "diverging_epoch": None, "records": b"", "high_watermark": 0, "log_start_offset": 0}
    response = SimpleNamespace(**defaults | fields)
    effects = follower.handle_response(follower.request(), response, now_ms=0)
    assert effects is not None, "the response to what it asks for now counts"
    return performed(follower, effects)


def ended(follower: ReplicaFollower, epoch: int, end_offset: int) -> list[Any]:
    return answer(follower, leader_epoch=epoch, end_offset=end_offset)


def fetching(*epochs: int, **fields: int) -> ReplicaFollower:
    follower = follower_with(*epochs, **fields)
    if epochs:
        ended(follower, epochs[-1], len(epochs))
    assert follower.state is FollowerState.FETCHING
    return follower


def data(offset: int, epoch: int) -> memoryview:
    view = memoryview(bytearray(batch("y")))
    assign_offset_and_epoch(view, 0, offset, epoch)
    return view


def test_log_with_epochs_is_reconciled_first_one_without_fetches() -> None:
    """R02"""
    assert follower_with(3, 5).request() == EpochRequest(leader_epoch=5, current_leader_epoch=9)
    assert follower_with().request() == (0, 0, 9, -1)


def test_log_without_epochs_is_truncated_to_the_high_watermark() -> None:
    """§14.4.1"""
    log = new_log(FakeDisk())
    append(log, batch("x"), batch("x"), batch("x"))
    log.epochs.clear()
    partition = Partition("t", 0, TOPIC_ID, log, local_id=HERE, high_watermark=2)
    follower = ReplicaFollower(partition, back_off_ms_max=1000)

    assert performed(follower, follower.start()) == [Truncated(partition, 3, 2)]
    assert follower.position().fetch_offset == 2


# The log of the follower:   offset 0 1 2 3 4   of epochs   1 1 3 3 6
EPOCHS = (1, 1, 3, 3, 6)


@pytest.mark.parametrize(
    ("leaders", "high_watermark", "end", "state"),
    [
        pytest.param((-1, UNKNOWN_OFFSET), 2, 2, FollowerState.FETCHING, id="end undefined: the high watermark"),
        pytest.param((-1, 3), 0, 3, FollowerState.FETCHING, id="epoch undefined: the leader's end"),
        pytest.param((-1, 30), 0, 5, FollowerState.FETCHING, id="epoch undefined: the own end"),
        pytest.param((6, 5), 0, 5, FollowerState.FETCHING, id="the same epoch and end: nothing"),
        pytest.param((6, 9), 0, 5, FollowerState.FETCHING, id="the leader has more of it: nothing"),
        pytest.param((3, 3), 0, 3, FollowerState.FETCHING, id="the leader has less of an earlier epoch"),
        pytest.param((3, 8), 0, 4, FollowerState.FETCHING, id="the leader has more of an earlier epoch"),
        pytest.param((4, 4), 0, 4, FollowerState.TRUNCATING, id="an epoch we have not: ask again with 3"),
        pytest.param((2, 2), 0, 2, FollowerState.TRUNCATING, id="an epoch we have not: ask again with 1"),
        pytest.param((0, 0), 0, 0, FollowerState.FETCHING, id="we have no epoch as old: the leader's end"),
    ],
)
def test_where_to_truncate(leaders: tuple[int, int], high_watermark: int, end: int, state: FollowerState) -> None:
    """§14.5.3, R04"""
    follower = follower_with(*EPOCHS, high_watermark=high_watermark)

    ended(follower, *leaders)

    assert (follower.partition.log.log_end_offset, follower.state) == (end, state)


def test_next_epoch_request_has_the_largest_epoch_left() -> None:
    """T-15"""
    follower = follower_with(*EPOCHS)

    ended(follower, 5, 5)
    assert follower.request() == EpochRequest(3, 9)
    ended(follower, 2, 4)
    assert follower.request() == EpochRequest(1, 9)
    ended(follower, 1, 1)

    assert follower.request() == (1, 0, 9, 1)


def test_divergence_in_a_fetch_brings_no_high_watermark() -> None:
    """§14.5.1"""
    follower = fetching(*EPOCHS)

    facts = answer(follower, diverging_epoch=SimpleNamespace(epoch=3, end_offset=3), high_watermark=3)

    assert facts == [Truncated(follower.partition, 5, 0)]
    assert follower.position()[:1] == (3,)
    assert follower.partition.high_watermark == 0


def test_high_watermark_of_a_response_is_bound_by_the_log_end() -> None:
    """§14.4.4"""
    follower = fetching(1)

    facts = answer(follower, records=data(1, 4), high_watermark=30)

    partition = follower.partition
    assert facts == [Fetched(partition, len(data(1, 4)), high_watermark_rose=True)]
    assert (partition.high_watermark, follower.position()) == (2, (2, 0, 9, 4))


def test_lower_high_watermark_of_a_new_leader_is_ignored() -> None:
    follower = fetching(1, 1, high_watermark=2)

    assert answer(follower, high_watermark=0) == []
    assert follower.partition.high_watermark == 2


def test_the_log_start_follows_the_leaders() -> None:
    follower = fetching(1, 1, 1)

    answer(follower, high_watermark=3, log_start_offset=2)

    assert follower.partition.log.log_start_offset == 2


def test_an_answer_to_a_question_of_an_earlier_term_is_dropped() -> None:
    """§14.5.5"""
    follower = follower_with(*EPOCHS)
    request = follower.request()
    follower.partition.apply_state(
        leader=3, leader_epoch=10, partition_epoch=10, replicas=(LEADER, HERE, 3), isr=(3,), now_ms=0
    )

    late = SimpleNamespace(error_code=0, leader_epoch=1, end_offset=1)

    assert follower.handle_response(request, late, now_ms=0) is None
    assert follower.partition.log.log_end_offset == 5


def test_an_answer_for_another_offset_is_dropped() -> None:
    """§14.4.3"""
    follower = fetching(1)
    old = follower.position()
    first = SimpleNamespace(
        error_code=0, diverging_epoch=None, records=data(1, 4), high_watermark=0, log_start_offset=0
    )
    performed(follower, follower.handle_response(old, first, now_ms=0) or [])

    assert follower.handle_response(old, first, now_ms=0) is None
    assert follower.partition.log.log_end_offset == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_most_errors_pass(code: ErrorCode) -> None:
    """§14.4.5"""
    follower = fetching(1)

    assert [(type(fact), fact.error) for fact in answer(follower, error_code=int(code))] == [(BackedOff, code)]
    assert not follower.is_ready(BACK_OFF_MS_FIRST - 1)
    assert follower.is_ready(BACK_OFF_MS_FIRST)


def test_the_back_off_grows_to_its_limit_and_ends_with_a_success() -> None:
    follower = fetching(1)
    rests = [answer(follower, error_code=6)[0].until_ms for _ in range(8)]

    assert rests == [25, 50, 100, 200, 400, 800, 1000, 1000]
    answer(follower)
    assert answer(follower, error_code=6)[0].until_ms == 25


def test_a_fenced_follower_asks_for_nothing() -> None:
    follower = fetching(1)

    assert answer(follower, error_code=int(ErrorCode.FENCED_LEADER_EPOCH)) == [Fenced(follower.partition)]
    assert not follower.is_ready(10**9)


def test_damaged_records_are_never_appended() -> None:
    follower = fetching(1)
    records = data(1, 4)
    records[-1] ^= 1

    assert [type(fact) for fact in answer(follower, records=records)] == [BackedOff]
    assert follower.partition.log.log_end_offset == 1


def test_a_disk_that_fails_stops_the_partition() -> None:
    follower = fetching(1)
    follower.partition.log.files.fail("writev", OSError(28, "full"))

    assert [type(fact) for fact in answer(follower, records=data(1, 4))] == [Failed]
    assert not follower.is_ready(10**9)


def out_of_range(follower: ReplicaFollower) -> ReplicaFollower:
    answer(follower, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert follower.request() == OffsetRequest(-1, 9)
    return follower


def test_shorter_log_of_leader_truncates_and_reports_the_loss() -> None:
    """§14.5.4"""
    follower = out_of_range(fetching(1, 1, 1, high_watermark=3))

    (fact,) = answer(follower, offset=1)

    assert fact.lost_committed
    assert (follower.position().fetch_offset, follower.partition.high_watermark) == (1, 1)


def test_leader_that_deleted_all_records_restarts_the_log() -> None:
    follower = out_of_range(fetching(1, 1))

    assert answer(follower, offset=100) == []
    assert follower.request() == OffsetRequest(-2, 9)
    assert answer(follower, offset=90) == [Restarted(follower.partition, 2)]
    assert follower.position() == (90, 90, 9, -1)


def written_by_a_producer(*, high_watermark: int) -> ReplicaFollower:
    """A follower with one batch, of epoch 1, which its present leader accepts."""
    follower = follower_with(high_watermark=high_watermark)
    append(follower.partition.log, batch("x", producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=1)
    follower.partition.high_watermark = high_watermark
    return follower


@pytest.mark.parametrize("records", [b"", data(1, 4)], ids=["nothing follows", "records follow"])
def test_batch_below_the_leaders_start_is_forgotten_if_in_doubt(records: bytes | memoryview) -> None:
    """§14.5.4: a replaced leader wrote it. Its repetition is not stored already, wherever this replica leads."""
    follower = written_by_a_producer(high_watermark=0)

    facts = answer(follower, records=records, high_watermark=1, log_start_offset=1)

    assert facts == [Restarted(follower.partition, 1)]
    assert (dict(follower.partition.log.producers.states), follower.position()) == ({}, (1, 1, 9, -1))
    answer(follower, records=data(1, 4), high_watermark=2, log_start_offset=1)
    assert (follower.position(), follower.partition.high_watermark) == ((2, 1, 9, 4), 2)


@pytest.mark.parametrize(
    ("high_watermark", "starts"),
    [
        pytest.param(1, [1], id="known to be committed"),
        pytest.param(0, [0, 1], id="compared before the leader deleted it"),
    ],
)
def test_batch_below_the_leaders_start_is_remembered(high_watermark: int, starts: list[int]) -> None:
    follower = written_by_a_producer(high_watermark=high_watermark)

    for start in starts:
        answer(follower, high_watermark=start, log_start_offset=start)

    assert (list(follower.partition.log.producers.states), follower.position()) == ([7], (1, 1, 9, 1))


def test_offset_that_the_leader_has_after_all_backs_off() -> None:
    follower = out_of_range(fetching(1, 1))

    answer(follower, offset=100)

    assert [type(fact) for fact in answer(follower, offset=0)] == [BackedOff]
    assert follower.position().fetch_offset == 2
