"""What is done about very many transactional ids at once comes in slices of a few milliseconds."""

from typing import Any

from ottla.coordinator.runtime.effects import Append, CoordinatorRecord, Dispatch, Effect
from ottla.coordinator.runtime.partition import Phase
from ottla.coordinator.transactions.add_partitions import PARTICIPANTS_MAX, TOPICS_MAX
from ottla.coordinator.transactions.decisions import DECISIONS_PER_SLICE, PARTITIONS_PER_SLICE
from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.coordinator.transactions.participants import Participants
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import Producer, TransactionLog

TIMEOUT_MS = 10_000


def log_of(count: int, state: TransactionState) -> TransactionLog:
    """That many ids, each with one partition, written by an earlier coordinator."""
    log = TransactionLog()
    for number in range(count):
        metadata = TransactionMetadata(
            producer_id=number,
            producer_epoch=1,
            timeout_ms=TIMEOUT_MS,
            state=state,
            partitions=Participants.of({("t", number % 10)}),
            last_update_ms=log.wall_ms,
            start_ms=log.wall_ms,
            client_version=2,
        )
        key = build_transaction_key(f"id-{number}")
        log.add_to_log((CoordinatorRecord(key, build_transaction_value(metadata, 1)),))
    return log


def loading_slices(log: TransactionLog) -> list[list[Effect]]:
    """Until requests are served."""
    log.partition = log.loading_partition()
    slices = []
    while log.partition.phase is Phase.LOADING:
        slices.append(log.partition.finish_loading(log.now_ms, log.wall_ms))
    return slices


def slices_of(log: TransactionLog, effects: list[Effect]) -> list[list[Effect]]:
    """Of the step that began with these."""
    slices = [effects]
    while log.partition.rest:
        slices.append(log.partition.go_on())
    return slices


def count_of(kind: type, effects: list[Effect]) -> int:
    return sum(isinstance(effect, kind) for effect in effects)


def test_loaded_decisions_send_their_markers_in_slices() -> None:
    log = log_of(10_000, TransactionState.PREPARE_COMMIT)
    *before, last = loading_slices(log)
    entries = log.partition.shard.entries.values()

    assert before
    assert all(effects == [] for effects in before)
    assert all(entry.busy_error is ErrorCode.CONCURRENT_TRANSACTIONS for entry in entries)
    sizes = [len(effects) for effects in slices_of(log, last)]
    assert (max(sizes), sum(sizes)) == (DECISIONS_PER_SLICE, 10_000)


def test_loaded_decisions_without_partitions_are_completed() -> None:
    log = log_of(0, TransactionState.PREPARE_ABORT)
    for number in range(100):
        metadata = TransactionMetadata(
            producer_id=number, producer_epoch=1, timeout_ms=TIMEOUT_MS, state=TransactionState.PREPARE_ABORT
        )
        key = build_transaction_key(f"id-{number}")
        log.add_to_log((CoordinatorRecord(key, build_transaction_value(metadata, 1)),))

    log.elect()

    assert {entry.metadata.state for entry in log.partition.shard.entries.values()} == {TransactionState.COMPLETE_ABORT}


def test_a_producer_waits_while_loaded_decisions_go_on() -> None:
    log = log_of(100, TransactionState.PREPARE_COMMIT)
    log.elect()
    producer = Producer(log, "id-99")
    producer.producer_id, producer.producer_epoch = 99, 1

    assert producer.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    log.acknowledge_markers()
    assert producer.commit() is ErrorCode.NONE


def test_overdue_transactions_are_aborted_in_slices() -> None:
    log = log_of(1_000, TransactionState.ONGOING)
    log.elect()
    log.now_ms += TIMEOUT_MS + 1

    slices = slices_of(log, log.partition.step(AbortTimedOutTransactions(), log.now_ms, log.wall_ms))

    appends = [count_of(Append, effects) for effects in slices]
    assert (max(appends), sum(appends)) == (DECISIONS_PER_SLICE, 1_000)


def test_all_that_is_overdue_is_aborted_by_one_look() -> None:
    log = log_of(150, TransactionState.ONGOING)
    log.elect()
    log.advance(TIMEOUT_MS + 1)

    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert {entry.metadata.state for entry in log.partition.shard.entries.values()} == {TransactionState.COMPLETE_ABORT}


def resigned_after(log: TransactionLog, effects: list[Effect], kind: type) -> list[Any]:
    assert count_of(kind, effects) == DECISIONS_PER_SLICE
    return [effect for effect in log.partition.unload(log.now_ms, log.wall_ms) if isinstance(effect, kind)]


def test_a_coordinator_that_resigns_begins_no_further_slice() -> None:
    loaded = log_of(1_000, TransactionState.PREPARE_COMMIT)
    overdue = log_of(1_000, TransactionState.ONGOING)
    overdue.elect()
    overdue.now_ms += TIMEOUT_MS + 1
    aborts = overdue.partition.step(AbortTimedOutTransactions(), overdue.now_ms, overdue.wall_ms)

    assert resigned_after(loaded, loading_slices(loaded)[-1], Dispatch) == []
    assert resigned_after(overdue, aborts, Append) == []


def wide(log: TransactionLog, partitions: Participants) -> Producer:
    """An open transaction with these, written by an earlier coordinator."""
    producer = Producer(log)
    assert producer.initialize() is ErrorCode.NONE
    opened = log.metadata()._replace(
        state=TransactionState.ONGOING, partitions=partitions, start_ms=log.wall_ms, last_update_ms=log.wall_ms
    )
    log.add_to_log((CoordinatorRecord(build_transaction_key("tx"), build_transaction_value(opened, 1)),))
    log.elect()
    return producer


def test_markers_of_a_wide_transaction_are_prepared_in_slices() -> None:
    log = TransactionLog()
    count = 2 * PARTITIONS_PER_SLICE + 1
    producer = wide(log, Participants.of(("t", index) for index in range(count)))
    log.hold_appends = True
    producer.commit()
    (append_id,) = log.held
    committed = log.partition.step(log._completion(append_id), log.now_ms, log.wall_ms)

    assert count_of(Dispatch, committed) == 0
    slices = slices_of(log, committed)
    assert [count_of(Dispatch, effects) for effects in slices] == [0, 0, 1]
    (order,) = (effect.command for effect in slices[-1] if isinstance(effect, Dispatch))
    assert order.partitions == tuple(("t", index) for index in range(count))


def test_partitions_beyond_the_bound_are_not_added() -> None:
    """UNKNOWN_SERVER_ERROR, on which clients abort the transaction."""
    log = TransactionLog()
    producer = wide(log, Participants.of(("t", index) for index in range(PARTICIPANTS_MAX - 1)))

    assert producer.add(1_000_000, 1_000_001) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert producer.add(1_000_000) is ErrorCode.NONE
    assert producer.add(1_000_001) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert producer.add(1_000_000) is ErrorCode.NONE
    assert producer.abort() is ErrorCode.NONE
    log.acknowledge_markers()
    assert log.state() is TransactionState.COMPLETE_ABORT


def test_topics_beyond_the_bound_are_not_added() -> None:
    log = TransactionLog()
    producer = wide(log, Participants.of((f"t{number}", 0) for number in range(TOPICS_MAX)))

    assert producer.add(0, topic="further") is ErrorCode.UNKNOWN_SERVER_ERROR
    assert producer.add(1, topic="t0") is ErrorCode.NONE
