"""A transaction that fills its record to the last byte, or more than that, is ended all the same (§13.9)."""

from itertools import count

import pytest

from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.transactions.entry import EPOCH_MAX, TransactionMetadata, TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import Producer, TransactionLog, batch_bytes

BOUND_BYTES = 1000
NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR


def filled(log: TransactionLog, *, topic: str = "t", raises_epoch: bool = False) -> Producer:
    """Partitions are added one by one until one is refused."""
    producer = Producer(log, raises_epoch=raises_epoch)
    assert producer.initialize() is NONE
    fill(producer, topic)
    return producer


def fill(producer: Producer, topic: str = "t") -> None:
    log = producer.log
    log.batch_bytes_max = BOUND_BYTES
    for index in count():
        code = producer.add(index, topic=topic)
        if code is not NONE:
            assert (code, index > 100) == (TOO_LARGE, True)
            break


def largest_batch(log: TransactionLog) -> int:
    return max(batch_bytes(batch.records) for batch in log.log)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("later_level", [0, 1, 2])
def test_a_full_transaction_is_aborted_after_its_timeout(level: int, later_level: int) -> None:
    log = TransactionLog(level=level)
    filled(log)
    log.level = later_level
    log.advance(60_001)

    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert log.state() is TransactionState.COMPLETE_ABORT
    assert BOUND_BYTES - 150 < largest_batch(log) <= BOUND_BYTES


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_full_transaction_is_fenced_by_the_next_producer(level: int) -> None:
    log = TransactionLog(level=level)
    filled(log, topic="long" * 60)
    log.level = 2
    newer = Producer(log)

    assert newer.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()
    assert newer.initialize() is NONE
    assert largest_batch(log) <= BOUND_BYTES


def test_a_full_transaction_goes_to_the_next_producer_id() -> None:
    log = TransactionLog()
    metadata = TransactionMetadata(
        producer_id=7, producer_epoch=EPOCH_MAX - 1, timeout_ms=60_000, previous_producer_id=7, client_version=2
    )
    log.add_to_log((CoordinatorRecord(build_transaction_key("tx"), build_transaction_value(metadata, 1)),))
    log.elect()
    producer = Producer(log, raises_epoch=True)
    producer.producer_id, producer.producer_epoch = 7, EPOCH_MAX - 1
    fill(producer)

    assert producer.commit() is NONE
    log.acknowledge_markers()

    assert (producer.producer_epoch, log.state()) == (0, TransactionState.COMPLETE_COMMIT)
    assert largest_batch(log) <= BOUND_BYTES


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_a_bound_that_was_lowered_keeps_nothing_open(*, raises_epoch: bool) -> None:
    log = TransactionLog()
    producer = filled(log, raises_epoch=raises_epoch)
    log.batch_bytes_max = 0

    assert producer.add(1_000_000) is TOO_LARGE
    assert producer.commit() is NONE
    log.acknowledge_markers()

    assert log.state() is TransactionState.COMPLETE_COMMIT


def test_a_refused_partition_leaves_the_transaction_as_it_is() -> None:
    log = TransactionLog()
    producer = filled(log)
    before = log.metadata()

    assert producer.add(*range(500, 600)) is TOO_LARGE

    assert log.metadata() is before
    assert producer.add(0) is NONE
    assert producer.commit() is NONE
