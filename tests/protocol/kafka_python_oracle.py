"""kafka-python's codec as an independent judge of ours: built from Kafka's own schema files."""

import importlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import Field, Message, fields_of

VERSION_BYTES = 2
UNKNOWN_OPERATIONS = -(2**31)

for _module in ("admin", "consumer", "consumer.metadata", "metadata", "producer"):
    importlib.import_module(f"kafka.protocol.{_module}")


def _subclasses(cls: type) -> dict[str, Any]:
    found = {sub.__name__: sub for sub in cls.__subclasses__()}
    return {name: sub for name, sub in found.items() if not name[-1].isdigit()}


CLASSES = {**_subclasses(ApiMessage), **_subclasses(ApiData)}


def knows(cls: type[Message], version: int) -> bool:
    theirs = CLASSES.get(cls.__name__)
    return theirs is not None and version <= theirs._struct.max_version


def encode(message: Message, version: int) -> bytes:
    data = bytes(from_ours(message, version).encode(version=version))
    return data[VERSION_BYTES:] if message.API_KEY < 0 else data


def decode(cls: type[Message], version: int, data: bytes) -> Message:
    theirs = CLASSES[cls.__name__]
    if cls.API_KEY < 0:
        decoded = theirs.decode(version.to_bytes(VERSION_BYTES, "big") + data, version=version)
    else:
        # Past the class's own method: ApiVersionsResponse reads every answer with an error as version 0.
        decoded = ApiMessage.decode.__func__(theirs, data, version=version)
    return _to_ours(decoded, cls, version)


def from_ours(message: Message, version: int, theirs: Any = None) -> Any:
    """Their object with our values. Tagged fields are given only when they differ from their defaults."""
    theirs = theirs or CLASSES[type(message).__name__]
    values = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == field.default_value()):
            continue
        name = _their_name(field, theirs)
        if field.struct is not None:
            struct = theirs._struct.fields[name].data_class
            value = _each(field, value, lambda item, struct=struct: from_ours(item, version, struct))
        elif field.type_name == "uuid":
            value = _each(field, value, lambda item: UUID(bytes=item))
        elif _is_bits(field, theirs):
            value = {bit for bit in range(32) if value >> bit & 1}
        values[name] = value
    return theirs(version=version, **values)


def _to_ours(theirs: Any, cls: type[Message], version: int) -> Message:
    message = cls()
    for field in fields_of(cls):
        name = _their_name(field, theirs)
        if version not in field.versions or (field.tag is not None and name not in (theirs.tags or ())):
            continue
        value = getattr(theirs, name)
        if field.struct is not None:
            value = _each(field, value, lambda item, struct=field.struct: _to_ours(item, struct, version))
        elif field.type_name == "uuid":
            value = ZERO_UUID if value is None else _each(field, value, lambda item: item.bytes)
        elif _is_bits(field, theirs):
            value = UNKNOWN_OPERATIONS if value is None else sum(-(2**31) if bit == 31 else 1 << bit for bit in value)
        setattr(message, field.name, value)
    return message


def _each(field: Field, value: Any, convert: Callable[[Any], Any]) -> Any:
    if value is None:
        return None
    return [convert(item) for item in value] if field.is_array else convert(value)


def _is_bits(field: Field, theirs: Any) -> bool:
    """In most messages they have sets of bits for authorized operations, under one name."""
    return field.name.endswith("authorized_operations") and "authorized_operations" in theirs._struct.fields


def _their_name(field: Field, theirs: Any) -> str:
    return "authorized_operations" if _is_bits(field, theirs) else field.name
