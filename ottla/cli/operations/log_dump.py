"""The files of a partition's directory as text, without a broker: what Kafka's `kafka-dump-log` says, in its words."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, cast

from ottla.cli.failures import ClientError
from ottla.cli.records import bytes_as_json, bytes_as_text
from ottla.protocol.errors import CorruptMessage, KafkaError
from ottla.protocol.records.batch import LOG_APPEND_TIME, BatchHeader, crc_is_valid, iterate_batches
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, iterate_records
from ottla.storage.producer_snapshot import CorruptSnapshot
from ottla.storage.producer_state import ProducerStateManager

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
# By the end of a file's name.
KINDS = (".log", ".index", ".timeindex", ".snapshot")

Fields = dict[str, Any]


@dataclass(slots=True)
class Damage:
    """The first thing in a file that is not as it should be, as the end of a sentence."""

    found: str | None = None

    def add(self, what: str) -> None:
        self.found = self.found or what


def dump(path: Path, damage: Damage, *, with_records: bool) -> Iterator[Fields]:
    """What is in a file, line by line; of a segment its batches, and their records if they are asked for.

    Raises ClientError for a file that cannot be read, or whose name does not say what it is."""
    base = path.name.partition(".")[0]
    if path.suffix not in KINDS or not (base.isascii() and base.isdecimal()):
        raise ClientError(f"{path} is not a file like 00000000000000000000.log, with one of {', '.join(KINDS)}")
    try:
        with path.open("rb") as file:
            match path.suffix:
                case ".log":
                    yield from _segment(file, damage, with_records=with_records)
                case ".index":
                    yield from _offset_index(file.read(), int(base), damage)
                case ".timeindex":
                    yield from _time_index(file.read(), int(base), damage)
                case _:
                    yield from _snapshot(file.read(), damage)
    except OSError as error:
        raise ClientError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error


def as_line(fields: Fields) -> str:
    """As Kafka writes it: `name: value`, and a record behind a bar."""
    is_record = "keySize" in fields
    text = " ".join(f"{name}: {_text(value)}" for name, value in fields.items() if value is not None)
    return f"| {text}" if is_record else text


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return bytes_as_text(value)
        case list():
            return f"[{','.join(map(str, cast('list[object]', value)))}]"
        case _:
            return str(value)


def as_json(fields: Fields) -> Fields:
    return {name: bytes_as_json(value) if isinstance(value, bytes) else value for name, value in fields.items()}


def _segment(file: BinaryIO, damage: Damage, *, with_records: bool) -> Iterator[Fields]:
    size = file.seek(0, 2)
    if not size:
        return
    with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped, memoryview(mapped) as view:
        end = 0
        try:
            for position, header in iterate_batches(view):
                end = position + header.size_bytes
                is_valid = crc_is_valid(view, position, header)
                if not is_valid:
                    damage.add(f"the checksum of the batch at position {position} is wrong")
                yield _batch(position, header, is_valid=is_valid)
                if with_records and is_valid:
                    yield from _records(bytes(view[position:end]), header, position, damage)
        except CorruptMessage as error:
            damage.add(str(error))
        if end < size:
            damage.add(f"the last {size - end} bytes are not a whole batch")


def _batch(position: int, header: BatchHeader, *, is_valid: bool) -> Fields:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        _time_name(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": Codec(header.codec).name.lower() if header.codec in {*Codec} else f"unknown {header.codec}",
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _records(batch: bytes, header: BatchHeader, position: int, damage: Damage) -> Iterator[Fields]:
    try:
        for index, record in enumerate(iterate_records(batch)):
            yield _record(record, header, index)
    except KafkaError as error:
        damage.add(f"the records of the batch at position {position} cannot be read: {error}")


def _record(record: Record, header: BatchHeader, index: int) -> Fields:
    return {
        "offset": record.offset,
        _time_name(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": header.base_sequence + index if header.base_sequence >= 0 else -1,
        "headerKeys": [name for name, _ in record.headers],
        "key": record.key,
        "payload": record.value,
    }


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _offset_index(content: bytes, base_offset: int, damage: Damage) -> Iterator[Fields]:
    """An open index has empty entries behind those that are used, and the first entry may be empty too."""
    last = -1
    for number, (relative, position) in enumerate(_entries(OFFSET_ENTRY, content, damage)):
        if number and not relative and not position:
            return
        if relative <= last:
            damage.add(f"entry {number} does not rise")
        last = relative
        yield {"offset": base_offset + relative, "position": position}


def _time_index(content: bytes, base_offset: int, damage: Damage) -> Iterator[Fields]:
    last = -1
    for number, (timestamp, relative) in enumerate(_entries(TIME_ENTRY, content, damage)):
        if number and not timestamp and not relative:
            return
        if timestamp < last:
            damage.add(f"entry {number} goes back in time")
        last = timestamp
        yield {"timestamp": timestamp, "offset": base_offset + relative}


def _entries(entry: struct.Struct, content: bytes, damage: Damage) -> Iterator[tuple[int, int]]:
    rest = len(content) % entry.size
    if rest:
        damage.add(f"the last {rest} bytes are not a whole entry")
    yield from entry.iter_unpack(content[: len(content) - rest])


def _snapshot(content: bytes, damage: Damage) -> Iterator[Fields]:
    """The producers that the partition remembered when the snapshot was taken."""
    table = ProducerStateManager()
    try:
        table.load(content, now_wall_ms=0, snapshot_offset=0)
    except CorruptSnapshot as error:
        damage.add(str(error))
        return
    for producer_id, state in table.states.items():
        last = state.batches[-1] if state.batches else None
        yield {
            "producerId": producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.transaction_first_offset if state.transaction_first_offset >= 0 else None,
            "lastTimestamp": state.last_timestamp,
            "firstSequence": None if last is None else last.first_sequence,
            "lastSequence": None if last is None else last.last_sequence,
            "lastOffset": None if last is None else last.last_offset,
        }
