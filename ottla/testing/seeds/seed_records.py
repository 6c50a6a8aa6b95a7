"""The records of a seed."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ottla.protocol.records.record import Record
from ottla.testing.seeds.seed_schema import PAYLOADS, SeedError

Json: TypeAlias = "str | int | float | list[Json] | dict[str, Json] | None"


def records_of(given: Mapping[str, Any], directory: Path | None, path: str) -> Iterator[Record]:
    """`given` is a record of the schema, `directory` that of its files, None where it may name none. Raises
    SeedError."""
    payloads = [name for name in PAYLOADS if name in given]
    if len(payloads) != 1:
        raise SeedError(f"{path}: expected one of {', '.join(PAYLOADS)}, not {len(payloads)} of them")
    (kind,) = payloads
    content = _bytes_of(kind, given[kind], directory, f"{path}.{kind}") if kind in ("base64", "file") else None
    count = given.get("count")
    for n in range(count or 1):
        number = None if count is None else n
        key, headers = given.get("key"), given.get("headers", {})
        yield Record(
            timestamp=given.get("timestamp", -1),
            key=None if key is None else _filled(key, number).encode(),
            value=content if content is not None else _text_value(kind, given[kind], number),
            headers=[(name, _filled(text, number).encode()) for name, text in headers.items()],
        )


def _text_value(kind: str, given: Any, n: int | None) -> bytes | None:
    if kind == "json":
        filled = _filled_json(given, n)
        return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode()
    return None if given is None else _filled(given, n).encode()


def _bytes_of(kind: str, given: str, directory: Path | None, path: str) -> bytes:
    if kind == "base64":
        try:
            return base64.b64decode(given, validate=True)
        except binascii.Error as error:
            raise SeedError(f"{path}: not base64: {error}") from None
    if directory is None:
        raise SeedError(f"{path}: a seed that comes over the network names no files; base64 has any bytes")
    try:
        return (directory / given).read_bytes()
    except OSError as error:
        raise SeedError(f"{path}: {directory / given}: {error.strerror}") from None


def _filled(text: str, n: int | None) -> str:
    """Other braces stay as they are."""
    return text if n is None else text.replace("{n}", str(n))


def _filled_json(given: Json, n: int | None) -> Json:
    match given:
        case str():
            return _filled(given, n)
        case list():
            return [_filled_json(each, n) for each in given]
        case dict():
            return {_filled(name, n): _filled_json(each, n) for name, each in given.items()}
        case _:
            return given
