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

    A number has a lane for each unit, of 16 bits; then for each pair, of 32, and for each four, of 64: the left one of
    two is multiplied by the power of 31 that it stands before and added to the other. From there on the upper half of
    the number is folded onto the lower one in the same way, until one lane is left. 32 bits of a lane are its value,
    and products do not leave it."""
    lanes = 1 << max((len(units) // 2 - 1).bit_length() - 2, 0)
    value = int.from_bytes(units, "big")
    mask = int.from_bytes(b"\0\0\xff\xff" * (2 * lanes), "big")
    value = ((value >> 16) & mask) * 31 + (value & mask)
    mask = int.from_bytes(b"\0\0\0\0\xff\xff\xff\xff" * lanes, "big")
    value = ((value >> 32) & mask) * 31**2 + (value & mask)
    while lanes > 1:
        lanes //= 2
        mask >>= 64 * lanes
        upper = value >> (64 * lanes)
        lower = value & ((1 << (64 * lanes)) - 1)
        value = (upper * pow(31, 4 * lanes, 1 << 32) + lower) & mask
    return value & 0xFFFF_FFFF


def _absolute_hash(text: str) -> int:
    """Java's Math.abs leaves the smallest int negative; Kafka's own abs makes it 0."""
    value = java_hash(text)
    return 0 if value == _INT32_MIN else abs(value)


# Every heartbeat asks. The limits keep clients that make up names from filling the memory.
_absolute_hash_of_short = lru_cache(maxsize=4096)(_absolute_hash)


def forget_names() -> None:
    """To be called now and then. What is remembered of names that are not in use any more is little, but lies between
    what was allocated with it, and keeps all that memory from being given back."""
    _absolute_hash_of_short.cache_clear()


def java_length(text: str) -> int:
    """`String.length` of Java: in UTF-16 code units, of which a character beyond the basic plane takes two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps `group_id`, of `partition_count` partitions."""
    absolute = _absolute_hash_of_short(group_id) if len(group_id) <= _SHORT else _absolute_hash(group_id)
    return absolute % partition_count
