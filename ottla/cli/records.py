"""How a record looks outside of Kafka: as text where it is text, as base64 where it is not.

`ottla consume --json` writes what `ottla produce --from-json` reads.
"""

import base64
import binascii
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeGuard, cast

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to produce; None for partition and timestamp leaves the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def bytes_as_json(data: bytes | None) -> str | dict[str, str] | None:
    """A JSON value for bytes: null, a string if they are UTF-8, otherwise `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_as_text(data: bytes | None) -> str:
    """One line's worth of text for bytes; nothing for null."""
    match bytes_as_json(data):
        case None:
            return ""
        case str(text):
            return text
        case encoded:
            return f"base64:{encoded['base64']}"


def record_from_json(line: bytes) -> ProducerRecord:
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


FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class WriteRecord(Protocol):
    def __call__(self, record: Any, /) -> str:
        """The line to print for a record."""
        ...


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Pieces of literal text, each with the field that follows it."""

    pieces: tuple[tuple[str, str | None], ...]

    def __call__(self, record: Any, /) -> str:
        return "".join(literal + (_field(record, name) if name else "") for literal, name in self.pieces)


class JsonLine:
    def __call__(self, record: Any, /) -> str:
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": bytes_as_json(record.key),
            "value": bytes_as_json(record.value),
            "headers": [[name, bytes_as_json(value)] for name, value in record.headers],
        }
        return json.dumps(fields, ensure_ascii=False)


def parse_format(text: str) -> RecordFormat:
    """Raises ValueError with a sentence."""
    pieces: list[tuple[str, str | None]] = []
    try:
        parsed = list(string.Formatter().parse(text.replace("\\t", "\t").replace("\\n", "\n")))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a format: {error}") from error
    for literal, name, spec, conversion in parsed:
        if (name is not None and name not in FIELDS) or spec or conversion:
            raise ValueError(f"a format knows {', '.join(f'{{{field}}}' for field in FIELDS)}, not {name!r}")
        pieces.append((literal, name))
    return RecordFormat(tuple(pieces))


def _field(record: Any, name: str) -> str:
    match name:
        case "key" | "value":
            return bytes_as_text(getattr(record, name))
        case "timestamp":
            return utc_moment(record.timestamp)
        case "headers":
            return ",".join(f"{header}={bytes_as_text(value)}" for header, value in record.headers)
        case _:
            return str(getattr(record, name))


def utc_moment(timestamp_ms: int) -> str:
    """The time in UTC; a number that no calendar holds stays a number."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
