"""What time does to transactions and ids, and how both are listed (§13.5.6)."""

from typing import Any

from ottla.coordinator.runtime.effects import CoordinatorRecord
from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import (
    AbortTimedOutTransactions,
    ExpireTransactionalIds,
    ListedId,
    ListTransactionalIds,
)
from ottla.coordinator.transactions.facts import TransactionTimedOut
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import FIRST_PRODUCER_ID, Producer, TransactionLog

DAY_MS = 86_400_000


def opened(log: TransactionLog, transactional_id: str = "tx", **settings: Any) -> Producer:
    producer = Producer(log, transactional_id, **settings)
    producer.initialize(timeout_ms=10_000)
    producer.add(0)
    return producer


def listed(log: TransactionLog, **filters: Any) -> list[ListedId]:
    return sorted(log.send(ListTransactionalIds(next(log.tokens), **filters)))


def check_is_aborted_after_its_timeout(log: TransactionLog) -> None:
    log.advance(10_000)
    log.send(AbortTimedOutTransactions())
    assert log.state() is TransactionState.ONGOING
    log.advance(1)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()
    assert log.state() is TransactionState.COMPLETE_ABORT
    assert [fact.open_ms for fact in log.facts if isinstance(fact, TransactionTimedOut)] == [10_001]


def test_a_transaction_is_aborted_after_its_timeout() -> None:
    log = TransactionLog()
    opened(log)

    check_is_aborted_after_its_timeout(log)

    assert log.metadata().producer_epoch == 1


def test_further_partitions_do_not_extend_a_transaction() -> None:
    log = TransactionLog()
    producer = opened(log)
    log.advance(9_000)
    producer.add(1)
    log.advance(1_001)

    log.send(AbortTimedOutTransactions())

    assert log.state() is TransactionState.PREPARE_ABORT


def test_the_timeout_counts_on_across_a_failover() -> None:
    log = TransactionLog()
    opened(log)
    log.advance(10_001)
    log.elect()

    log.send(AbortTimedOutTransactions())

    assert log.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_from_the_future_counts_from_its_load() -> None:
    """§13.5.6: the clock of the coordinator before was ahead."""
    log = TransactionLog()
    opened(log)
    ahead = log.metadata()._replace(start_ms=log.wall_ms + DAY_MS)
    log.add_to_log((CoordinatorRecord(build_transaction_key("tx"), build_transaction_value(ahead, 1)),))
    log.elect()

    check_is_aborted_after_its_timeout(log)


def test_a_clock_that_is_set_back_keeps_no_transaction_open() -> None:
    """§13.5.6: by the clock, it will begin in a day."""
    log = TransactionLog()
    opened(log)
    log.advance(5_000)
    log.clock_is_ahead_ms = -DAY_MS
    log.send(AbortTimedOutTransactions())

    check_is_aborted_after_its_timeout(log)


def test_nothing_is_kept_of_an_id_that_has_expired() -> None:
    log = TransactionLog(transactional_id_expiration_ms=DAY_MS)
    opened(log)
    log.clock_is_ahead_ms = -DAY_MS
    log.send(AbortTimedOutTransactions())
    log.advance(10_001)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()
    log.advance(3 * DAY_MS)
    log.send(ExpireTransactionalIds())

    context = log.partition.shard.context
    assert (context.entries, context._begun_ahead) == ({}, {})


def test_the_next_transaction_counts_from_its_own_start() -> None:
    log = TransactionLog()
    producer = opened(log)
    ahead = log.metadata()._replace(start_ms=log.wall_ms + DAY_MS)
    log.add_to_log((CoordinatorRecord(build_transaction_key("tx"), build_transaction_value(ahead, 1)),))
    log.elect()
    log.advance(9_000)
    producer.commit()
    log.acknowledge_markers()
    producer.add(0)
    log.advance(10_000)

    log.send(AbortTimedOutTransactions())

    assert log.state() is TransactionState.ONGOING


