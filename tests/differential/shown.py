"""Answers and logs as lines that two brokers can share: producer ids under names of their own, and no times."""

from collections.abc import Iterator
from typing import Any

from ottla.coordinator.records import OffsetCommitKey, parse_key, parse_offset_commit_value
from ottla.coordinator.transactions.records import by_topic, parse_transaction_key, parse_transaction_value
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.control import parse_marker
from ottla.protocol.records.record import Record, iterate_records

NOT_GIVEN = -1
MADE_UP = 900_000
"""From here on ids are those of a script; a broker gives ids from 0 on."""


def code(number: int) -> str:
    return ErrorCode(number).name


class ProducerNames:
    """A letter for each producer id, in the order in which they are seen."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._names

    def name(self, producer_id: int) -> str:
        if producer_id >= MADE_UP:
            return str(producer_id)
        return self._names.setdefault(producer_id, "ABCDEFGH"[len(self._names)])

    def pair(self, producer_id: int, epoch: int) -> str:
        return "none" if producer_id == NOT_GIVEN else f"{self.name(producer_id)}/{epoch}"


def batches(names: ProducerNames, records: Any) -> Iterator[str]:
    """Of a partition with the records of a script."""
    view = memoryview(bytes(records or b""))
    for position, header in iterate_batches(view):
        found = list(iterate_records(bytes(view[position : position + header.size_bytes])))
        if header.is_control:
            yield f"{header.base_offset} {_marker(found)} {names.pair(header.producer_id, header.producer_epoch)}"
        else:
            values = ",".join((record.value or b"").decode() for record in found)
            yield f"{header.base_offset} {values}{_producer(names, header)}"


def _marker(records: list[Record]) -> str:
    marker = parse_marker(records[0].key, records[0].value)
    assert marker is not None, "a control batch that is no marker"
    return f"{'COMMIT' if marker.is_commit else 'ABORT'} by coordinator {marker.coordinator_epoch}"


def _producer(names: ProducerNames, header: BatchHeader) -> str:
    if header.producer_id == NOT_GIVEN:
        return ""
    kind = "transactional" if header.is_transactional else "idempotent"
    return f" {kind} {names.pair(header.producer_id, header.producer_epoch)} from {header.base_sequence}"


def transaction_states(names: ProducerNames, records: Any, transactional_id: str) -> Iterator[str]:
    """What `__transaction_state` says of an id. The ids before and after the current one are left out: Kafka reads both
    and writes neither."""
    view = memoryview(bytes(records or b""))
    for position, header in iterate_batches(view):
        if header.is_control:
            continue
        for record in iterate_records(bytes(view[position : position + header.size_bytes])):
            if record.key is not None and parse_transaction_key(record.key) == transactional_id:
                yield _transaction_state(names, record.value)


def _transaction_state(names: ProducerNames, value: bytes | None) -> str:
    if value is None:
        return "tombstone"
    stored = parse_transaction_value(value)
    partitions = " ".join(f"{topic}{indexes}" for topic, indexes in by_topic(stored.partitions).items())
    started = "not started" if stored.start_ms < 0 else "started"
    return (
        f"v{value[1]} {stored.state.kafka_name} {names.pair(stored.producer_id, stored.producer_epoch)} "
        f"{stored.timeout_ms} ms [{partitions}] {started} client {stored.client_version}"
    )


def committed_offsets(names: ProducerNames, records: Any, group_id: str) -> Iterator[str]:
    """What `__consumer_offsets` says of a group's offsets, and the markers of producers that are known. Sequences are
    left out: of each batch it is 0 in Kafka, where nothing looks at it, and here there is none."""
    view = memoryview(bytes(records or b""))
    for position, header in iterate_batches(view):
        found = list(iterate_records(bytes(view[position : position + header.size_bytes])))
        if header.is_control:
            if names.knows(header.producer_id):
                yield f"{_marker(found)} {names.pair(header.producer_id, header.producer_epoch)}"
            continue
        offsets = [each for record in found for each in _committed_offset(record, group_id)]
        if offsets:
            kind = "transactional" if header.is_transactional else "plain"
            yield f"{' '.join(offsets)} {kind} {names.pair(header.producer_id, header.producer_epoch)}"


def _committed_offset(record: Record, group_id: str) -> Iterator[str]:
    key = parse_key(record.key or b"")
    if isinstance(key, OffsetCommitKey) and key.group_id == group_id:
        committed = None if record.value is None else parse_offset_commit_value(record.value)
        yield f"{key.topic}-{key.partition}={'tombstone' if committed is None else committed.offset}"
