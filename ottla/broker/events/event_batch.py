"""A record batch for events, written as they come.

`build_batch` makes any batch; here a record is only a time, a key and a value, and that takes less time.
"""

from typing import Final

from ottla.protocol.primitives import build_varint
from ottla.protocol.records.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_batch_header,
    seal_batch,
)
from ottla.protocol.records.record import NO_LEADER_EPOCH

# Lengths and deltas of nearly all events.
_READY_BELOW: Final = 2048
_READY: Final = tuple(build_varint(number) for number in range(_READY_BELOW))


class EventBatch:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._base_ms = 0
        self._last_ms = 0
        self._count = 0

    def __len__(self) -> int:
        """How many events it has."""
        return self._count

    def add(self, wall_ms: int, key: bytes, value: bytes) -> None:
        if not self._count:
            self._base_ms = self._last_ms = wall_ms
        numbers = (wall_ms - self._base_ms, self._count, len(value), len(key))
        if max(numbers) < _READY_BELOW and numbers[0] >= 0:
            delta, offset, value_size, key_size = [_READY[number] for number in numbers]
        else:
            delta, offset, value_size, key_size = map(build_varint, numbers)
        # First the attributes of a record, which nothing uses yet; at the end, no headers.
        body = b"".join((b"\0", delta, offset, key_size, key, value_size, value, b"\0"))
        size = len(body)
        self._parts += (_READY[size] if size < _READY_BELOW else build_varint(size), body)
        self._last_ms = max(self._last_ms, wall_ms)
        self._count += 1

    def build(self) -> bytearray:
        """There must be at least one event."""
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_ms,
            max_timestamp=self._last_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=self._count,
        )
        batch = bytearray(pack_batch_header(header))
        batch += b"".join(self._parts)
        seal_batch(batch)
        return batch
