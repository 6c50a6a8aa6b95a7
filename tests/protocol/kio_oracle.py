"""kio's codec as a second independent judge: generated from Kafka's schema files into one dataclass per version.

Its field names and types differ from the wire's (durations, moments, enumerations), so values are compared as flat
lists in the order of the schema.
"""

import dataclasses
import datetime
import enum
import io
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kio.index import load_entity_module
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import Message, fields_of

KINDS = {"Request": EntityType.request, "Response": EntityType.response}
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def _kind_of(cls: type[Message]) -> EntityType:
    return next((kind for suffix, kind in KINDS.items() if cls.__name__.endswith(suffix)), EntityType.data)


def _schema_name(cls: type[Message]) -> str:
    own = cls.__module__.rsplit(".", 1)[1]
    if own != "consumer_protocol":
        return own
    return f"consumer_protocol_{cls.__name__.removeprefix('ConsumerProtocol').lower()}"


def knows(cls: type[Message], version: int) -> bool:
    return _kind_of(cls) in schema_name_map.get(_schema_name(cls), {}).get(version, {})


def _their_class(cls: type[Message], version: int) -> Any:
    return getattr(load_entity_module(_schema_name(cls), version, _kind_of(cls)), cls.__name__)


def their_entity(cls: type[Message], version: int, data: bytes) -> Any:
    """Their reading of the bytes, as a dataclass."""
    entity, size = entity_reader(_their_class(cls, version))(data, 0)
    assert size == len(data), "kio sees another end of the message"
    return entity


def decode_and_encode(cls: type[Message], version: int, data: bytes) -> tuple[list[Any], bytes]:
    """Their reading of the bytes, flat, and their writing of what they read."""
    entity = their_entity(cls, version, data)
    buffer = io.BytesIO()
    entity_writer(_their_class(cls, version))(buffer, entity)
    return list(_flat_theirs(entity)), buffer.getvalue()


def flat_ours(message: Message, version: int) -> list[Any]:
    return list(_flat_ours(message, version))


def _flat_ours(message: Message, version: int) -> Iterator[Any]:
    for field in fields_of(type(message)):
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if value is None and field.struct is not None and not field.is_array and field.tag is not None:
            value = field.struct()
        for item in (value or [None]) if field.is_array else [value]:
            if isinstance(item, Message):
                yield from _flat_ours(item, version)
            else:
                yield item


def _flat_theirs(entity: Any) -> Iterator[Any]:
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        for item in (value or [None]) if isinstance(value, tuple) else [value]:
            if dataclasses.is_dataclass(item):
                yield from _flat_theirs(item)
            else:
                yield _plain(item, field.metadata.get("kafka_type"))


def _plain(value: Any, kafka_type: str | None) -> Any:
    match value:
        case None:
            return {"uuid": ZERO_UUID, "datetime_i64": -1}.get(kafka_type or "")
        case UUID():
            return value.bytes
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case enum.Enum():
            return value.value
        case _:
            return value
