"""Texts as Java sees them: which partition of `__consumer_offsets` a group lives in (docs/semantics §4.1), and how
long a text is."""

import struct
from functools import lru_cache

_INT32_MIN = -0x8000_0000


_SHORT = 256


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    if len(text) > _SHORT:
        value = _folded(units)
    else:
        value = 0
        for (code_unit,) in struct.iter_unpack(">H", units):
            value = (31 * value + code_unit) & 0xFFFF_FFFF
    return value + 2 * _INT32_MIN if value >= -_INT32_MIN else value


def _folded(units: bytes) -> int:
    """The hash of many code units, unsigned: nothing bounds a group id, and a loop over a long one takes milliseconds.

    A number has a lane of 64 bits for each unit. Its upper half is multiplied by the power of 31 that it stands before
    and added to the lower one, until one is left. 32 bits of a lane are its value, and products do not leave it."""
    count = len(units) // 2
    lanes = 1 << (count - 1).bit_length()
    spread = bytearray(8 * count)
    spread[6::8] = units[::2]
    spread[7::8] = units[1::2]
    value = int.from_bytes(spread, "big")
    mask = int.from_bytes(b"\0\0\0\0\xff\xff\xff\xff" * lanes, "big")
    while lanes > 1:
        lanes //= 2
        mask >>= 64 * lanes
        upper = value >> (64 * lanes)
        lower = value & ((1 << (64 * lanes)) - 1)
        value = (upper * pow(31, lanes, 1 << 32) + lower) & mask
    return value


# Every heartbeat asks. The limits keep clients that make up names from filling the memory.
_hash_of_short = lru_cache(maxsize=4096)(java_hash)


def java_length(text: str) -> int:
    """`String.length` of Java: in UTF-16 code units, of which a character beyond the basic plane takes two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps `group_id`, of `partition_count` partitions."""
    hash_code = _hash_of_short(group_id) if len(group_id) <= _SHORT else java_hash(group_id)
    # Java's Math.abs leaves the smallest int negative; Kafka's own abs makes it 0.
    return (0 if hash_code == _INT32_MIN else abs(hash_code)) % partition_count
