"""The header of a record batch, read and patched in place.

A produced batch goes from the socket to the file without being copied or looked into. All that the broker needs on
that way stands in the first 61 bytes, and the two fields that it sets, base offset and partition leader epoch, lie
outside the checksum. So a batch costs one `unpack_from`, one CRC and one `pack_into`, whatever its size.

Functions take the buffer that holds the batch and the position of the batch in it; they slice views, never bytes.

The checksum is CRC-32C (Castagnoli), by the processor's own instruction where it has one.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from struct import Struct
from typing import NamedTuple, Protocol, cast

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.primitives import Buffer

BATCH_HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""Bytes before those that `batch_length` counts: the base offset and the length itself."""
BATCH_LENGTH_MIN = BATCH_HEADER_SIZE - LENGTH_OVERHEAD
MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

# Where the byte of a batch is that has these bits.
LOW_ATTRIBUTES = 22
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_SEQUENCE_MASK = 0x7FFFFFFF

_HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET_AND_LENGTH = Struct(">qi")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")

_LEADER_EPOCH_AT = 12
_CRC_AT = 17
CRC_COVERS_FROM = 21
"""Where the bytes begin that the CRC covers; they end with the batch."""
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class Crc32c(Protocol):
    def __call__(self, buffer: Buffer, crc: int = 0, /) -> int: ...


def _load_crc32c() -> Crc32c:
    """The extension inside the `crc32c` package, without the package.

    The package asks importlib.metadata for its own version when it is imported. That costs some 20 ms, a third of
    the time in which a broker starts.
    """
    package = sys.modules.get("crc32c") or PathFinder.find_spec("crc32c")
    locations = getattr(package, "__path__", None) or getattr(package, "submodule_search_locations", None)
    extension = PathFinder.find_spec("_crc32c", locations) if locations else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c as from_package

        return cast("Crc32c", from_package)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast("Crc32c", module.crc32c)


crc32c: Crc32c = _load_crc32c()
"""`crc32c(buffer) -> int`: the unsigned checksum of any contiguous buffer, 0 for an empty one. With the checksum of the
bytes before it as the second argument, that of both."""


class BatchHeader(NamedTuple):
    """The fields of a batch header, as they stood when it was parsed. A tuple, because one is made for every batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, from the first byte of the base offset."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """A number of `Codec`, or 5 to 7, which no codec has."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the moment from which tombstones and markers here may be dropped (compaction)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without one. After 2147483647 comes 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


_unpack_header = _HEADER.unpack_from
# BatchHeader._make does the same in Python and counts the fields again: it takes half as long again.
_header_of: Callable[[tuple[int, ...]], BatchHeader] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType] - typeshed leaves the tuple's items open here.
    BatchHeader,
)


def parse_batch_header(view: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; only its presence is checked, none of its values. Raises CorruptMessage."""
    try:
        return _header_of(_unpack_header(view, position))
    except struct.error:
        raise CorruptMessage(
            f"{len(view) - position} bytes at position {position}, a batch header has {BATCH_HEADER_SIZE}"
        ) from None


def iterate_batches(view: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch from `position` on, with its own position. Checksums are not looked at.

    Ends before a batch that is cut off by the end of the buffer, as the last one of a fetch answer or of a torn file
    may be; the caller sees that position + size of the last batch is less than the length of the buffer. Raises
    CorruptMessage at a length that no batch can have and at another magic than 2: nothing after it can be found.
    """
    end = len(view)
    while position + BATCH_HEADER_SIZE <= end:
        header = _header_of(_unpack_header(view, position))
        if header.batch_length < BATCH_LENGTH_MIN:
            raise CorruptMessage(
                f"batch length {header.batch_length} at position {position}, at least {BATCH_LENGTH_MIN} expected"
            )
        if header.magic != MAGIC:
            raise CorruptMessage(f"magic {header.magic} at position {position}, {MAGIC} expected")
        following = position + LENGTH_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def crc_is_valid(view: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch is that of its bytes. The batch must lie wholly in the buffer."""
    end = position + LENGTH_OVERHEAD + header.batch_length
    return crc32c(memoryview(view)[position + CRC_COVERS_FROM : end]) == header.crc


def assign_offset_and_epoch(view: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that the leader of the partition decides. The checksum does not cover them."""
    _BASE_OFFSET.pack_into(view, position, base_offset)
    _LEADER_EPOCH.pack_into(view, position + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(view: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Turn the batch into one of `LOG_APPEND_TIME`, at `now_ms` for all its records, and renew its checksum.

    Timestamps of the records stay in their bytes; readers of such a batch use its max timestamp instead.
    """
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(view, position + _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(view, position + _MAX_TIMESTAMP_AT, now_ms)
    crc = _renew_crc(view, position, header)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def clear_log_append_time(view: bytearray | memoryview, position: int, header: BatchHeader) -> BatchHeader:
    """Turn the batch into one whose records have timestamps of their own, and renew its checksum."""
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(view, position + _ATTRIBUTES_AT, attributes)
    return header._replace(attributes=attributes, crc=_renew_crc(view, position, header))


def set_max_timestamp(view: bytearray | memoryview, position: int, header: BatchHeader, max_ms: int) -> BatchHeader:
    """Correct a max timestamp that is not the largest of the records, and renew the checksum."""
    _MAX_TIMESTAMP.pack_into(view, position + _MAX_TIMESTAMP_AT, max_ms)
    return header._replace(max_timestamp=max_ms, crc=_renew_crc(view, position, header))


def pack_batch_header(header: BatchHeader) -> bytes:
    """The 61 bytes of `header`, as it is: the caller fills in length and checksum."""
    return _HEADER.pack(*header)


def seal_batch(batch: bytearray) -> None:
    """Fill in length and checksum of a batch that begins at 0 and ends with the buffer, all other bytes being final."""
    base_offset = _BASE_OFFSET.unpack_from(batch)[0]
    _BASE_OFFSET_AND_LENGTH.pack_into(batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))


def _renew_crc(view: bytearray | memoryview, position: int, header: BatchHeader) -> int:
    end = position + LENGTH_OVERHEAD + header.batch_length
    crc = crc32c(memoryview(view)[position + CRC_COVERS_FROM : end])
    _CRC.pack_into(view, position + _CRC_AT, crc)
    return crc
