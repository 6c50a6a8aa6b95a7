"""How `ottla consume` writes a record."""

import json
import string
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from ottla.cli.messages import as_json, as_text

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class WriteRecord(Protocol):
    def __call__(self, record: Any, /) -> str | None:
        """What to print for the record; None for nothing."""
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
            "key": as_json(record.key),
            "value": as_json(record.value),
            "headers": [[name, as_json(value)] for name, value in record.headers],
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
            return as_text(getattr(record, name))
        case "timestamp":
            return _moment(record.timestamp)
        case "headers":
            return ",".join(f"{header}={as_text(value)}" for header, value in record.headers)
        case _:
            return str(getattr(record, name))


def _moment(timestamp_ms: int) -> str:
    """The time in UTC; a number that no calendar holds stays a number."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
