"""A fuzz of everything that reads record batches. `run(seed, inputs)` is called by the tests and by the fuzz runner.

Inputs are batches as any client might build them, then damaged: bytes changed, cut, doubled, lengths and counts set to
hostile values, most of them sealed again with a right checksum so that the damage reaches the readers inside.
"""

import random
import struct
from collections.abc import Callable

from ottla.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from ottla.protocol.records.batch import BATCH_HEADER_SIZE, iterate_batches, seal_batch
from ottla.protocol.records.record import Record, build_batch, iterate_records
from ottla.storage.validation import RecordsRefused, ValidationConfig, validate_produced_batch, validate_replicated

LIMIT = 1 << 20
NOW_MS = 1_700_000_000_000
READING = (CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType)
VALIDATING = (*READING, InvalidTimestamp, RecordListTooLarge, RecordsRefused)
CONFIGS = (
    ValidationConfig(),
    ValidationConfig(is_compacted=True),
    ValidationConfig(is_compacted=True, log_append_time=True),
    ValidationConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000),
)
HOSTILE = (-1, 0, 1, 48, 49, 127, 128, 1 << 16, (1 << 31) - 1, -(1 << 31))
HOSTILE_LONGS = (-1, 0, 1, 1 << 32, (1 << 63) - 1, -(1 << 63))


def run(seed: int, inputs: int) -> int:
    """Read `inputs` damaged batches every way there is; how many were accepted. Raises what no reader may raise."""
    rng = random.Random(seed)
    accepted = 0
    for _ in range(inputs):
        data, config = damaged(rng), rng.choice(CONFIGS)
        answers = [
            _reads(lambda data=data: list(iterate_batches(data)), READING),
            _reads(lambda data=data: list(validate_replicated(memoryview(data), 0)), READING),
            _reads(lambda data=data: list(iterate_records(data, LIMIT)), READING),
            _reads(lambda data=data, config=config: _validate(data, config), VALIDATING),
        ]
        accepted += all(answers)
    return accepted


def damaged(rng: random.Random) -> bytearray:
    if rng.random() < 0.05:
        return bytearray(rng.randbytes(rng.randrange(200)))
    batch = _batch(rng)
    for _ in range(rng.randrange(4)):
        _damage(rng, batch)
    if rng.random() < 0.8 and len(batch) > BATCH_HEADER_SIZE:
        if rng.random() < 0.1:
            struct.pack_into(">i", batch, 8, rng.choice(HOSTILE))
        else:
            seal_batch(batch)
    return batch


def _batch(rng: random.Random) -> bytearray:
    def part() -> bytes | None:
        return None if rng.random() < 0.2 else rng.choice([b"", b"k", b"value " * rng.randrange(60)])

    def headers() -> tuple[tuple[str, bytes | None], ...]:
        return tuple((rng.choice(["", "h", "ü"]), part()) for _ in range(rng.choice([0, 0, 1, 3])))

    records = [
        Record(timestamp=NOW_MS + rng.randrange(-2000, 2000), key=part(), value=part(), headers=headers())
        for _ in range(rng.randrange(1, 8))
    ]
    producer = rng.choice([{}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": rng.randrange(3)}])
    return build_batch(records, codec=rng.randrange(5), **producer)


def _damage(rng: random.Random, batch: bytearray) -> None:
    if not batch:
        return
    at = rng.randrange(len(batch))
    match rng.randrange(7):
        case 0:
            batch[at] = rng.randrange(256)
        case 1:
            batch[at] ^= 1 << rng.randrange(8)
        case 2:
            del batch[at : at + rng.choice([1, 3, 50])]
        case 3:
            batch[at:at] = rng.randbytes(rng.choice([1, 5, 20]))
        case 4 if len(batch) > BATCH_HEADER_SIZE:
            struct.pack_into(">i", batch, rng.choice([23, 57]), rng.choice(HOSTILE))
        case 5 if len(batch) > BATCH_HEADER_SIZE:
            struct.pack_into(">q", batch, rng.choice([0, 27, 35, 43]), rng.choice(HOSTILE_LONGS))
        case _:
            # A length or count among the records: ten bytes that say "more", then one that ends.
            batch[at:at] = bytes([rng.choice([0xFF, 0x80])]) * rng.randrange(1, 11) + bytes([rng.randrange(128)])


def _validate(data: bytearray, config: ValidationConfig) -> None:
    validate_produced_batch(memoryview(bytearray(data)), config=config, now_wall_ms=NOW_MS)


def _reads(read: Callable[[], object], documented: tuple[type[Exception], ...]) -> bool:
    try:
        read()
    except documented:
        return False
    return True
