"""What the handle writes to one partition, in batches that the topic takes.

As a producer does, it begins another batch where the next record may have no room. How large a batch is once it is
compressed shows when it is built: one that is too large is halved then, as Kafka's Java producer does on
MESSAGE_TOO_LARGE.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode, error_for
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.append_queue import validation_config
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_entry import SEQUENCE_MASK
from ottla.storage.validation import ValidationConfig

RECORD_OVERHEAD: Final = 36
"""At most: seven numbers of variable length, and a byte of attributes."""
HEADER_OVERHEAD: Final = 10
"""At most: the lengths of a name and of a value."""

Producer = tuple[int, int, int]
"""Producer id, epoch, and the sequence of the next record."""


class BuiltBatch(NamedTuple):
    record_count: int
    data: memoryview


def built_batches(
    records: Sequence[Record], topic: str, config: LogConfig, codec: Codec, producer: Producer | None
) -> list[BuiltBatch]:
    """Each of at most `max.message.bytes`, and no larger than a segment. `producer` forges those of an idempotent one.
    Raises MessageTooLarge where a record alone is larger."""
    built: list[BuiltBatch] = []
    checks = validation_config(config)
    for group in _groups(records, checks.batch_bytes_max):
        built += _built(group, topic, checks, codec, producer)
        producer = _advanced(producer, len(group))
    return built


def _groups(records: Sequence[Record], limit_bytes: int) -> Iterator[Sequence[Record]]:
    """Those that certainly have room in one batch, if nothing is compressed; a larger record is by itself."""
    start, size_bytes = 0, BATCH_HEADER_SIZE
    for index, record in enumerate(records):
        more_bytes = _bytes_at_most(record)
        if index > start and size_bytes + more_bytes > limit_bytes:
            yield records[start:index]
            start, size_bytes = index, BATCH_HEADER_SIZE
        size_bytes += more_bytes
    yield records[start:]


def _bytes_at_most(record: Record) -> int:
    headers = sum(
        len(name.encode(errors="surrogateescape")) + len(value or b"") + HEADER_OVERHEAD
        for name, value in record.headers
    )
    return RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


def _built(
    records: Sequence[Record], topic: str, checks: ValidationConfig, codec: Codec, producer: Producer | None
) -> Iterator[BuiltBatch]:
    data = _build(records, codec, producer)
    size_bytes = max(len(data), _stored_bytes(records, checks, codec))
    if size_bytes <= checks.batch_bytes_max:
        yield BuiltBatch(len(records), memoryview(data))
    elif len(records) > 1:
        half = len(records) // 2
        yield from _built(records[:half], topic, checks, codec, producer)
        yield from _built(records[half:], topic, checks, codec, _advanced(producer, half))
    else:
        sentence = f"a record of {topic} is a batch of {size_bytes} bytes, at most {checks.batch_bytes_max} allowed"
        raise error_for(ErrorCode.MESSAGE_TOO_LARGE, f"{sentence} (max.message.bytes); nothing was written")


def _stored_bytes(records: Sequence[Record], checks: ValidationConfig, codec: Codec) -> int:
    """Where the topic compresses batches otherwise; 0 where it keeps them as they come."""
    stored = checks.codec
    return 0 if stored is None or stored is codec else len(_build(records, stored, None))


def _build(records: Sequence[Record], codec: Codec, producer: Producer | None) -> bytearray:
    if producer is None:
        return build_batch(records, codec=codec)
    producer_id, epoch, sequence = producer
    return build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def _advanced(producer: Producer | None, count: int) -> Producer | None:
    """With the sequence after so many records; after 2147483647 comes 0."""
    if producer is None:
        return None
    producer_id, epoch, sequence = producer
    return producer_id, epoch, (sequence + count) & SEQUENCE_MASK if sequence >= 0 else sequence
