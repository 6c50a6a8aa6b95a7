"""The coordinator takes over a `__transaction_state` partition that Apache Kafka 4.1.0 wrote (its README says how)."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.transactions.entry import TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.coordinator.transactions.records import (
    build_transaction_key,
    build_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, iterate_records
from tests.coordinator.transactions.harness import Producer, TransactionLog

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka_4_1_transactions"
SAID: dict[str, Any] = json.loads((GOLDEN / "answers.json").read_text())["transactions"]
AFTER_MARKERS = {
    TransactionState.ONGOING: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


def kafkas_records() -> list[Record]:
    view = memoryview((GOLDEN / "__transaction_state-0" / "00000000000000000000.log").read_bytes())
    return [
        record
        for position, header in iterate_batches(view)
        for record in iterate_records(view[position : position + header.size_bytes])
    ]


RECORDS = kafkas_records()


def taken_over(count: int = len(RECORDS)) -> TransactionLog:
    """From so many of Kafka's records, at the time of the last."""
    log = TransactionLog()
    log.now_ms = RECORDS[count - 1].timestamp - log.wall_ms
    log.add_to_log(tuple(RECORDS[:count]))
    log.elect()
    return log


def id_of(record: Record) -> str:
    assert record.key is not None
    transactional_id = parse_transaction_key(record.key)
    assert transactional_id is not None
    return transactional_id


def test_keys_and_values_are_built_as_kafka_wrote_them() -> None:
    for record in RECORDS:
        assert build_transaction_key(id_of(record)) == record.key
        if record.value is not None:
            stored = parse_transaction_value(record.value)
            built = build_transaction_value(stored, 1)
            # Kafka has the topics in the order of a hash table.
            assert sorted(built) == sorted(record.value)
            assert built == record.value or len({topic for topic, _ in stored.partitions}) > 1


def test_loaded_ids_are_described_as_kafka_did() -> None:
    log = taken_over()

    found = {
        name: {
            "state": entry.metadata.state.kafka_name,
            "producer": [entry.metadata.producer_id, entry.metadata.producer_epoch],
            "timeout_ms": entry.metadata.timeout_ms,
            "started_ms": entry.metadata.start_ms,
            "partitions": sorted(f"{topic}-{index}" for topic, index in entry.metadata.partitions),
        }
        for name, entry in log.partition.shard.entries.items()
    }

    assert found == SAID


@pytest.mark.parametrize("count", range(1, len(RECORDS) + 1))
def test_each_state_that_kafka_stored_is_taken_on(count: int) -> None:
    """As if Kafka had ended after that record: what is decided is completed, what is open is ended by its producer."""
    transactional_id, value = id_of(RECORDS[count - 1]), RECORDS[count - 1].value

    log = taken_over(count)

    if value is None:
        assert transactional_id not in log.partition.shard.entries
        return
    stored = parse_transaction_value(value)
    assert log.metadata(transactional_id) == stored
    marked = {each.transactional_id: set(each.partitions) for each in log.markers}
    assert marked.get(transactional_id) == (stored.partitions if stored.is_decided else None)
    if stored.state is TransactionState.ONGOING:
        producer = Producer(log, transactional_id, raises_epoch=stored.client_version == 2)
        producer.producer_id, producer.producer_epoch = stored.producer_id, stored.producer_epoch
        assert producer.commit() is ErrorCode.NONE
        assert set(log.markers[-1].partitions) == stored.partitions
    log.acknowledge_markers()
    assert log.state(transactional_id) is AFTER_MARKERS.get(stored.state, stored.state)


def test_every_kind_of_state_is_among_them() -> None:
    stored = [parse_transaction_value(record.value) for record in RECORDS if record.value is not None]

    assert {(each.state, each.client_version) for each in stored} == set(product(list(TransactionState)[:6], (0, 2)))
    assert len(stored) < len(RECORDS)


def test_open_transactions_of_kafka_time_out() -> None:
    log = taken_over()
    timeout_ms = log.metadata("tx-open-older").timeout_ms

    log.advance(timeout_ms + 1)
    log.send(AbortTimedOutTransactions())
    log.acknowledge_markers()

    assert {log.state(name) for name in ("tx-open-older", "tx-open-newer")} == {TransactionState.COMPLETE_ABORT}
