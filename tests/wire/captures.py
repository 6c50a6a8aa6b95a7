"""What captures hold, for tests."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.broker.server.connection import Connection
from ottla.testing.handle import Kafka
from ottla.testing.wire_capture.exchanges import Answered, CapturedExchange, ExchangeReader, NotAnswered, Said
from ottla.testing.wire_capture.file_format import CaptureFile, CaptureRecord, RecordKind


def records_of(path: Path) -> list[CaptureRecord]:
    """Of a whole file."""
    with CaptureFile(path) as file:
        records = list(file.records())
        assert file.damage is None
        return records


def stream(records: Iterable[CaptureRecord], kind: RecordKind, connection: int) -> bytes:
    """All bytes of one direction of a connection."""
    return b"".join(each.payload for each in records if each.kind == kind and each.connection == connection)


def said_in(path: Path) -> list[Said]:
    reader = ExchangeReader()
    return [*reader.said(records_of(path)), *reader.rest()]


def exchanges_in(path: Path) -> list[CapturedExchange]:
    """In the order of their requests."""
    found = [each.exchange for each in said_in(path) if isinstance(each, Answered | NotAnswered)]
    return sorted(found, key=lambda each: each.number)


def apis_in(path: Path) -> list[str]:
    return [each.api for each in exchanges_in(path)]


def connections_of(kafka: Kafka) -> list[Connection]:
    """Of its brokers; to be looked at, not called."""
    hosted = kafka._bed.hosted
    return kafka._bed.call(lambda: [each for parts in hosted.parts().values() for each in parts.server.connections])


def values_in(kafka: Kafka, topic: str) -> list[tuple[Any, Any, Any]]:
    found = kafka.records(topic)
    return sorted((each.partition, each.offset, each.value) for each in found)
