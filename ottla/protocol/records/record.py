"""The records inside a batch: walking them, and building batches out of them.

Nothing here is on the way of a produced batch unless its topic asks for it: a record costs microseconds, and a batch
may hold thousands. Lengths and counts are checked against the bytes that are there before anything is made from them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import CorruptMessage, InvalidRecord
from ottla.protocol.primitives import Buffer, build_varint, read_varint, read_varlong
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_batch_header,
    parse_batch_header,
    seal_batch,
)
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress

RecordHeader: TypeAlias = tuple[str, bytes | None]
NO_LEADER_EPOCH = -1
TIMESTAMP_MIN, TIMESTAMP_MAX = -(1 << 63), (1 << 63) - 1
"""Base and delta of a timestamp have 64 bits each; their sum must have no more."""


class Record(NamedTuple):
    """One record. A null key is None, a null value too: in a compacted topic, a tombstone.

    Keys of headers that are not UTF-8 keep their bytes as lone surrogates (`surrogateescape`).
    """

    offset: int = -1
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[RecordHeader] = ()


RecordBounds: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Timestamp delta and offset delta of a record, then where its parts lie in the decompressed block: start and size of
the key (-1 for null), start and size of the value, start and number of the headers."""


def iterate_records(view: Buffer, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the one batch that `view` begins with; of a control batch, its markers as they stand.

    Raises CorruptMessage if the header cannot be that of a whole batch, MessageTooLarge if its block decompresses to
    more than the limit, UnsupportedCompressionType for an unknown codec, and InvalidRecord at the first byte that no
    record can have there. The checksum is the caller's business.
    """
    header = _header_of_whole_batch(view)
    block = bytes(record_block(view, header, max_decompressed_bytes))
    appended_at = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for delta, offset, key_start, key_bytes, start, size, headers_start, headers in walk_block(
        block, header.record_count
    ):
        timestamp = base_timestamp + delta if appended_at is None else appended_at
        if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
            raise InvalidRecord(f"timestamp {timestamp} of a record goes beyond 64 bits")
        yield Record(
            base_offset + offset,
            timestamp,
            None if key_bytes < 0 else block[key_start : key_start + key_bytes],
            None if size < 0 else block[start : start + size],
            _headers_at(block, headers_start, headers) if headers else (),
        )


def record_block(view: Buffer, header: BatchHeader, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What follows the header of the batch that `view` begins with, decompressed. Raises as `iterate_records` does."""
    packed = memoryview(view)[BATCH_HEADER_SIZE : header.size_bytes]
    return decompress(header.codec, packed, max_decompressed_bytes)


def walk_block(block: Buffer, record_count: int) -> Iterator[RecordBounds]:
    """The bounds of each of `record_count` records, which must fill the block. Raises InvalidRecord."""
    position = 0
    for index in range(record_count):
        try:
            bounds, position = _bounds_at(block, position)
        except IndexError:
            raise InvalidRecord(
                f"record {index} of {record_count} goes on after the {len(block)} bytes of its block"
            ) from None
        yield bounds
    if position != len(block):
        raise InvalidRecord(f"{len(block) - position} bytes follow the last of {record_count} records")


def records_fit(block: Buffer, position: int, record_count: int, records_max: int) -> bool:
    """Whether the lengths of the first `records_max` records, from `position` on, lead from one to the next.

    If those are all, the last must end with the block. Nothing but the lengths is looked at, which is what makes it
    cheap: some 150 ns per record where a walk takes ten times that.
    """
    end = len(block)
    looked_at = 0
    try:
        # Not a range: for the one record of a small batch, making one takes longer than looking at it.
        while looked_at < record_count and looked_at < records_max:
            looked_at += 1
            length = block[position]
            if length < 0x80:
                position += 1
            elif (second := block[position + 1]) < 0x80:
                length = length & 0x7F | second << 7
                position += 2
            else:
                length, position = read_varint(block, position)
                length <<= 1
            # Zig-zag: an odd number is a negative one.
            if length & 1 or length < 0:
                return False
            position += length >> 1
    except (IndexError, InvalidRecord):
        return False
    return position == end or (position < end and record_count > records_max)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """A batch of `records` with consecutive offsets from `base_offset` on, whatever offsets they carry.

    Base and max timestamp are the first and the largest of the records; with `log_append_time_ms`, readers see that
    moment for all of them. There must be at least one record.
    """
    found = records if isinstance(records, Sequence) else list(records)
    assert found, "a batch is built of at least one record"
    largest = max(record.timestamp for record in found)
    attributes = TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control | codec
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(found) - 1,
        base_timestamp=found[0].timestamp,
        max_timestamp=largest if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(found),
    )
    return _assemble(header, codec, _block_of(enumerate(found), header.base_timestamp), level)