def test_a_client_before_kip_890_is_fenced_after_the_timeout() -> None:
    log = TransactionLog(level=1)
    producer = opened(log)
    log.advance(10_001)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert producer.abort() is ErrorCode.PRODUCER_FENCED
    assert producer.commit() is ErrorCode.PRODUCER_FENCED


def test_a_client_of_kip_890_goes_on_after_the_timeout() -> None:
    log = TransactionLog()
    producer = opened(log, raises_epoch=True)
    log.advance(10_001)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.NONE
    assert producer.pair == (FIRST_PRODUCER_ID, 1)
    assert producer.add(0) is ErrorCode.NONE


def test_a_pending_transaction_is_left_to_the_next_look() -> None:
    log = TransactionLog()
    producer = opened(log)
    log.advance(10_001)
    log.hold_appends = True
    producer.commit()

    log.send(AbortTimedOutTransactions())
    log.complete_append()

    assert log.state() is TransactionState.PREPARE_COMMIT


def test_ids_expire_that_no_client_has_used() -> None:
    log = TransactionLog()
    producer = Producer(log, "unused")
    producer.initialize()
    opened(log, "open")
    log.advance(8 * DAY_MS)
    Producer(log, "used").initialize()

    log.send(ExpireTransactionalIds())

    assert {entry.transactional_id for entry in listed(log)} == {"open", "used"}
    assert log.history("unused")[-1] is TransactionState.DEAD
    assert producer.add(0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    log.elect()
    assert {entry.transactional_id for entry in listed(log)} == {"open", "used"}


def test_an_id_that_could_not_be_removed_stays() -> None:
    log = TransactionLog()
    producer = Producer(log)
    producer.initialize()
    log.advance(8 * DAY_MS)
    log.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS

    log.send(ExpireTransactionalIds())
    log.fail_appends = None

    assert producer.add(0) is ErrorCode.NONE


def test_an_id_is_not_described_while_it_is_removed() -> None:
    log = TransactionLog()
    Producer(log).initialize()
    log.advance(8 * DAY_MS)
    log.hold_appends = True

    log.send(ExpireTransactionalIds())

    assert log.describe().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert listed(log) == []


def test_many_ids_expire_in_slices() -> None:
    log = TransactionLog()
    for number in range(150):
        Producer(log, f"id-{number}").initialize()
    log.advance(8 * DAY_MS)
    before = len(log.log)

    log.send(ExpireTransactionalIds())

    assert [len(batch.records) for batch in log.log[before:]] == [64, 64, 22]
    assert not log.partition.shard.entries


def test_an_id_is_described_as_it_is() -> None:
    log = TransactionLog()
    opened(log)
    result = log.describe()

    assert result.error is ErrorCode.NONE
    assert result.metadata.state.kafka_name == "Ongoing"
    assert (result.metadata.timeout_ms, result.metadata.start_ms) == (10_000, log.wall_ms)
    assert result.partitions == {("t", 0)}
    assert log.describe("other").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert log.describe("").error is ErrorCode.INVALID_REQUEST


def test_ids_are_listed_by_every_filter() -> None:
    log = TransactionLog()
    opened(log, "a")
    log.advance(5_000)
    opened(log, "b")
    Producer(log, "c").initialize()
    a = ListedId("a", FIRST_PRODUCER_ID, "Ongoing")
    b = ListedId("b", FIRST_PRODUCER_ID + 1, "Ongoing")
    c = ListedId("c", FIRST_PRODUCER_ID + 2, "Empty")

    assert listed(log) == [a, b, c]
    assert listed(log, state_names=frozenset({"Ongoing"})) == [a, b]
    assert listed(log, producer_ids=frozenset({b.producer_id})) == [b]
    # Without a transaction the start is -1.
    assert listed(log, open_longer_than_ms=4_000) == [a, c]
