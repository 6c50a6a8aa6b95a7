"""The four codecs of record batches, and decompression that no input can make expensive.

Decompressed bytes go into a buffer that the caller of the codec owns, so a codec cannot produce more than it was
given room for. The room grows in steps while the input really fills it, up to the limit; sizes that the input declares
about itself never lead to an allocation (a Snappy length was a published hole in Kafka's broker).
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct, pack

import cramjam

from ottla.protocol.errors import InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from ottla.protocol.primitives import Buffer


class Codec(IntEnum):
    """The number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Maximum size that one batch may decompress to when it is read; no topic takes in more (`storage/validation.py`)."""

_ROOM_BYTES_MIN = 64 * 1024
_ROOM_PER_INPUT_BYTE = 8
_ROOM_GROWTH = 4
# How every streaming codec of cramjam reports that the room was too small; it has no type of its own.
_OUT_OF_ROOM = "failed to write whole buffer"

# What snappy-java puts before its blocks: a magic, its version and the oldest version that can read it.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
# The densest element of a Snappy block copies 64 bytes and takes 3.
_SNAPPY_EXPANSION_MAX = 22


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as Kafka's Java client would write it; `level` is the codec's own, None its default.

    Raises UnsupportedCompressionType for a number that no codec has.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Kafka's Java reader refuses blocks that refer to earlier ones, which the library writes by default.
            stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            stream.compress(bytes(data))
            return bytes(stream.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))
        case _:
            raise UnsupportedCompressionType(f"no codec has the number {codec}")


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The bytes that `data` was made of, at most `limit` of them; with Codec.NONE, `data` itself.

    Raises MessageTooLarge beyond the limit (a Java producer then splits its batch), InvalidRecord if `data` is not of
    that codec, UnsupportedCompressionType for a number that no codec has.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_streaming(cramjam.gzip.decompress_into, "gzip", data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _decompress_streaming(cramjam.lz4.decompress_into, "lz4", data, limit)
        case Codec.ZSTD:
            return _decompress_streaming(cramjam.zstd.decompress_into, "zstd", data, limit)
        case _:
            raise UnsupportedCompressionType(f"no codec has the number {codec}")


def _decompress_streaming(
    decompress_into: Callable[[Buffer, bytearray], int], name: str, data: Buffer, limit: int
) -> bytearray:
    room_bytes = min(max(_ROOM_BYTES_MIN, len(data) * _ROOM_PER_INPUT_BYTE), limit)
    while True:
        room = bytearray(room_bytes)
        try:
            produced = decompress_into(data, room)
        except cramjam.DecompressionError as error:
            if str(error) != _OUT_OF_ROOM:
                raise InvalidRecord(f"the block is not {name}: {error}") from None
            if room_bytes >= limit:
                raise _too_large(name, limit) from None
            room_bytes = min(room_bytes * _ROOM_GROWTH, limit)
            continue
        del room[produced:]
        return room


def _decompress_snappy(data: Buffer, limit: int) -> bytearray:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        out = bytearray()
        _append_raw_snappy(out, view, limit)
        return out
    return _decompress_xerial(view, limit)


def _decompress_xerial(view: memoryview, limit: int) -> bytearray:
    """Blocks, each after its length. Streams may have been joined, so a header may stand where a length should."""
    out = bytearray()
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        start = position + _BLOCK_LENGTH.size
        if start > len(view):
            raise InvalidRecord("the block is not snappy: it ends within a length")
        position = start + _BLOCK_LENGTH.unpack_from(view, position)[0]
        if not start <= position <= len(view):
            raise InvalidRecord(
                f"the block is not snappy: {position - start} bytes announced, {len(view) - start} left"
            )
        _append_raw_snappy(out, view[start:position], limit)
    return out


def _append_raw_snappy(out: bytearray, block: memoryview, limit: int) -> None:
    """Append one raw block. Its declared length gets room only if so few bytes can at all become so many."""
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > _SNAPPY_EXPANSION_MAX * len(block):
            raise InvalidRecord(f"the block is not snappy: {len(block)} bytes cannot become {declared}")
        if len(out) + declared > limit:
            raise _too_large("snappy", limit)
        room = bytearray(declared)
        produced = cramjam.snappy.decompress_raw_into(block, room)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"the block is not snappy: {error}") from None
    out += memoryview(room)[:produced]


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _too_large(name: str, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the {name} block decompresses to more than {limit} bytes")
