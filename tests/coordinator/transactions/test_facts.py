"""What is reported of transactional ids, when it is certain and not before (docs/events.md)."""

from typing import Any

import pytest

from ottla.coordinator.transactions import shard
from ottla.coordinator.transactions.events import AbortTimedOutTransactions, AddPartitions
from ottla.coordinator.transactions.facts import (
    NAMES_MAX,
    AbortReason,
    FencedProducerRefused,
    Outcome,
    ProducerInitialized,
    TransactionBegan,
    TransactionDecided,
    TransactionIsComplete,
    TransactionTimedOut,
)
from ottla.coordinator.transactions.records import parse_transaction_value
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import FIRST_PRODUCER_ID, WALL_START_MS, Producer, TransactionLog

WHO = {"transactional_id": "tx", "producer_id": FIRST_PRODUCER_ID, "producer_epoch": 0}


def initialized(log: TransactionLog, **settings: Any) -> Producer:
    producer = Producer(log, **settings)
    producer.initialize()
    return producer


def facts_of(log: TransactionLog, kind: type) -> list[Any]:
    return [fact for fact in log.facts if isinstance(fact, kind)]


def add_group(log: TransactionLog, producer: Producer, group_id: str) -> None:
    partitions = frozenset({("__consumer_offsets", 0)})
    log.send(AddPartitions(next(log.tokens), "tx", *producer.pair, partitions, group_id=group_id))


def test_each_state_of_a_transaction_is_reported_once() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    log.advance(5)
    producer.add(0)
    producer.add(0, 1)
    producer.add(0, topic="u")
    add_group(log, producer, "g")
    log.advance(20)
    producer.commit()
    log.acknowledge_markers()

    start = {"start_ms": WALL_START_MS + 5}
    assert log.facts == [
        ProducerInitialized(**WHO, transaction_timeout_ms=60_000),
        TransactionBegan(**WHO, **start, transaction_timeout_ms=60_000),
        TransactionDecided(
            **WHO, **start, outcome=Outcome.COMMIT, reason=None, open_ms=20, partitions=4,
            topics=("__consumer_offsets", "t", "u"), group_ids=("g",),
        ),
        TransactionIsComplete(**WHO, **start, outcome=Outcome.COMMIT),
    ]  # fmt: skip


def test_nothing_is_reported_before_its_record_is_committed() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    log.facts.clear()
    log.hold_appends = True

    producer.add(0)
    assert log.facts == []

    log.complete_append()
    assert [type(fact) for fact in log.facts] == [TransactionBegan]


def test_decision_in_doubt_is_reported_when_it_is_committed() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    producer.add(0)
    log.fail_appends = ErrorCode.REQUEST_TIMED_OUT
    producer.abort()
    assert facts_of(log, TransactionDecided) == []

    log.complete_append()
    assert [fact.reason for fact in facts_of(log, TransactionDecided)] == [AbortReason.PRODUCER]


def test_decision_that_was_not_stored_is_not_reported() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    producer.add(0)
    log.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    producer.commit()
    log.fail_appends = None
    producer.abort()

    assert [fact.outcome for fact in facts_of(log, TransactionDecided)] == [Outcome.ABORT]


def test_reasons_of_an_abort_are_told_apart() -> None:
    for level in (1, 2):
        log = TransactionLog(level=level)
        producer = initialized(log)
        producer.add(0)
        producer.abort()
        log.acknowledge_markers()
        producer.add(0)
        producer.initialize(with_pair=True)
        log.acknowledge_markers()
        producer.initialize()
        producer.add(0)
        initialized(log)
        log.acknowledge_markers()
        producer.initialize()
        producer.add(0)
        log.advance(60_001)
        log.send(AbortTimedOutTransactions())
        log.acknowledge_markers()

        assert [fact.reason for fact in facts_of(log, TransactionDecided)] == [
            AbortReason.PRODUCER,
            AbortReason.PRODUCER_RESTARTED,
            AbortReason.FENCED,
            AbortReason.TIMED_OUT,
        ]
        assert {fact.outcome for fact in facts_of(log, TransactionIsComplete)} == {Outcome.ABORT}
        assert len(facts_of(log, TransactionTimedOut)) == 1


def test_decision_against_a_producer_names_the_epoch_it_had() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    producer.add(0)
    initialized(log)
    log.acknowledge_markers()

    (decided,), (complete,) = facts_of(log, TransactionDecided), facts_of(log, TransactionIsComplete)
    assert (decided.producer_epoch, complete.producer_epoch) == (0, 1)


def test_fenced_producer_is_reported_once_for_each_epoch() -> None:
    log = TransactionLog(level=1)
    old = initialized(log)
    new = initialized(log)
    for _ in range(3):
        assert old.add(0) is ErrorCode.PRODUCER_FENCED
        assert old.commit() is ErrorCode.PRODUCER_FENCED
        old.missing(0)
    assert facts_of(log, FencedProducerRefused) == [FencedProducerRefused(**WHO, current_producer_epoch=1)]

    initialized(log)
    new.add(0)
    old.add(0)
    assert [fact.producer_epoch for fact in facts_of(log, FencedProducerRefused)] == [0, 1]


def test_names_in_a_decision_are_bounded_and_of_it_alone() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    for number in range(NAMES_MAX + 4):
        add_group(log, producer, f"g{number:02}")
        producer.add(0, topic=f"t{number:02}")
    producer.commit()
    log.acknowledge_markers()
    producer.add(0)
    producer.commit()

    first, second = facts_of(log, TransactionDecided)
    assert (len(first.topics), len(first.group_ids), first.partitions) == (NAMES_MAX, NAMES_MAX, NAMES_MAX + 5)
    assert (second.topics, second.group_ids, second.partitions) == (("t",), (), 1)


def test_next_coordinator_reports_the_completion() -> None:
    log = TransactionLog(level=1)
    producer = initialized(log)
    log.advance(7)
    producer.add(0)
    producer.abort()
    log.facts.clear()
    log.elect()
    log.acknowledge_markers()

    assert log.facts == [TransactionIsComplete(**WHO, start_ms=WALL_START_MS + 7, outcome=Outcome.ABORT)]


def test_without_observers_only_what_is_logged_is_reported() -> None:
    log = TransactionLog(level=1)
    log.partition.shard.context.is_observed = lambda: False
    producer = initialized(log)
    producer.add(0)
    producer.commit()
    log.acknowledge_markers()
    producer.add(0)
    log.advance(60_001)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert [type(fact) for fact in log.facts] == [ProducerInitialized, TransactionTimedOut]


def test_own_records_are_not_read_to_know_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    log = TransactionLog()
    read: list[bytes] = []

    def parse(value: bytes) -> Any:
        read.append(value)
        return parse_transaction_value(value)

    monkeypatch.setattr(shard, "parse_transaction_value", parse)
    producer = initialized(log)
    producer.add(0)
    producer.commit()
    log.acknowledge_markers()
    assert read == []

    log.elect()
    assert read == [record.value for batch in log.log for record in batch.records]
