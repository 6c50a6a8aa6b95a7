"""EndTxn, the partitions before it and the markers after it (§13.4, §13.5)."""

import pytest

from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import MarkersWritten, VerifyResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import FIRST_PRODUCER_ID, Producer, TransactionLog
from tests.coordinator.transactions.test_init_producer_id import exhausted

BOTH = pytest.mark.parametrize("raises_epoch", [False, True], ids=["v4", "v5"])
S = TransactionState


def started(log: TransactionLog, *partitions: int, raises_epoch: bool = False) -> Producer:
    producer = Producer(log, raises_epoch=raises_epoch)
    producer.initialize()
    if partitions:
        assert producer.add(*partitions) is ErrorCode.NONE
    return producer


def ended(log: TransactionLog, *, commit: bool, raises_epoch: bool) -> Producer:
    producer = started(log, 0, raises_epoch=raises_epoch)
    assert producer.end(commit=commit) is ErrorCode.NONE
    log.acknowledge_markers()
    return producer


# Partitions.


def test_a_partition_that_is_registered_is_not_written_again() -> None:
    log = TransactionLog()
    producer = started(log, 0, 1)
    written = len(log.log)

    assert producer.add(1) is ErrorCode.NONE
    assert len(log.log) == written
    assert producer.add(2) is ErrorCode.NONE
    assert log.metadata().partitions == {("t", 0), ("t", 1), ("t", 2)}


def test_only_registered_partitions_are_verified() -> None:
    log = TransactionLog()
    producer = started(log, 0)
    assert producer.missing(0, 1) == VerifyResult(ErrorCode.NONE, frozenset({("t", 1)}))

    log.hold_appends = True
    producer.add(1)

    assert producer.missing(0, 1) == VerifyResult(ErrorCode.NONE, frozenset({("t", 1)}))


@pytest.mark.parametrize("step", [-1, 1])
def test_another_epoch_is_fenced_whether_smaller_or_greater(step: int) -> None:
    log = TransactionLog()
    producer = started(log, 0)
    producer.producer_epoch += step

    assert producer.add(1) is ErrorCode.PRODUCER_FENCED
    assert producer.missing(0) == VerifyResult(ErrorCode.PRODUCER_FENCED)
    assert producer.commit() is ErrorCode.PRODUCER_FENCED


def test_an_unknown_id_and_producer_id_are_refused() -> None:
    log = TransactionLog()
    assert Producer(log).add(0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Producer(log).commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = started(log)
    producer.producer_id += 1
    assert producer.add(0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.missing(0) == VerifyResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# The end.


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_markers_and_a_completion(commit: bool) -> None:
    log = TransactionLog()
    producer = started(log, 0, 3)

    assert producer.end(commit=commit) is ErrorCode.NONE
    assert producer.add(0) is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = log.markers
    assert markers.partitions == (("t", 0), ("t", 3))
    assert (markers.commit, markers.producer_epoch) == (commit, 0)
    log.acknowledge_markers()

    prepared = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    complete = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
    assert log.history() == [S.EMPTY, S.ONGOING, prepared, complete]
    assert producer.pair == (FIRST_PRODUCER_ID, 0)


def test_nothing_is_sent_before_the_decision_is_durable() -> None:
    log = TransactionLog()
    producer = started(log, 0)
    log.hold_appends = True

    assert producer.commit() is None
    assert log.markers == []
    log.complete_append()

    assert log.answers[3].error is ErrorCode.NONE
    assert len(log.markers) == 1


def test_the_completion_waits_for_the_last_marker() -> None:
    log = TransactionLog()
    started(log, 0, 1).commit()
    (asked,) = log.markers

    log.send(MarkersWritten("tx", asked.number, frozenset({("t", 1)})))
    assert log.state() is S.PREPARE_COMMIT
    assert log.describe().partitions == {("t", 0)}
    log.send(MarkersWritten("tx", asked.number, frozenset({("t", 0)})))

    assert log.state() is S.COMPLETE_COMMIT


def test_markers_of_an_earlier_transaction_are_dropped() -> None:
    log = TransactionLog()
    producer = started(log, 0)
    producer.commit()
    late = MarkersWritten("tx", log.markers[0].number, frozenset({("t", 0)}))
    log.acknowledge_markers()
    producer.add(0)
    producer.abort()

    log.send(late)
    log.send(MarkersWritten("other", 1, frozenset({("t", 0)})))

    assert log.state() is S.PREPARE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_by_its_outcome(commit: bool) -> None:
    producer = ended(TransactionLog(), commit=commit, raises_epoch=False)

    assert producer.end(commit=commit) is ErrorCode.NONE
    assert producer.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE


def test_without_a_transaction_nothing_ends_up_to_v4() -> None:
    producer = started(TransactionLog())

    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE


# With the next epoch.


def test_v5_answers_with_the_pair_of_the_next_transaction() -> None:
    log = TransactionLog()
    producer = ended(log, commit=True, raises_epoch=True)

    assert producer.pair == (FIRST_PRODUCER_ID, 1)
    assert producer.add(0) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert (log.markers[0].producer_epoch, log.markers[0].client_version) == (2, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_v5_end_gets_the_same_pair(commit: bool) -> None:
    log = TransactionLog()
    producer = ended(log, commit=commit, raises_epoch=True)
    pair = producer.pair
    producer.producer_epoch -= 1

    assert producer.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE
    assert producer.end(commit=commit) is ErrorCode.NONE
    assert producer.pair == pair


def test_a_late_v5_end_does_not_end_the_next_transaction() -> None:
    log = TransactionLog()
    producer = ended(log, commit=True, raises_epoch=True)
    late = Producer(log, raises_epoch=True)
    late.producer_id, late.producer_epoch = FIRST_PRODUCER_ID, 0
    producer.add(0)

    assert late.commit() is ErrorCode.PRODUCER_FENCED
    assert late.abort() is ErrorCode.PRODUCER_FENCED
    assert log.state() is S.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_v5_end_is_no_repetition_for_who_was_replaced(commit: bool) -> None:
    """The newer producer speaks the older protocol, and its transaction has left the epoch as it is."""
    log = TransactionLog()
    zombie = started(log, raises_epoch=True)
    newer = started(log)
    newer.add(0)
    newer.end(commit=commit)
    log.acknowledge_markers()

    assert zombie.end(commit=commit) is ErrorCode.PRODUCER_FENCED
    assert zombie.pair != newer.pair


def test_v5_aborts_when_nothing_was_registered() -> None:
    log = TransactionLog()
    producer = started(log, raises_epoch=True)

    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.NONE
    assert producer.abort() is ErrorCode.NONE
    assert log.markers == []
    assert producer.pair == (FIRST_PRODUCER_ID, 2)
    assert log.history() == [S.EMPTY, *(2 * [S.PREPARE_ABORT, S.COMPLETE_ABORT])]


def test_v5_rolls_an_exhausted_epoch_over() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)

    assert producer.commit() is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)
    assert (log.markers[0].producer_id, log.markers[0].producer_epoch) == (FIRST_PRODUCER_ID, 32767)
    assert producer.add(0) is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()

    assert producer.add(0) is ErrorCode.NONE


def test_a_rollover_survives_a_failover() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    producer.commit()
    log.elect()
    log.acknowledge_markers()

    assert producer.add(0) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE


def test_a_repeated_end_is_known_across_the_rollover() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    before = producer.pair
    producer.commit()
    log.acknowledge_markers()
    producer.producer_id, producer.producer_epoch = before

    assert producer.commit() is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)


