"""Messages made to cost a decoder much memory for few bytes: one array with as many elements as a size allows."""

from collections.abc import Iterator
from typing import Any

from ottla.protocol.codec import encode
from ottla.protocol.schema import Field, Message, fields_of

Path = tuple[str, ...]

TEXTS = ["", "ab", "€"]
LARGE_NUMBERS = {
    "int8": -100,
    "int16": -30000,
    "uint16": 60000,
    "int32": 2**31 - 1,
    "uint32": 2**32 - 1,
    "int64": 2**62,
}


def array_paths(cls: type[Message], version: int, path: Path = ()) -> Iterator[Path]:
    for field in fields_of(cls):
        if version in field.versions:
            inner = (*path, field.name)
            if field.is_array:
                yield inner
            if field.struct is not None:
                yield from array_paths(field.struct, version, inner)


def costly_message(cls: type[Message], version: int, path: Path, count: int, text: str, others: int) -> Any:
    """The array at `path` has `count` elements, the arrays around it one, the arrays within it `others`."""
    message = cls()
    for field in fields_of(cls):
        if version in field.versions:
            is_next = bool(path) and field.name == path[0]
            rest = path[1:] if is_next else ()
            number = (1 if rest else count) if is_next else others if not path else 0
            setattr(message, field.name, _costly_field(field, version, rest, number, count, text, others))
    return message


def _costly_field(field: Field, version: int, rest: Path, number: int, count: int, text: str, others: int) -> Any:
    if field.struct is not None:
        element = costly_message(field.struct, version, rest, count, text, others)
    elif field.type_name == "string":
        element = text
    elif field.type_name in ("bytes", "records"):
        element = text.encode()
    else:
        element = LARGE_NUMBERS.get(field.type_name, field._replace(is_array=False).default_value())
    return [element] * number if field.is_array else element


def costly_frames(cls: type[Message], version: int, size: int) -> Iterator[bytes]:
    """Frames of about `size` bytes."""
    for path in array_paths(cls, version):
        for text in TEXTS:
            for others in (0, 1):
                single = encode(costly_message(cls, version, path, 1, text, others), version)
                double = encode(costly_message(cls, version, path, 2, text, others), version)
                count = max(1, (size - len(single)) // (len(double) - len(single)))
                yield encode(costly_message(cls, version, path, count, text, others), version)
