"""The fields of a message as they lie in its bytes: each with its path, its place and its value.

It reads what the tables of messages say (`ottla.protocol.schema`), field after field, so that bytes which end too early
still show what comes before their end. Counts, lengths of tagged fields and the like have places of their own: the
places of a whole message follow each other without a gap.
"""

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import DecodeError, parse_uvarint, truncated
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import iterate_records
from ottla.protocol.schema import FORMATS, SECRET_FIELDS, Field, Message, fields_of, is_flexible

TEXT_MAX: Final = 200
PRINTED_BYTES: Final = 32
RECORDS_SHOWN: Final = 10
DECOMPRESSED_MAX: Final = 16 << 20
_STRUCTS: Final = {name: struct.Struct(">" + code) for name, code in FORMATS.items()}
_LENGTHS: Final = {"string": struct.Struct(">h"), "bytes": struct.Struct(">i"), "records": struct.Struct(">i")}


class FieldPlace(NamedTuple):
    path: str
    start: int
    end: int
    value: Any
    type_name: str
    """That of the table; `count` and `tags` are what stands before elements and tagged fields."""


def places(cls: type[Message], version: int, buffer: bytes, position: int) -> Iterator[FieldPlace]:
    """The fields from `position` on. Raises DecodeError where the bytes end too early, or are none of this message."""
    walk = _Walk(version, buffer, position, is_flexible=is_flexible(cls, version))
    try:
        yield from walk.structure(cls, "")
    except (struct.error, IndexError):
        raise truncated() from None


class _Walk:
    def __init__(self, version: int, buffer: bytes, position: int, *, is_flexible: bool) -> None:
        self._version = version
        self._buffer = buffer
        self._position = position
        self._is_flexible = is_flexible

    def structure(self, cls: type[Message], path: str) -> Iterator[FieldPlace]:
        carried = [each for each in fields_of(cls) if self._version in each.versions]
        for each in carried:
            if each.tag is None:
                yield from self._field(each, _joined(path, each.name))
        if self._is_flexible:
            yield from self._tags({each.tag: each for each in carried if each.tag is not None}, path)

    def _field(self, field: Field, path: str) -> Iterator[FieldPlace]:
        if field.is_array:
            yield from self._array(field, path)
        elif field.struct is not None:
            yield from self._inner(field, field.struct, path)
        elif field.type_name in _LENGTHS:
            yield self._sized(field, path)
        else:
            yield self._fixed(field, path)

    def _fixed(self, field: Field, path: str) -> FieldPlace:
        start, layout = self._position, _STRUCTS[field.type_name]
        self._position += layout.size
        return FieldPlace(path, start, self._position, layout.unpack_from(self._buffer, start)[0], field.type_name)

    def _sized(self, field: Field, path: str) -> FieldPlace:
        start = self._position
        size = self._length(_LENGTHS[field.type_name])
        value: Any = None
        if size >= 0:
            value = self._buffer[self._position : self._position + size]
            self._position += size
            if self._position > len(self._buffer):
                raise truncated()
            if field.type_name == "string":
                value = value.decode(errors="replace")
        return FieldPlace(path, start, self._position, value, field.type_name)

    def _length(self, layout: struct.Struct) -> int:
        """Of a text or an array; negative for null."""
        if self._is_flexible:
            length, self._position = parse_uvarint(self._buffer, self._position)
            return length - 1
        length = int(layout.unpack_from(self._buffer, self._position)[0])
        self._position += layout.size
        return length

    def _array(self, field: Field, path: str) -> Iterator[FieldPlace]:
        start = self._position
        count = self._length(_STRUCTS["int32"])
        yield FieldPlace(path, start, self._position, None if count < 0 else count, "count")
        if count > len(self._buffer) - self._position:
            raise DecodeError(f"{path} claims {count} elements, more than its bytes can hold")
        element = field._replace(is_array=False)
        for index in range(count):
            if field.struct is not None:
                yield from self.structure(field.struct, f"{path}[{index}]")
            else:
                yield from self._field(element, f"{path}[{index}]")

    def _inner(self, field: Field, struct_class: type[Message], path: str) -> Iterator[FieldPlace]:
        if self._version in field.nullable:
            start = self._position
            self._position += 1
            marker = struct.unpack_from(">b", self._buffer, start)[0]
            yield FieldPlace(path, start, self._position, None if marker < 0 else marker, "count")
            if marker < 0:
                return
        yield from self.structure(struct_class, path)

    def _tags(self, known: dict[int, Field], path: str) -> Iterator[FieldPlace]:
        start = self._position
        count, self._position = parse_uvarint(self._buffer, start)
        yield FieldPlace(_joined(path, "tags"), start, self._position, count, "tags")
        for _ in range(count):
            start = self._position
            tag, self._position = parse_uvarint(self._buffer, start)
            size, self._position = parse_uvarint(self._buffer, self._position)
            end = self._position + size
            if end > len(self._buffer):
                raise truncated()
            field = known.get(tag)
            yield FieldPlace(_joined(path, f"tag {tag}"), start, self._position, size, "tags")
            if field is None:
                start, self._position = self._position, end
                yield FieldPlace(_joined(path, f"tag {tag}"), start, end, self._buffer[start:end], "bytes")
            else:
                yield from self._field(field, _joined(path, field.name))
            if self._position != end:
                raise DecodeError(f"the tagged field {_joined(path, str(tag))} is not of its stated size")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# In words.


