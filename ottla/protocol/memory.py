"""What decoding may cost: at most 24 bytes of memory per byte of a request, plus 64 KiB, whatever the bytes are.

A few bytes on the wire can become an object of hundreds. So each array pays for its elements out of a budget before the
first of them is made. `element_cost` is the most that an element takes, without the contents of its text and bytes.
Contents cost one byte per byte of the wire, and so does the copy of the frame that most messages are decoded from:
hence a budget of 22 and not 24 times the frame. Text outside ASCII has larger headers and up to four bytes for one of
the wire; it pays for itself when it is met. Fields outside of arrays are few and covered by the 64 KiB.

What real clients send stays far below, because their arrays hold names, offsets and record batches and not empty
strings; tests hold that for ten thousand topics and partitions.

A response may cost 66 bytes per byte. It comes from a broker that this side has chosen to ask, and is full of small
things: an idle partition of Fetch is 37 bytes on the wire and an object of almost a thousand.
"""

import struct
from collections.abc import Iterator
from typing import Final

from ottla.protocol.schema import FORMATS, Field, Message, fields_of
from ottla.protocol.source import LENGTH_FORMATS, plain_fields

REQUEST_BUDGET_PER_BYTE: Final = 22
RESPONSE_BUDGET_PER_BYTE: Final = 64
BUDGET_BASE: Final = 60_000

ARRAY_COST: Final = 32
"""The first slots of a list."""

TEXT_COST: Final = 32
TEXT_COST_PER_BYTE: Final = 3
"""What text outside ASCII takes more than `_VALUE_SIZES` and its bytes on the wire say."""

# Sizes of CPython's objects on 64 bits, as sys.getsizeof gives them.
_INSTANCE_SIZE: Final = 32  # The object's and the garbage collector's headers; each slot adds 8.
_SLOT_SIZE: Final = 8
_LIST_SIZE: Final = 56
_LIST_SLOT: Final = 9  # Lists grow by an eighth at a time.
_VALUE_SIZES: Final = {
    "bool": 0,
    "int8": 28,
    "int16": 28,
    "uint16": 28,
    "int32": 32,
    "uint32": 32,
    "int64": 36,
    "float64": 24,
    "uuid": 49,
    "string": 50,
    "bytes": 33,
    "records": 200,
}


def budget_per_byte(message: type[Message]) -> int:
    """Of a frame that holds such a message."""
    return RESPONSE_BUDGET_PER_BYTE if message.__name__.endswith("Response") else REQUEST_BUDGET_PER_BYTE


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes of the wire that a value of the field, or one element of its array, takes."""
    if field.type_name in LENGTH_FORMATS:
        return 1 if flexible else struct.calcsize(">" + LENGTH_FORMATS[field.type_name])
    if field.struct is None:
        return struct.calcsize(">" + FORMATS[field.type_name])
    size = 1 if flexible else 0
    for inner in plain_fields(field.struct, version):
        if inner.is_array:
            size += 1 if flexible else 4
        elif inner.struct is not None and version in inner.nullable:
            size += 1
        else:
            size += minimum_size(inner, version, flexible)
    return size


def element_cost(field: Field, version: int) -> int:
    """The most memory that one element of an array takes, without the contents of text and bytes."""
    if field.struct is not None:
        return _LIST_SLOT + _struct_cost(field.struct, version)
    between = 0 if field.type_name in LENGTH_FORMATS else 8  # Numbers pass through a tuple.
    return _LIST_SLOT + between + _value_size(field)


def _struct_cost(cls: type[Message], version: int) -> int:
    fields = fields_of(cls)
    cost = _INSTANCE_SIZE + _SLOT_SIZE * len(fields)
    for field in fields:
        if field.is_array:
            cost += _LIST_SIZE if field.default_is_fresh() or version in field.versions else 0
        elif version in field.versions:
            cost += _value_size(field) if field.struct is None else _struct_cost(field.struct, version)
    return cost


def _value_size(field: Field) -> int:
    return _VALUE_SIZES["records" if field.is_view else field.type_name]


def uncharged_size(message: type[Message], version: int, flexible: bool) -> int:
    """The largest frame that keeps to the budget whatever its bytes are."""
    costs = _costs_per_byte(message, version, flexible)
    dearest, budget = max(costs, default=0.0), budget_per_byte(message)
    return 1 << 31 if dearest <= budget else int(BUDGET_BASE / (dearest - budget))


def _costs_per_byte(cls: type[Message], version: int, flexible: bool) -> Iterator[float]:
    """For each array, the most that a byte of its elements can cost. No byte counts towards two arrays: an element's
    smallest size does not hold what is in arrays within it."""
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        if field.is_array:
            yield (element_cost(field, version) + ARRAY_COST) / minimum_size(field, version, flexible)
        if field.struct is not None:
            yield from _costs_per_byte(field.struct, version, flexible)
