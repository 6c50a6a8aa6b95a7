"""Golden vectors: for every version of every message, bytes and the values in them.

The bytes were written by kafka-python's encoder, and are kept only if kio reads and writes them the same. So they do
not come from the code they test. Messages that kafka-python does not know were written by kio. `python -m
tests.protocol.golden_vectors` writes them again, which is needed only for messages or versions that were added.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.protocol.codec import encode
from ottla.protocol.schema import Message, fields_of
from tests.protocol import kafka_python_oracle, kio_oracle
from tests.protocol.known_messages import MESSAGES, versions
from tests.protocol.random_messages import random_message

DIRECTORY = Path(__file__).parent / "golden"
HEADER = "# Version, bytes, values. Bytes by kafka-python 3.0.12's encoder, confirmed by kio 0.6.5.\n"
HEADER_OF_KIO = "# Version, bytes, values. Bytes by kio 0.6.5's encoder; kafka-python does not know this message.\n"
SIZE_MAX = 400  # A vector is meant to be read.


def vectors_of(cls: type[Message]) -> Iterator[tuple[int, bytes, Any]]:
    """(version, bytes, values)"""
    for line in (DIRECTORY / f"{cls.__name__}.txt").read_text().splitlines():
        if not line.startswith("#"):
            version, data, values = line.split(" ", 2)
            yield int(version), bytes.fromhex(data), json.loads(values)


def values_of(message: Message, version: int) -> dict[str, Any]:
    """The fields of a version as JSON has them; bytes are hexadecimal."""
    return {
        field.name: _plain(getattr(message, field.name), version)
        for field in fields_of(type(message))
        if version in field.versions
    }


def _plain(value: Any, version: int) -> Any:
    match value:
        case Message():
            return values_of(value, version)
        case list():
            return [_plain(item, version) for item in value]
        case bytes() | memoryview():
            return value.hex()
        case _:
            return value


def message_of(cls: type[Message], values: dict[str, Any]) -> Message:
    message = cls()
    for field in fields_of(cls):
        if field.name in values:
            setattr(message, field.name, _from_plain(field, values[field.name]))
    return message


def _from_plain(field: Any, value: Any) -> Any:
    match value:
        case list():
            return [_from_plain(field, item) for item in value]
        case dict():
            return message_of(field.struct, value)
        case str() if field.type_name in ("bytes", "records", "uuid"):
            return bytes.fromhex(value)
        case _:
            return value


def _new_vector(cls: type[Message], version: int) -> str:
    rng = random.Random(f"golden {cls.__name__} {version}")
    candidates = [random_message(cls, version, rng) for _ in range(300)]
    encoded = [(_their_bytes(message, version), message) for message in candidates]
    data, message = max((pair for pair in encoded if len(pair[0]) <= SIZE_MAX), key=lambda pair: len(pair[0]))
    values, written = kio_oracle.decode_and_encode(cls, version, data)
    assert written == data
    assert values == kio_oracle.flat_ours(message, version)
    return f"{version} {data.hex()} {json.dumps(values_of(message, version), ensure_ascii=False)}\n"


def _their_bytes(message: Message, version: int) -> bytes:
    if kafka_python_oracle.knows(type(message), version):
        return kafka_python_oracle.encode(message, version)
    return kio_oracle.decode_and_encode(type(message), version, encode(message, version))[1]


def main() -> None:
    for cls in MESSAGES:
        lines = [_new_vector(cls, version) for version in versions(cls)]
        header = HEADER if kafka_python_oracle.knows(cls, cls.VERSIONS[0]) else HEADER_OF_KIO
        (DIRECTORY / f"{cls.__name__}.txt").write_text(header + "".join(lines))


if __name__ == "__main__":
    main()
