"""The batches that clients sent, in 80 bytes each: the header as it came, from its leader epoch on, and what it was
answered. They are taken apart when they are judged.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.testing.audit.history import NO_ANSWER, UNKNOWN_OFFSET, SentBatch

BATCHES_MAX: Final = 200_000
HEADER_FROM: Final = 12
"""Base offset and length come before: the first is the client's, the second counts nothing here."""
# Of the header CRC, last offset delta, greatest timestamp, producer id, epoch and first sequence; then what is added.
_ROW = Struct(">5xI2xi8xqqhi4xIIbqIqh")
_pack_own = Struct(">IIbqIqh").pack
_ANSWER = Struct(">Iqh")
ROW_BYTES: Final = _ROW.size
_ROWS_END: Final = BATCHES_MAX * ROW_BYTES
_ANSWER_AT: Final = ROW_BYTES - _ANSWER.size


class SentBatches:
    def __init__(self) -> None:
        self._rows = bytearray()
        self.overflow = 0
        """How many came after the last one that is kept."""

    @property
    def end(self) -> int:
        """The position of the next row."""
        return len(self._rows)

    def add(self, records: Any, partition: int, connection: int, acks: int, at_ns: int) -> bool:
        """`records`: the batch as it was received, at least its header. False: there are too many."""
        rows = self._rows
        if len(rows) >= _ROWS_END:
            self.overflow += 1
            return False
        rows += records[HEADER_FROM:BATCH_HEADER_SIZE]
        rows += _pack_own(partition, connection, acks, at_ns, 0, UNKNOWN_OFFSET, NO_ANSWER)
        return True

    def answer(self, position: int, answered: int, offset: int, error: int) -> None:
        _ANSWER.pack_into(self._rows, position + _ANSWER_AT, answered, offset, error)

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def __iter__(self) -> Iterator[SentBatch]:
        return map(SentBatch._make, _ROW.iter_unpack(self._rows))
