"""Kafka's `.snapshot` files: what a partition knew of its producers at an offset, as bytes.

    version     int16, 1
    crc         uint32, the CRC-32C of what follows
    count       int32
    entries     46 bytes for each producer

Of a producer's batches an entry has the last one alone.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import crc32c

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")

ENTRY = Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence and last offset (-1 without a batch), from the first record of the last batch to
its last one, timestamp, coordinator epoch, first offset of the open transaction (-1 without one)."""


class CorruptSnapshot(Exception):
    """The bytes are not a producer snapshot; an older one, or the log itself, has to do."""


def encode_snapshot(entries: Iterable[Buffer]) -> list[Buffer]:
    """The contents of a `.snapshot` file, in pieces: so that it is never there twice, and no call takes long."""
    pieces = list(entries)
    count = _COUNT.pack(sum(map(len, pieces)) // ENTRY.size)
    crc = crc32c(count)
    for piece in pieces:
        crc = crc32c(piece, crc)
    return [_HEAD.pack(_VERSION, crc) + count, *pieces]


def decode_snapshot(snapshot: bytes) -> memoryview:
    """The entries, one after another. Raises CorruptSnapshot."""
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
    if len(snapshot) - start != count * ENTRY.size:
        raise CorruptSnapshot(f"{count} producers announced in {len(snapshot)} bytes")
    return memoryview(snapshot)[start:]


def open_transactions(entries: Buffer) -> list[tuple[int, int]]:
    """The first offset of each, and its producer id."""
    return [(fields[7], fields[0]) for fields in ENTRY.iter_unpack(entries) if fields[7] >= 0]
