"""Control records: the markers that end transactions.

A marker is a batch of one record without compression, with the transactional and the control bit, the producer's id and
epoch, and no sequence. Its key is version (int16) and type (int16, 0 ABORT, 1 COMMIT), its value version (int16) and
the coordinator epoch (int32). Later versions are read as version 0.

A control batch without records is what compaction leaves of one whose producer must be remembered; it ends nothing. Of
other types of control records, which the logs of KRaft have, nothing is read.
"""

from struct import Struct
from typing import NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.record import Record, build_batch, iterate_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class TransactionMarker(NamedTuple):
    """How a transaction ended, and who said so."""

    is_commit: bool
    coordinator_epoch: int
    """The leader epoch of the partition of `__transaction_state` whose leader has sent it."""


def parse_marker(key: bytes | None, value: bytes | None) -> TransactionMarker | None:
    """Of a control record; None if it is of another type, or shorter than a marker is."""
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    return TransactionMarker(kind == _COMMIT, _VALUE.unpack_from(value)[1])


def marker_of(batch: Buffer) -> TransactionMarker | None:
    """The marker in a whole control batch, if it has one. Raises what `iterate_records` does."""
    for record in iterate_records(batch):
        return parse_marker(record.key, record.value)
    return None


def build_marker(
    marker: TransactionMarker, *, producer_id: int, producer_epoch: int, timestamp: int, leader_epoch: int = -1
) -> bytearray:
    """The batch; the log gives it its offset."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    record = Record(offset=0, timestamp=timestamp, key=key, value=_VALUE.pack(_VERSION, marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
