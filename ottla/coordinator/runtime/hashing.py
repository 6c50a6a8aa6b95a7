"""Texts as Java sees them: which partition of `__consumer_offsets` a group lives in (docs/semantics §4.1), and how
long a text is."""

import struct
from functools import lru_cache

_INT32_MIN = -0x8000_0000


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in 32 bits, signed."""
    value = 0
    for (code_unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + code_unit) & 0xFFFF_FFFF
    return value + 2 * _INT32_MIN if value >= -_INT32_MIN else value


# Every heartbeat asks. The limits keep clients that make up names from filling the memory.
_SHORT = 256
_hash_of_short = lru_cache(maxsize=4096)(java_hash)


def java_length(text: str) -> int:
    """`String.length` of Java: in UTF-16 code units, of which a character beyond the basic plane takes two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps `group_id`, of `partition_count` partitions."""
    hash_code = _hash_of_short(group_id) if len(group_id) <= _SHORT else java_hash(group_id)
    # Java's Math.abs leaves the smallest int negative; Kafka's own abs makes it 0.
    return (0 if hash_code == _INT32_MIN else abs(hash_code)) % partition_count
