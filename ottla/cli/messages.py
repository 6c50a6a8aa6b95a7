"""How a record looks outside of Kafka: as text where it is text, as base64 where it is not.

`ottla consume --json` writes what `ottla produce --from-json` reads.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to produce; None for partition and timestamp leaves the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def as_json(data: bytes | None) -> str | dict[str, str] | None:
    """A JSON value for bytes: null, a string if they are UTF-8, otherwise `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def as_text(data: bytes | None) -> str:
    """One line's worth of text for bytes; nothing for null."""
    match as_json(data):
        case None:
            return ""
        case str(text):
            return text
        case encoded:
            return f"base64:{encoded['base64']}"


def from_json(line: bytes) -> ProducerRecord:
    """Raises ValueError with a sentence."""
    try:
        fields: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(fields, Mapping):
        raise ValueError("is not a JSON object")
    record = cast("Mapping[str, Any]", fields)
    if "value" not in record:
        raise ValueError("has no value")
    return ProducerRecord(
        value=_bytes("value", record["value"]),
        key=_bytes("key", record.get("key")),
        headers=_headers(record.get("headers") or []),
        partition=_count("partition", record.get("partition")),
        timestamp_ms=_count("timestamp", record.get("timestamp")),
    )


def _bytes(name: str, value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise ValueError(f"has a {name} that is not base64") from error
        case _:
            return json.dumps(value, ensure_ascii=False).encode()


def _headers(value: Any) -> tuple[Header, ...]:
    if not _is_list(value):
        raise ValueError("has headers that are not a list of [name, value]")
    headers: list[Header] = []
    for pair in value:
        match pair:
            case [str(name), header]:
                headers.append((name, _bytes("header", header)))
            case _:
                raise ValueError("has headers that are not a list of [name, value]")
    return tuple(headers)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _count(name: str, value: Any) -> int | None:
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"has a {name} that is not a number from 0")
