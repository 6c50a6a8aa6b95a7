"""What a partition remembers of one producer, and how that is packed into bytes.

An entry is what Kafka's `.snapshot` files say of a producer, of its batches the last one alone. A partition can have
hundreds of thousands of producers, most of which have written one batch: their entries say all that is known of them.
"""

from struct import Struct
from typing import NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from ottla.storage.producer_snapshot import ENTRY

BATCHES_KEPT = 5
NO_OFFSET = -1

SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers have 31 bits; after 2147483647 comes 0."""


class ProducerBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """What is known of one producer id. Never changed, only replaced, so that an append can be taken back."""

    epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    """The last of this epoch, oldest first. None, if it began with the end of a transaction."""
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_OFFSET
    seen_ms: int = 0
    """When it wrote last, by the broker's clock; its state expires by this, not by timestamps of its own making."""


NO_BATCH = ProducerBatch(
    first_sequence=-1, last_sequence=-1, first_offset=NO_OFFSET, last_offset=NO_OFFSET, timestamp=NO_TIMESTAMP
)

_COUNT = Struct("b")
_BATCH = Struct("=iiqqq")
BATCHES_BYTES = _COUNT.size + BATCHES_KEPT * _BATCH.size


def pack_entry(producer_id: int, state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else NO_BATCH
    return ENTRY.pack(
        producer_id,
        state.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def pack_batches(state: ProducerState) -> bytes | None:
    """All of its batches in `BATCHES_BYTES` bytes; None where its entry says what they are."""
    batches = state.batches
    if len(batches) < 2 and (not batches or _is_in_entry(batches[0], state.last_timestamp)):
        return None
    packed = _COUNT.pack(len(batches)) + b"".join(_BATCH.pack(*batch) for batch in batches)
    return packed.ljust(BATCHES_BYTES, b"\0")


def _is_in_entry(batch: ProducerBatch, last_timestamp: int) -> bool:
    first_sequence = _first_sequence(batch.last_sequence, batch.last_offset - batch.first_offset)
    return batch.timestamp == last_timestamp and batch.first_sequence == first_sequence


def _first_sequence(last_sequence: int, delta: int) -> int:
    """Of a batch; offsets that a coordinator writes for a transaction have no sequence numbers."""
    return NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & SEQUENCE_MASK


def unpack_state(entry: Buffer, seen_ms: int, batches: Buffer | None = None) -> ProducerState:
    """What `pack_entry` has packed, and `pack_batches`."""
    _, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = ENTRY.unpack(entry)
    known: tuple[ProducerBatch, ...] = ()
    if batches is not None and (count := _COUNT.unpack_from(batches)[0]):
        packed = memoryview(batches)[_COUNT.size : _COUNT.size + count * _BATCH.size]
        known = tuple(map(ProducerBatch._make, _BATCH.iter_unpack(packed)))
    elif last_offset >= 0:
        first_sequence = _first_sequence(last_sequence, delta)
        known = (ProducerBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp),)
    return ProducerState(epoch, known, timestamp, coordinator_epoch, transaction, seen_ms)