def test_no_producer_id_at_hand_leaves_the_transaction_open() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    log.has_producer_ids = False

    assert producer.commit() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert log.state() is S.ONGOING


# Appends that fail.


@BOTH
def test_an_end_that_is_not_stored_can_be_repeated(raises_epoch: bool) -> None:
    log = TransactionLog()
    producer = started(log, 0, raises_epoch=raises_epoch)
    log.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.fail_appends = None

    assert log.state() is S.ONGOING
    assert producer.commit() is ErrorCode.NONE


@BOTH
def test_a_decision_in_doubt_is_neither_undone_nor_acted_on(raises_epoch: bool) -> None:
    log = TransactionLog()
    producer = started(log, 0, raises_epoch=raises_epoch)
    log.fail_appends = ErrorCode.REQUEST_TIMED_OUT
    assert producer.commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.fail_appends = None

    assert producer.abort() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Producer(log).initialize() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.markers == []
    log.complete_append()

    assert [markers.commit for markers in log.markers] == [True]


def test_a_completion_that_is_not_stored_is_tried_again() -> None:
    log = TransactionLog()
    started(log, 0).commit()
    log.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    log.acknowledge_markers()
    assert log.state() is S.PREPARE_COMMIT
    log.fail_appends = None

    log.advance(100)

    assert log.state() is S.COMPLETE_COMMIT


def test_a_new_id_whose_record_is_not_stored_is_forgotten() -> None:
    log = TransactionLog()
    log.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR

    assert Producer(log).initialize() is ErrorCode.NOT_COORDINATOR
    assert not log.partition.shard.entries


# Failover.


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_leader_writes_all_markers_of_a_decision(commit: bool) -> None:
    log = TransactionLog()
    producer = started(log, 0, 1)
    producer.end(commit=commit)
    log.send(MarkersWritten("tx", log.markers[0].number, frozenset({("t", 0)})))

    log.elect()

    assert [(asked.commit, asked.partitions) for asked in log.markers] == [(commit, (("t", 0), ("t", 1)))]
    assert producer.add(0) is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()
    assert producer.add(0) is ErrorCode.NONE


def test_an_open_transaction_goes_on_with_the_new_leader() -> None:
    log = TransactionLog()
    producer = started(log, 0)

    log.elect()

    assert producer.add(1) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert log.markers[0].partitions == (("t", 0), ("t", 1))


def test_requests_that_wait_are_sent_elsewhere_on_resigning() -> None:
    log = TransactionLog()
    producer = started(log, 0)
    log.hold_appends = True
    producer.commit()

    log.resign()

    assert log.answers[3].error is ErrorCode.NOT_COORDINATOR
    assert producer.add(1) is ErrorCode.NOT_COORDINATOR
    assert log.markers == []
