"""Reading a log file batch by batch, a large piece at a time: for recovery, truncation, compaction and look-ups."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    parse_batch_header,
)
from ottla.storage.files import File

CHUNK_BYTES = 1024 * 1024


class InvalidBatchError(Exception):
    """What stands at `position` is not a whole, undamaged batch."""

    def __init__(self, position: int, reason: str, *, is_torn: bool = False) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.is_torn = is_torn
        """Whether the file ends within the batch, as after a write that was broken off."""


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    view: memoryview
    """The whole batch; good until the next one is asked for."""


def scan(file: File, position: int, end: int, *, check_crc: bool = True) -> Iterator[ScannedBatch]:
    """The batches from `position`, a batch boundary, up to `end`. Raises InvalidBatchError where they stop short."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        at = position - chunk_start
        if len(chunk) - at < BATCH_HEADER_SIZE:
            chunk, chunk_start, at = memoryview(file.pread(min(CHUNK_BYTES, end - position), position)), position, 0
        header = _header_at(chunk, at, position, end)
        if len(chunk) - at < header.size_bytes:
            size = max(CHUNK_BYTES, header.size_bytes)
            chunk, chunk_start, at = memoryview(file.pread(min(size, end - position), position)), position, 0
            if len(chunk) < header.size_bytes:
                raise InvalidBatchError(position, "a batch that the file does not hold whole", is_torn=True)
        if check_crc and not crc_is_valid(chunk, at, header):
            raise InvalidBatchError(position, "a batch whose checksum does not match")
        yield ScannedBatch(position, header, chunk[at : at + header.size_bytes])
        position += header.size_bytes


def _header_at(chunk: memoryview, at: int, position: int, end: int) -> BatchHeader:
    if len(chunk) - at < BATCH_HEADER_SIZE:
        raise InvalidBatchError(position, "the torn header of a batch", is_torn=True)
    header = parse_batch_header(chunk, at)
    if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC or header.last_offset_delta < 0:
        raise InvalidBatchError(position, "no batch header of format 2")
    if position + header.size_bytes > end:
        raise InvalidBatchError(position, "a batch that the file does not hold whole", is_torn=True)
    return header
