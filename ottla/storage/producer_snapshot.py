"""Kafka's `.snapshot` files: what a partition knew of its producers at an offset, as bytes.

Version 1: a version (int16), the CRC-32C of what follows, the number of producers, and an entry of 44 bytes for each.
Of a producer's batches it has the last one alone.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import crc32c

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """The bytes are not a producer snapshot; an older one, or the log itself, has to do."""


class SnapshotEntry(NamedTuple):
    """One producer, its fields in the order of the file."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    """-1 without a batch."""
    offset_delta: int
    """From the first record of the last batch to its last one."""
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int
    """-1 without an open transaction."""


encode_entry = _ENTRY.pack
"""The fields of a `SnapshotEntry` as bytes. A partition can have hundreds of thousands, all encoded at one roll: none
is made an object for it."""


def encode_snapshot(entries: Buffer) -> bytes:
    """The contents of a `.snapshot` file with these encoded entries, one after another."""
    body = _COUNT.pack(len(entries) // _ENTRY.size) + entries
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(snapshot: bytes) -> Iterator[SnapshotEntry]:
    """Raises CorruptSnapshot, before the first entry."""
    try:
        version, crc = _HEAD.unpack_from(snapshot)
        count = _COUNT.unpack_from(snapshot, _HEAD.size)[0]
    except struct_error:
        raise CorruptSnapshot(f"{len(snapshot)} bytes are too few for a producer snapshot") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} of a producer snapshot, {_VERSION} expected")
    if crc32c(memoryview(snapshot)[_HEAD.size :]) != crc:
        raise CorruptSnapshot("the checksum of the producer snapshot is not that of its bytes")
    start = _HEAD.size + _COUNT.size
    if len(snapshot) - start != count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} producers announced in {len(snapshot)} bytes")
    return map(SnapshotEntry._make, _ENTRY.iter_unpack(memoryview(snapshot)[start:]))