def rebuild_batch(
    header: BatchHeader, records: Sequence[Record], *, codec: int | None = None, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` with only `records` left in it, perhaps none: what compaction keeps.

    Records keep their offsets, and the batch its range of offsets, producer fields, leader epoch and, unless `codec`
    says otherwise, its codec. The max timestamp becomes that of the records left. With `delete_horizon_ms` the batch
    is marked with that moment; a mark that it has already, stays.
    """
    base_timestamp, attributes, max_timestamp = header.base_timestamp, header.attributes, header.max_timestamp
    if delete_horizon_ms is not None and not header.has_delete_horizon:
        base_timestamp, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_BIT
    if header.timestamp_type != LOG_APPEND_TIME and records:
        max_timestamp = max(record.timestamp for record in records)
    kept = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    numbered = ((record.offset - header.base_offset, record) for record in records)
    return _assemble(kept, header.codec if codec is None else codec, _block_of(numbered, base_timestamp))


def recompress_batch(header: BatchHeader, block: Buffer, codec: int, level: int | None = None) -> bytearray:
    """The same batch with its decompressed `block` under another codec."""
    return _assemble(header, codec, block, level)


def _assemble(header: BatchHeader, codec: int, block: Buffer, level: int | None = None) -> bytearray:
    if header.codec != codec:
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    batch = bytearray(pack_batch_header(header))
    batch += compress(codec, block, level)
    seal_batch(batch)
    return batch


_NULL = build_varint(-1)
# The records of a batch have much the same lengths.
_length = lru_cache(maxsize=1024)(build_varint)


def _block_of(records: Iterable[tuple[int, Record]], base_timestamp: int) -> bytearray:
    """Of records and their offset deltas."""
    block = bytearray()
    for delta, (_, timestamp, key, value, headers) in records:
        # The attributes of a record are a byte that nothing uses yet.
        body = b"\0%b%b%b%b%b%b%b" % (
            b"\0" if timestamp == base_timestamp else build_varint(timestamp - base_timestamp),
            build_varint(delta),
            _NULL if key is None else _length(len(key)),
            key or b"",
            _NULL if value is None else _length(len(value)),
            value or b"",
            _block_of_headers(headers) if headers else b"\0",
        )
        block += _length(len(body)) + body
    return block


def _block_of_headers(headers: Sequence[RecordHeader]) -> bytes:
    parts = [_length(len(headers))]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (_length(len(key)), key, _NULL if value is None else _length(len(value)), value or b"")
    return b"".join(parts)


def _bounds_at(block: Buffer, position: int) -> tuple[RecordBounds, int]:
    """The bounds of the record at `position` and the position after it. Raises IndexError past the block's end.

    Most numbers here have one byte, so that case is written out; it halves the time.
    """
    length, position = read_varint(block, position)
    end = position + length
    if length < 0 or end > len(block):
        raise InvalidRecord(f"a record of {length} bytes at position {position} of a block of {len(block)}")
    position += 1  # The attributes, which nothing uses yet.
    if (byte := block[position]) < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        timestamp_delta, position = read_varlong(block, position)
    if (byte := block[position]) < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        offset_delta, position = read_varint(block, position)
    if (byte := block[position]) < 0x80:
        key_bytes = (byte >> 1) ^ -(byte & 1)
        key_start = position + 1
    else:
        key_bytes, key_start = read_varint(block, position)
    position = key_start + key_bytes if key_bytes > 0 else key_start
    if (byte := block[position]) < 0x80:
        value_bytes = (byte >> 1) ^ -(byte & 1)
        value_start = position + 1
    else:
        value_bytes, value_start = read_varint(block, position)
    header_count, headers_start = read_varint(block, value_start + value_bytes if value_bytes > 0 else value_start)
    if key_bytes < -1 or value_bytes < -1 or header_count < 0:
        raise InvalidRecord(f"a negative length at the record that ends at position {end}")
    if (_after_headers(block, headers_start, header_count) if header_count else headers_start) != end:
        raise InvalidRecord(f"the parts of a record do not end with it at position {end}")
    return (
        (timestamp_delta, offset_delta, key_start, key_bytes, value_start, value_bytes, headers_start, header_count),
        end,
    )


def _after_headers(block: Buffer, position: int, header_count: int) -> int:
    # Each header has two lengths at least, so a count that cannot be true ends at the block's end, by IndexError.
    for _ in range(header_count):
        name_bytes, position = read_varint(block, position)
        value_bytes, position = read_varint(block, position + max(name_bytes, 0))
        position += max(value_bytes, 0)
        if name_bytes < 0 or value_bytes < -1:
            raise InvalidRecord(f"a negative length in a header before position {position}")
    return position


def _headers_at(block: bytes, position: int, header_count: int) -> tuple[RecordHeader, ...]:
    headers: list[RecordHeader] = []
    for _ in range(header_count):
        name_bytes, position = read_varint(block, position)
        name = block[position : position + name_bytes].decode("utf-8", "surrogateescape")
        value_bytes, position = read_varint(block, position + name_bytes)
        headers.append((name, None if value_bytes < 0 else block[position : position + value_bytes]))
        position += max(value_bytes, 0)
    return tuple(headers)


def _header_of_whole_batch(view: Buffer) -> BatchHeader:
    header = parse_batch_header(view)
    if header.magic != MAGIC or not BATCH_LENGTH_MIN <= header.batch_length <= len(view):
        raise CorruptMessage(f"no whole batch of magic {MAGIC}: magic {header.magic}, length {header.batch_length}")
    if header.size_bytes > len(view) or header.record_count < 0:
        raise CorruptMessage(f"a batch of {header.size_bytes} bytes and {header.record_count} records in {len(view)}")
    return header