def shown_value(place: FieldPlace, *, hides_secrets: bool = True) -> str:
    name = place.path.rpartition(".")[2]
    value = place.value
    if value is None:
        return "null"
    if name in SECRET_FIELDS and hides_secrets:
        return f"[hidden, {len(value)} bytes]"
    match place.type_name:
        case "records":
            return records_text(value)
        case "bytes":
            return bytes_text(value)
        case "uuid":
            return uuid_text(value)
        case "string":
            return repr(value if len(value) <= TEXT_MAX else value[:TEXT_MAX] + "…")
        case "count":
            return f"{value} elements"
        case _:
            return f"{value} {error_name(value)}" if name == "error_code" and value else str(value)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def uuid_text(value: bytes) -> str:
    """As Kafka writes topic ids."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def bytes_text(value: bytes) -> str:
    """Their number and the first of them, as far as these are printable."""
    begin = "".join(chr(each) if 32 <= each < 127 else "." for each in value[:PRINTED_BYTES])
    return f"{len(value)} bytes '{begin}{'…' if len(value) > PRINTED_BYTES else ''}'" if value else "0 bytes"


def batch_headers(records: Any) -> list[tuple[int, BatchHeader]]:
    """Of the whole batches; what is no batch ends them."""
    found: list[tuple[int, BatchHeader]] = []
    with suppress(KafkaError):
        found.extend(iterate_batches(memoryview(records)))
    return found


def record_count(records: Any) -> int:
    return sum(header.record_count for _, header in batch_headers(records)) if records else 0


def records_text(records: bytes) -> str:
    batches = batch_headers(records)
    count = sum(header.record_count for _, header in batches)
    return f"{count} records in {len(batches)} batches, {len(records)} bytes"


def record_lines(records: bytes) -> Iterator[str]:
    """The batches, and the first records of each."""
    for position, header in batch_headers(records):
        codec = Codec(header.codec).name.lower() if header.codec in {*Codec} else f"codec {header.codec}"
        kind = "control" if header.is_control else "transactional" if header.is_transactional else ""
        producer = ""
        if header.producer_id >= 0:
            producer = f"producer {header.producer_id}/{header.producer_epoch} from {header.base_sequence}"
        words = (f"offsets {header.base_offset}-{header.last_offset}", codec, kind, producer)
        yield ", ".join(filter(None, words))
        yield from _lines_of_batch(bytes(records[position : position + header.size_bytes]))


def _lines_of_batch(batch: bytes) -> Iterator[str]:
    try:
        for index, record in enumerate(iterate_records(batch, DECOMPRESSED_MAX)):
            if index == RECORDS_SHOWN:
                yield "  …"
                return
            yield f"  {record.offset}: key {_part_text(record.key)}, value {_part_text(record.value)}"
    except KafkaError as error:
        yield f"  records that cannot be read: {error}"


def _part_text(part: bytes | None) -> str:
    return "null" if part is None else bytes_text(part)


def hex_lines(data: bytes, start: int, end: int) -> Iterator[str]:
    """Sixteen bytes a line, with their positions."""
    for position in range(start, end, 16):
        piece = data[position : min(position + 16, end)]
        yield f"{position:06x}  {piece.hex(' ')}"


def plain(message: Message, version: int) -> dict[str, Any]:
    """The fields of a message for JSON."""
    return {
        field.name: _plain_value(getattr(message, field.name), field, version)
        for field in fields_of(type(message))
        if version in field.versions
    }


def _plain_value(value: Any, field: Field, version: int) -> Any:
    items: Any = value
    match value:
        case Message():
            return plain(value, version)
        case list():
            return [_plain_value(each, field, version) for each in items]
        case _ if field.type_name in ("bytes", "records", "uuid") and value is not None:
            data = bytes(value)
            if field.name in SECRET_FIELDS:
                return f"[hidden, {len(data)} bytes]"
            if field.type_name == "records":
                return {"bytes": len(data), "records": record_count(data), "batches": len(batch_headers(data))}
            return uuid_text(data) if field.type_name == "uuid" else data.hex()
        case _:
            return value
