"""What all compiled codecs share: the one error of decoding, variable-length integers, tag sections.

Kafka's flexible versions write lengths as unsigned varints of length + 1 (0 is null) and end each structure with a
section of tagged fields (KIP-482).

Inside record batches stand zig-zag integers: a varint has 32 bits, a varlong 64. Their readers take at most 5 and 10
bytes and refuse a number that does not fit, rather than wrap it. A buffer that ends within the number raises
IndexError, which callers that own the bounds translate once for a whole record.
"""

from typing import Final

from ottla.protocol.errors import InvalidRecord

Buffer = bytes | bytearray | memoryview

RecordBuffers = bytes | bytearray | memoryview | list[bytes | memoryview]
"""What may be encoded as records: one buffer, or the pieces of one."""

ZERO_UUID: Final = bytes(16)

TAGS_MAX: Final = 64
"""Most tagged fields in one structure. The protocol names no limit; no message of Kafka has more than a handful."""


class DecodeError(ValueError):
    """The bytes are not a message of the expected layout, or would take more memory than their size allows."""


def truncated() -> DecodeError:
    return DecodeError("the data ends inside a field")


def null_refused() -> DecodeError:
    return DecodeError("null or a negative length where a value is required")


def count_too_large() -> DecodeError:
    return DecodeError("an array claims more elements than its bytes can hold")


def over_budget() -> DecodeError:
    return DecodeError("the message would take too much memory for its size")


def tag_misplaced() -> DecodeError:
    return DecodeError("a tagged field is out of order, repeated or not of its stated size")


def parse_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 32 bits; give it and the position after it."""
    value = shift = 0
    for _ in range(5):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise DecodeError("a varint is longer than 5 bytes or 32 bits")


def rest_of_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a varint again whose first byte, the one before `position`, was seen to continue."""
    second = buffer[position]
    # Two bytes are enough for nearly every length that one is too small for.
    if second < 0x80:
        return buffer[position - 1] & 0x7F | second << 7, position + 1
    return parse_uvarint(buffer, position - 1)


def build_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    # The lengths of nearly all batches of records.
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, position: int, count: int, end: int) -> int:
    """Pass over a tag section none of whose tags is known; `count` is its first byte, already read.

    Nothing of an unknown tag is kept: the header is parsed before a client has logged in.
    """
    count, position = check_tag_count(buffer, position, count)
    last = -1
    for _ in range(count):
        tag, size, position = parse_tag_head(buffer, position, end, last)
        last = tag
        position += size
    return position


def check_tag_count(buffer: Buffer, position: int, first_byte: int) -> tuple[int, int]:
    """The number of tags of a section whose first byte was read, and the position of the first tag."""
    if first_byte > 0x7F:
        first_byte, position = rest_of_uvarint(buffer, position)
    if first_byte > TAGS_MAX:
        raise DecodeError(f"{first_byte} tagged fields in one structure, at most {TAGS_MAX} allowed")
    return first_byte, position


def parse_tag_head(buffer: Buffer, position: int, end: int, last: int) -> tuple[int, int, int]:
    """Tag, size and where the value starts; tags must rise above `last` and values must fit before `end`."""
    tag = buffer[position]
    position += 1
    if tag > 0x7F:
        tag, position = rest_of_uvarint(buffer, position)
    size = buffer[position]
    position += 1
    if size > 0x7F:
        size, position = rest_of_uvarint(buffer, position)
    if tag <= last:
        raise tag_misplaced()
    if size > end - position:
        raise truncated()
    return tag, size, position


def skip_header_tags(view: Buffer, position: int, end: int) -> int:
    """Where the body begins after a header whose tagged fields begin at `position`. Raises DecodeError."""
    if position >= end:
        raise truncated()
    try:
        return skip_tags(view, position + 1, view[position], end)
    except IndexError:
        raise truncated() from None


_VARINT_BITS = 32
_VARLONG_BITS = 64


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The 32-bit number at `position` and the position after it. Raises InvalidRecord, IndexError."""
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:
        unsigned = (byte & 0x7F) | second << 7
        return (unsigned >> 1) ^ -(unsigned & 1), position + 2
    return _read_bits(buffer, position, _VARINT_BITS)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The 64-bit number at `position` and the position after it. Raises InvalidRecord, IndexError."""
    return _read_bits(buffer, position, _VARLONG_BITS)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def build_varint(number: int) -> bytes:
    """The bytes of a number of 32 or 64 bits; the two are written alike."""
    unsigned = (number << 1) if number >= 0 else ((-number << 1) - 1)
    return _ONE_BYTE[unsigned] if unsigned < 0x80 else build_uvarint(unsigned)


def _read_bits(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    unsigned = 0
    for shift in range(0, bits, 7):
        byte = buffer[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            if unsigned >> bits:
                break
            return (unsigned >> 1) ^ -(unsigned & 1), position
    raise InvalidRecord(f"a variable-length integer ends beyond {bits} bits at position {position}")
