"""Files of captures, `.owire`: what clients and brokers sent each other, byte for byte, and what else happened then.

    magic        8 bytes
    header       uint32 length, uint32 CRC-32C, JSON: versions, cluster id, seed, whether secrets were left out
    block        uint32 length, uint32 CRC-32C, records that were written together
    ...

    record       uint8 kind, int64 machine time (ns since 1970), int64 broker time (ms since 1970),
                 uint32 connection (0: none), uint32 length, payload

The payload of RECEIVED and SENT is bytes of a connection, wherever a read or a write happened to cut them; of all other
kinds it is JSON. Kinds that a reader does not know are passed over. A file that was ended in an orderly way has END as
its last record.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from ottla.protocol.records.batch import crc32c
from ottla.storage.files import reason_of

MAGIC: Final = b"\x89owire\r\n"
FORMAT_VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 << 20
"""Longer payloads are written as several records."""
BLOCK_BYTES: Final = 256 * 1024
"""A block that has so many bytes gets no more records: a reader needs no more memory, whatever a file says."""
_BLOCK_BYTES_MAX: Final = BLOCK_BYTES + PAYLOAD_BYTES_MAX + 1024
JSON_BYTES_MAX: Final = 256 * 1024
CUT_OFF: Final = "is cut off"
COPIED_BYTES: Final = 4096
"""Records of a block that are no longer than that on average are put together before they are written."""
_SIZE_AND_CRC = struct.Struct(">II")
_HEAD = struct.Struct(">BqqII")


class RecordKind(IntEnum):
    OPENED = 1
    """Of a connection: node, listener, peer, and whether it had been open before the capture began."""
    CLOSED = 2
    """Its cause, by the broker's words, and by whom."""
    RECEIVED = 3
    SENT = 4
    FACT = 5
    """What a group's coordinator reported (`ottla.coordinator.facts`)."""
    FAULT = 6
    """A fault rule has acted."""
    MARK = 7
    """A test, or what it wants to find again."""
    END = 8
    """Why the capture ended."""


class CaptureError(Exception):
    """A capture cannot be written or read: one sentence."""


class CaptureRecord(NamedTuple):
    kind: int
    machine_ns: int
    broker_ms: int
    connection: int
    payload: bytes

    def fields(self) -> dict[str, Any]:
        """Of a kind with JSON. Raises CaptureError."""
        try:
            found = json.loads(self.payload)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise CaptureError(f"a record of kind {self.kind} is not JSON")
        return cast("dict[str, Any]", found)


def build_header(header: Mapping[str, Any]) -> bytes:
    """The beginning of a file."""
    text = json.dumps({"format": FORMAT_VERSION, **header}).encode()
    return MAGIC + _SIZE_AND_CRC.pack(len(text), crc32c(text)) + text


def build_block(records: Sequence[tuple[int, int, int, int, bytes]]) -> list[bytes]:
    """The pieces of a block; long payloads are not copied. None may have more than PAYLOAD_BYTES_MAX."""
    parts: list[bytes] = []
    pack = _HEAD.pack
    for kind, machine_ns, broker_ms, connection, payload in records:
        parts += (pack(kind, machine_ns, broker_ms, connection, len(payload)), payload)
    size = sum(map(len, parts))
    if size <= len(records) * COPIED_BYTES:
        # One checksum and one piece cost less than many.
        parts = [b"".join(parts)]
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return [_SIZE_AND_CRC.pack(size, crc), *parts]


def build_json(fields: Mapping[str, Any]) -> bytes:
    """The payload of a record with JSON; what JSON has no type for is its text."""
    return json.dumps(fields, default=str).encode()[:JSON_BYTES_MAX]


class CaptureFile:
    """A file to read from its beginning. As a context it is closed at the end. Raises CaptureError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {reason_of(error)}") from None
        try:
            self._position = len(MAGIC)
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise
        self.damage: str | None = None
        """What is wrong behind the records that were read, once they are at their end."""
        self.is_cut_off = False
        """The damage is that the last record is not whole: it may still be written."""
        self.has_end = False
        """Whether the last record has been read, with which a capture ends in an orderly way."""

    def __enter__(self) -> "CaptureFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_header(self) -> dict[str, Any]:
        if self._file.read(len(MAGIC)) != MAGIC:
            raise CaptureError(f"{self.path} is not a capture: it does not begin with the magic of .owire files")
        text, wrong = self._framed(JSON_BYTES_MAX)
        if text is None:
            raise CaptureError(f"{self.path} is damaged: its header {wrong or 'is missing'}")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        header = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if header.get("format") != FORMAT_VERSION:
            raise CaptureError(f"{self.path} has another format than {FORMAT_VERSION}, the one that is known here")
        return header

    def _framed(self, size_max: int) -> tuple[bytes | None, str | None]:
        """The next bytes with a size and checksum before them; None with what is wrong, or with None at the end."""
        position = self._position
        head = self._file.read(_SIZE_AND_CRC.size)
        if not head:
            return None, None
        if len(head) < _SIZE_AND_CRC.size:
            self._file.seek(position)
            return None, CUT_OFF
        size, crc = _SIZE_AND_CRC.unpack(head)
        if size > size_max:
            return None, f"claims {size} bytes, at most {size_max} allowed"
        content = self._file.read(size)
        if len(content) < size:
            self._file.seek(position)
            return None, CUT_OFF
        if crc32c(content) != crc:
            return None, "does not match its checksum"
        self._position += len(head) + size
        return content, None

    def records(self) -> Iterator[CaptureRecord]:
        """Until the end of the file or the first damage, of which `damage` says what it is. Where the file has grown,
        another call goes on."""
        self.damage = None
        self.is_cut_off = False
        while True:
            position = self._position
            try:
                content, wrong = self._framed(_BLOCK_BYTES_MAX)
            except OSError as error:
                content, wrong = None, f"cannot be read: {reason_of(error)}"
            if content is not None:
                at = 0
                while len(content) - at >= _HEAD.size:
                    kind, machine_ns, broker_ms, connection, size = _HEAD.unpack_from(content, at)
                    end = at + _HEAD.size + size
                    if end > len(content):
                        break
                    self.has_end = kind == RecordKind.END
                    yield CaptureRecord(kind, machine_ns, broker_ms, connection, content[at + _HEAD.size : end])
                    at = end
                if at < len(content):
                    wrong = f"has {len(content) - at} bytes left behind its last record"
            if wrong is not None:
                self.is_cut_off = wrong == CUT_OFF
                self.damage = f"{self.path}: the block at byte {position} {wrong}; what was before that was read"
            if content is None or wrong is not None:
                return
