"""Zig-zag variable-length integers, as they stand inside record batches: a varint has 32 bits, a varlong 64.

Readers take at most 5 and 10 bytes and refuse a number that does not fit, rather than wrap it. A buffer that ends
within the number raises IndexError, which callers that own the bounds translate once for a whole record.
"""

from ottla.protocol.errors import InvalidRecord
from ottla.protocol.records.crc import Buffer

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
    return _read(buffer, position, _VARINT_BITS)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The 64-bit number at `position` and the position after it. Raises InvalidRecord, IndexError."""
    return _read(buffer, position, _VARLONG_BITS)


def append_varint(out: bytearray, number: int) -> None:
    """Append a number of 32 or 64 bits; the two are written alike."""
    unsigned = (number << 1) if number >= 0 else ((-number << 1) - 1)
    while unsigned > 0x7F:
        out.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    out.append(unsigned)


def _read(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
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
