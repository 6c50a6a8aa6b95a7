"""The level of `transaction.version`: what the coordinator itself does by it, its changes, and the last epoch."""

import pytest

from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions, EndTransaction
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import FIRST_PRODUCER_ID, Producer, TransactionLog
from tests.coordinator.transactions.test_end_txn import started
from tests.coordinator.transactions.test_init_producer_id import exhausted


def versions_in(log: TransactionLog) -> list[int]:
    """Of the records, in order."""
    return [int.from_bytes(record.value[:2], "big") for batch in log.log for record in batch.records]


@pytest.mark.parametrize(("level", "client_version"), [(0, 0), (1, 0), (2, 2)])
def test_timed_out_transaction_ends_by_the_level_of_then(level: int, client_version: int) -> None:
    log = TransactionLog(level=1)
    started(log, 0)
    log.level = level
    log.advance(60_001)

    log.send(AbortTimedOutTransactions())

    (asked,) = log.markers
    assert (asked.producer_epoch, asked.client_version) == (1, client_version)


def test_level_0_is_left_with_the_next_record() -> None:
    log = TransactionLog(level=0)
    producer = started(log, 0)
    log.level = 1
    producer.commit()
    log.acknowledge_markers()

    assert versions_in(log) == [0, 0, 1, 1]


def test_level_lowered_to_0_under_markers_completes_as_begun() -> None:
    log = TransactionLog(level=2)
    producer = started(log, 0, raises_epoch=True)
    producer.commit()
    log.level = 0
    log.acknowledge_markers()

    assert log.state() is TransactionState.COMPLETE_COMMIT
    assert Producer(log).initialize() is ErrorCode.NONE
    assert versions_in(log) == [1, 1, 1, 1, 0]


def test_client_of_before_goes_on_after_an_upgrade() -> None:
    log = TransactionLog(level=1)
    producer = started(log, 0)
    log.level = 2
    assert producer.commit() is ErrorCode.NONE
    log.acknowledge_markers()

    assert producer.initialize(with_pair=True) is ErrorCode.NONE
    producer.raises_epoch = True
    assert producer.add(0) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 2)


# The last epoch, 32767, fences the client that has 32766; it is for no client.


def test_exhausted_producer_goes_on_with_another_id() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    before = producer.pair
    log.advance(60_001)
    log.send(AbortTimedOutTransactions())
    assert log.markers[0].producer_epoch == 32767
    log.acknowledge_markers()

    for _ in range(2):
        producer.producer_id, producer.producer_epoch = before
        assert producer.abort() is ErrorCode.NONE
        assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)
    assert producer.add(0) is ErrorCode.NONE


def test_exhausted_producer_that_recovers_gets_another_id() -> None:
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    before = producer.pair
    assert producer.initialize(with_pair=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()

    for _ in range(2):
        producer.producer_id, producer.producer_epoch = before
        assert producer.initialize(with_pair=True) is ErrorCode.NONE
        assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)


def test_marker_of_an_epoch_that_cannot_rise_is_not_refused() -> None:
    """Kafka gives 32767 in such cases: data with it, and its marker by the rules of level 2, would never end."""
    log = TransactionLog()
    producer = exhausted(log, raises_epoch=True)
    entry = log.partition.shard.context.entries["tx"]
    entry.metadata = entry.metadata._replace(producer_epoch=32767)
    producer.producer_epoch = 32767
    producer.add(0)

    assert producer.commit() is ErrorCode.NONE
    assert (log.markers[0].producer_epoch, log.markers[0].client_version) == (32767, 0)
    assert producer.pair == (FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_promised_producer_id_is_known_at_every_level(level: int) -> None:
    """§13.8.1: EndTxn 5 is served at level 0 as well, also where the coordinator moves before the completion."""
    log = TransactionLog(level=level)
    producer = exhausted(log, raises_epoch=True)
    producer.add(0)
    before = producer.pair
    assert producer.commit() is ErrorCode.NONE
    promised = producer.pair
    assert (promised[0] != before[0], promised[1]) == (True, 0)

    log.elect()
    log.acknowledge_markers()

    assert (log.metadata().producer_id, log.metadata().producer_epoch) == promised
    repeated = EndTransaction(next(log.tokens), "tx", *before, commit=True, raises_epoch=True)
    assert log.send(repeated) == (ErrorCode.NONE, *promised)
    assert producer.add(1) is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    log.acknowledge_markers()
    assert versions_in(log)[-2:] == ([0, 0] if level == 0 else [1, 1])
