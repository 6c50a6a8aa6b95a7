"""InitProducerId: who gets which producer id and epoch, and who is fenced (§13.3)."""

import pytest

from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import InitializeProducer, ProducerResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import FIRST_PRODUCER_ID, Producer, TransactionLog

BOTH = pytest.mark.parametrize("level", [1, 2])


def exhausted(log: TransactionLog, *, raises_epoch: bool = False) -> Producer:
    """A producer with the last epoch that a client can have."""
    producer = Producer(log, raises_epoch=raises_epoch)
    producer.initialize()
    entry = log.partition.shard.context.entries["tx"]
    entry.metadata = entry.metadata._replace(producer_epoch=32766)
    producer.producer_epoch = 32766
    return producer


def test_a_new_id_gets_a_producer_id_and_epoch_zero() -> None:
    log = TransactionLog()
    producer = Producer(log)

    assert producer.initialize() is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 0)
    assert log.history() == [TransactionState.EMPTY]


def test_the_answer_waits_until_the_record_is_committed() -> None:
    log = TransactionLog()
    log.hold_appends = True
    assert Producer(log).initialize() is None
    assert Producer(log).initialize() is ErrorCode.CONCURRENT_TRANSACTIONS

    log.complete_append()

    assert log.answers[1] == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, 0)


def test_the_next_producer_of_an_id_gets_the_next_epoch() -> None:
    log = TransactionLog()
    first, second = Producer(log), Producer(log)
    first.initialize()
    second.initialize()

    assert second.pair == (FIRST_PRODUCER_ID, 1)
    assert first.add(0) is ErrorCode.PRODUCER_FENCED


def test_without_a_producer_id_at_hand_nothing_is_kept() -> None:
    log = TransactionLog()
    log.has_producer_ids = False

    assert Producer(log).initialize() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not log.partition.shard.entries


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    assert Producer(TransactionLog()).initialize(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_empty_id_is_refused() -> None:
    result = TransactionLog().send(InitializeProducer(1, "", 1000))
    assert result.error is ErrorCode.INVALID_REQUEST


@BOTH
def test_an_open_transaction_is_aborted_before_a_pair_is_given(level: int) -> None:
    log = TransactionLog(level=level)
    first, second = Producer(log), Producer(log)
    first.initialize()
    first.add(0)

    assert second.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert second.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (log.markers[0].producer_epoch, log.markers[0].commit) == (1, False)
    log.acknowledge_markers()
    assert second.initialize() is ErrorCode.NONE

    assert second.pair == (FIRST_PRODUCER_ID, 2)
    assert first.add(1) is ErrorCode.PRODUCER_FENCED


def test_a_producer_with_its_pair_gets_the_next_epoch() -> None:
    producer = Producer(TransactionLog())
    producer.initialize()

    assert producer.initialize(with_pair=True) is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 1)


def test_a_repeated_request_gets_the_same_pair_again() -> None:
    log = TransactionLog()
    producer, repeating = Producer(log), Producer(log)
    producer.initialize()
    repeating.producer_id, repeating.producer_epoch = producer.pair
    producer.initialize(with_pair=True)

    assert repeating.initialize(with_pair=True) is ErrorCode.NONE
    assert repeating.pair == producer.pair == (FIRST_PRODUCER_ID, 1)


def test_a_fenced_predecessor_cannot_repeat_its_way_in() -> None:
    """Its epoch is the one before the newer producer's, which has given none."""
    log = TransactionLog()
    first, second = Producer(log), Producer(log)
    first.initialize()
    second.initialize()

    assert first.initialize(with_pair=True) is ErrorCode.PRODUCER_FENCED


def test_a_repeated_request_is_fenced_after_a_failover() -> None:
    """The epoch before is not stored, and not derived."""
    log = TransactionLog()
    producer, repeating = Producer(log), Producer(log)
    producer.initialize()
    repeating.producer_id, repeating.producer_epoch = producer.pair
    producer.initialize(with_pair=True)
    log.elect()

    assert repeating.initialize(with_pair=True) is ErrorCode.PRODUCER_FENCED


def test_another_producer_id_is_fenced() -> None:
    log = TransactionLog()
    producer = Producer(log)
    producer.initialize()
    producer.producer_id += 1

    assert producer.initialize(with_pair=True) is ErrorCode.PRODUCER_FENCED


def test_a_pair_of_an_expired_id_gets_a_new_one() -> None:
    log = TransactionLog()
    producer = Producer(log)
    producer.producer_id, producer.producer_epoch = 7, 3

    assert producer.initialize(with_pair=True) is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("with_pair", [False, True])
def test_an_exhausted_epoch_gives_a_new_producer_id(with_pair: bool) -> None:
    producer = exhausted(TransactionLog())

    assert producer.initialize(with_pair=with_pair) is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)


def test_the_pair_before_the_rollover_can_be_repeated() -> None:
    log = TransactionLog()
    producer = exhausted(log)
    repeating = Producer(log)
    repeating.producer_id, repeating.producer_epoch = producer.pair
    producer.initialize(with_pair=True)

    assert repeating.initialize(with_pair=True) is ErrorCode.NONE
    assert repeating.pair == producer.pair


def test_recovery_of_an_open_transaction_keeps_the_producer() -> None:
    """KIP-890's abort leaves the epoch that the client knows, so that it may repeat its request."""
    log = TransactionLog(level=2)
    producer = Producer(log)
    producer.initialize()
    producer.add(0)

    assert producer.initialize(with_pair=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()
    assert producer.initialize(with_pair=True) is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 1)


def test_recovery_of_an_open_transaction_at_level_1_is_fenced() -> None:
    log = TransactionLog(level=1)
    producer = Producer(log)
    producer.initialize()
    producer.add(0)

    producer.initialize(with_pair=True)
    log.acknowledge_markers()

    assert producer.initialize(with_pair=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_fencing_append_that_fails_eats_no_epoch(level: int) -> None:
    log = TransactionLog(level=level)
    producer = Producer(log)
    producer.initialize()
    producer.add(0)
    log.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS

    for _ in range(3):
        assert Producer(log).initialize() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.fail_appends = None
    Producer(log).initialize()

    assert log.markers[0].producer_epoch == 1
