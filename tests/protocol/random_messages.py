"""Random messages that use everything a version has: nulls, empty arrays, tagged fields, long and non-ASCII text."""

import random
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Field, Message, fields_of

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXTS = ["", "a", "topic-1", "größe", "主题", "🙂🙂", "x" * 126, "y" * 127, "z" * 128, "consumer-7f3c", "é" * 70]
ERROR_CODES = [int(code) for code in ErrorCode]
MOMENT_MAX = 4_102_444_800_000  # The year 2100, in milliseconds: one of the oracles makes dates of timestamps.


def random_message(cls: type[Message], version: int, rng: random.Random) -> Any:
    message = cls()
    for field in fields_of(cls):
        if version in field.versions:
            setattr(message, field.name, random_field(field, version, rng))
    return message


def random_field(field: Field, version: int, rng: random.Random) -> Any:
    if field.tag is not None and rng.random() < 0.5:
        return field.default_value()
    if version in field.nullable and rng.random() < 0.25:
        return None
    if field.is_array:
        count = rng.choice([0, 1, 1, 2, 3] if field.struct else [0, 1, 3, 20, 130])
        return [random_element(field, version, rng) for _ in range(count)]
    element = random_element(field, version, rng)
    is_left_out = field.tag is not None and field.struct is not None and element == field.struct()
    return None if is_left_out else element


def random_element(field: Field, version: int, rng: random.Random) -> Any:
    if field.struct is not None:
        return random_message(field.struct, version, rng)
    match field.type_name:
        case "string":
            return rng.choice(TEXTS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 61, 130]))
        case "uuid":
            return rng.randbytes(16) if rng.random() < 0.8 else bytes(16)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e6, 1e6)
        case _ if "error_code" in field.name:
            return rng.choice(ERROR_CODES)
        case "int64" if "time" in field.name:
            return rng.randint(0, MOMENT_MAX)
        case number:
            low, high = RANGES[number]
            return rng.choice([low, high, 0, 1, -1 if low else 1, rng.randint(low, high)])
