"""What a batch must be before it may enter the log.

A batch from a client is checked by its header, its length and its checksum, always. Its records are looked at as far as
the topic depends on them; `docs/decisions/0001-record-validation.md` says where that is less than Kafka does, and why.
A batch from the leader was checked by the leader; a follower asks only whether it arrived whole and in order.
"""

from collections.abc import Iterator

from ottla.protocol.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    clear_log_append_time,
    crc32c,
    crc_is_valid,
    iterate_batches,
    parse_batch_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.protocol.records.record import (
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    recompress_batch,
    record_block,
    records_fit,
    walk_block,
)

UNLIMITED_MS = (1 << 63) - 1

RECORDS_LOOKED_AT = 4
"""How many records of a batch are followed by their lengths where records are not walked: all of a small batch, and
enough of a large one to notice a client that writes them wrongly. Following all of a megabyte's thousand records would
cost half as much again as everything else that is done with it."""

# Of batches and of messages of the formats before them: where their length and their magic are, and the least length.
LENGTH_AT, MAGIC_AT, MESSAGE_LENGTH_MIN = 8, 16, 14

_DECOMPRESSED_BYTES_LEAST = 16 * 1024 * 1024

RECORD_ERRORS_MAX = 1000
"""How many records of a refused batch are named; a batch of a megabyte may hold a hundred thousand wrong ones."""


class ValidationConfig:
    """The settings of a topic that its batches have to meet, and what follows from them; not changed any more."""

    __slots__ = (
        "batch_bytes_max",
        "codec",
        "compression_level",
        "is_compacted",
        "is_plain",
        "log_append_time",
        "max_decompressed_bytes",
        "max_message_bytes",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "walks_records",
    )

    def __init__(
        self,
        *,
        max_message_bytes: int = 1048588,
        segment_bytes: int = 1073741824,
        codec: Codec | None = None,
        compression_level: int | None = None,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = UNLIMITED_MS,
        timestamp_after_max_ms: int = UNLIMITED_MS,
        is_compacted: bool = False,
    ) -> None:
        """`codec` is what batches are stored with; None is `compression.type=producer`: as they came. `is_compacted`
        says whether `cleanup.policy` contains `compact`, so that every record needs a key."""
        self.max_message_bytes = max_message_bytes
        self.segment_bytes = segment_bytes
        self.codec = codec
        self.compression_level = compression_level
        self.log_append_time = log_append_time
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.is_compacted = is_compacted
        looks_back = timestamp_before_max_ms < UNLIMITED_MS and not log_append_time
        self.walks_records = is_compacted or looks_back
        # Whether an uncompressed batch is stored as it came, without a look at its single records.
        self.is_plain = not self.walks_records and not log_append_time and codec in (None, Codec.NONE)
        # A topic's batches may decompress to sixteen times `max_message_bytes`, and to 16 MiB however low that is.
        # A client that compresses better gets MESSAGE_TOO_LARGE, on which Kafka's Java producer splits its batch.
        self.max_decompressed_bytes = min(
            max(_DECOMPRESSED_BYTES_LEAST, 16 * max_message_bytes), DECOMPRESSED_BYTES_MAX
        )
        self.batch_bytes_max = min(max_message_bytes, segment_bytes)

    def recompresses(self, codec: int) -> bool:
        return self.codec is not None and self.codec != codec


class NotOneBatch(InvalidRecord):
    """What came for the partition is not one batch of magic 2."""


class RecordsRefused(KafkaError):
    """Single records are to blame. `record_errors` names them by their index in the batch; nothing was appended."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors = record_errors


def validate_produced_batch(
    view: memoryview,
    config: ValidationConfig,
    now_wall_ms: int,
    from_client: bool = True,
    zstd_allowed: bool = True,
    is_size_bounded: bool = True,
) -> tuple[memoryview, BatchHeader]:
    """The batch to append and its header: usually `view` itself, patched if its timestamps are the log's business.

    `view` must be all that a request holds for the partition. It is a new buffer only where the topic's
    `compression.type` differs from the batch's. Base offset and leader epoch are not yet assigned. `zstd_allowed` is
    false for Produce below version 7. Without `from_client`, the batch was built by this broker: it may be a control
    batch and is trusted beyond its header. One that is not `is_size_bounded` may have more than `max.message.bytes` and
    more than a segment.

    Raises, in the order in which Kafka looks: CorruptMessage, InvalidRecord, UnsupportedCompressionType,
    MessageTooLarge, InvalidTimestamp, `RecordsRefused` (INVALID_RECORD or INVALID_TIMESTAMP), RecordListTooLarge.
    """
    if len(view) >= BATCH_HEADER_SIZE and config.is_plain:
        header = parse_batch_header(view)
        if _is_plain(view, header, config, now_wall_ms):
            return view, header
    header = _only_batch(view, zstd_allowed=zstd_allowed)
    codec = header.attributes & CODEC_MASK
    if from_client and header.base_offset != 0:
        raise InvalidRecord(f"base offset {header.base_offset} in a produced batch, 0 expected")
    if is_size_bounded and len(view) > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {len(view)} bytes, at most {config.max_message_bytes} allowed")
    if not crc_is_valid(view, 0, header):
        raise CorruptMessage("the checksum of the batch is not that of its bytes")
    if from_client:
        _check_client_header(header, config)
        header = _with_own_timestamps(view, header)
    if codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"no codec has the number {codec}")
    if from_client or (config.recompresses(codec) and not header.attributes & CONTROL_BIT):
        view, header = _check_records(view, header, config, now_wall_ms)
    if is_size_bounded and len(view) > config.batch_bytes_max:
        raise _too_large(view, header, config)
    if config.log_append_time:
        header = set_log_append_time(view, 0, header, now_wall_ms)
    return view, header


def _too_large(view: memoryview, header: BatchHeader, config: ValidationConfig) -> KafkaError:
    """As the codec of the topic has made it."""
    if len(view) > config.max_message_bytes:
        name = Codec(header.codec).name
        return MessageTooLarge(f"the batch has {len(view)} bytes as {name}, at most {config.max_message_bytes} allowed")
    return RecordListTooLarge(f"a batch of {len(view)} bytes, a segment has {config.segment_bytes}")


def validate_replicated(view: memoryview, log_end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch that a leader sent and its position, after a look at its checksum and its offsets, which rise.

    A batch cut off by the end of `view` is left out; the next fetch brings it again. Raises CorruptMessage at the first
    batch that is not as it should be, when the iteration comes to it: append nothing before the last has been seen.
    """
    expected = log_end_offset
    for position, header in iterate_batches(view):
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptMessage(
                f"a batch from the leader has offsets {header.base_offset} to {header.last_offset}, the log {expected}"
            )
        if not crc_is_valid(view, position, header):
            raise CorruptMessage(f"the checksum of the batch at offset {header.base_offset} is not that of its bytes")
        expected = header.next_offset
        yield position, header


def _is_plain(view: memoryview, header: BatchHeader, config: ValidationConfig, now_wall_ms: int) -> bool:
    """Whether the batch is as nearly all are: whole, uncompressed, from a client, nothing about it left to do.

    The long way comes to the same and says what is wrong; this one takes a microsecond.
    """
    base_offset, length, _, magic, crc, attributes, last, base_ms, max_ms, producer_id, _, sequence, count = header
    return (
        attributes == 0
        and magic == MAGIC
        and length == len(view) - LENGTH_OVERHEAD
        and base_offset == 0
        and count == last + 1
        and count > 0
        and (producer_id < 0 or sequence >= 0)
        and len(view) <= config.batch_bytes_max
        and base_ms <= max_ms
        and max_ms - now_wall_ms <= config.timestamp_after_max_ms
        and crc32c(view[CRC_COVERS_FROM:]) == crc
        and records_fit(view, BATCH_HEADER_SIZE, count, RECORDS_LOOKED_AT)
    )


def _only_batch(view: memoryview, *, zstd_allowed: bool) -> BatchHeader:
    """The header of the one batch that fills `view`. What is none is refused with the error that Kafka has for it."""
    size = _size_of_next(view)
    if size is None or size > len(view):
        raise NotOneBatch(f"no whole batch in the {len(view)} bytes for the partition, one expected")
    if view[MAGIC_AT] != MAGIC:
        raise NotOneBatch(f"message format {view[MAGIC_AT]}, only {MAGIC} is accepted")
    if size < BATCH_HEADER_SIZE:
        raise CorruptMessage(f"batch length {size - LENGTH_OVERHEAD}, at least {BATCH_LENGTH_MIN} expected")
    header = parse_batch_header(view)
    if header.codec == Codec.ZSTD and not zstd_allowed:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or above")
    if size < len(view):
        _size_of_next(view[size:])
        # Kafka drops what is no whole batch, and acknowledges: a producer would not notice that records are lost.
        raise NotOneBatch(f"{len(view) - size} bytes follow the batch, exactly one batch is accepted")
    return header


def _size_of_next(view: memoryview) -> int | None:
    """How long a batch or a message of any format says that it is; None where too few bytes are left to say so."""
    if len(view) <= MAGIC_AT:
        return None
    length = int.from_bytes(view[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if length < MESSAGE_LENGTH_MIN:
        raise CorruptMessage(f"a length of {length}, at least {MESSAGE_LENGTH_MIN} expected")
    if view[MAGIC_AT] > MAGIC:
        raise CorruptMessage(f"magic {view[MAGIC_AT]}, {MAGIC} expected")
    return length + LENGTH_OVERHEAD


def _check_client_header(header: BatchHeader, config: ValidationConfig) -> None:
    attributes, count, last = header.attributes, header.record_count, header.last_offset_delta
    if count <= 0 or count != last + 1:
        raise InvalidRecord(f"{count} records in a batch whose last offset delta is {last}")
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control batches")
    if attributes & LOG_APPEND_TIME_BIT and config.log_append_time:
        raise InvalidTimestamp("the timestamp type of a produced batch may not be LogAppendTime")
    if header.producer_id >= 0:
        # As in Kafka, any epoch will do that is not older than the producer's.
        if header.base_sequence < 0:
            raise InvalidRecord(f"sequence {header.base_sequence} of producer {header.producer_id}")
    elif attributes & TRANSACTIONAL_BIT:
        raise InvalidRecord("a transactional batch needs a producer id")


def _with_own_timestamps(view: memoryview, header: BatchHeader) -> BatchHeader:
    """As in Kafka, the topic decides which type its timestamps have."""
    return clear_log_append_time(view, 0, header) if header.attributes & LOG_APPEND_TIME_BIT else header


def _check_records(
    view: memoryview, header: BatchHeader, config: ValidationConfig, now_wall_ms: int
) -> tuple[memoryview, BatchHeader]:
    """Look at the records as far as the topic depends on them; store them with the topic's codec."""
    recompresses = config.recompresses(header.codec)
    if header.codec == Codec.NONE and not recompresses and not _must_walk(header, config, now_wall_ms):
        if not records_fit(view, BATCH_HEADER_SIZE, header.record_count, RECORDS_LOOKED_AT):
            raise InvalidRecord(f"{header.record_count} records do not fill their batch")
        return view, header
    block = record_block(view, header, config.max_decompressed_bytes)
    if recompresses or _must_walk(header, config, now_wall_ms):
        largest = _walk_records(block, header, config, now_wall_ms)
        if largest != header.max_timestamp:
            header = set_max_timestamp(view, 0, header, largest)
    elif not records_fit(block, 0, header.record_count, RECORDS_LOOKED_AT):
        raise InvalidRecord(f"{header.record_count} records do not fill their block")
    if config.codec is not None and recompresses:
        view = memoryview(recompress_batch(header, block, config.codec, config.compression_level))
        header = parse_batch_header(view)
    return view, header


def _must_walk(header: BatchHeader, config: ValidationConfig, now_wall_ms: int) -> bool:
    """Whether each record matters: to the topic, or because the header's own timestamps are not plausible."""
    return (
        config.walks_records
        or header.max_timestamp < header.base_timestamp
        or (header.max_timestamp - now_wall_ms > config.timestamp_after_max_ms and not config.log_append_time)
    )


def _walk_records(block: Buffer, header: BatchHeader, config: ValidationConfig, now_wall_ms: int) -> int:
    """Check every record; the largest timestamp of them."""
    earliest, latest = now_wall_ms - config.timestamp_before_max_ms, now_wall_ms + config.timestamp_after_max_ms
    largest = NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, bounds in enumerate(walk_block(block, header.record_count)):
        timestamp = header.base_timestamp + bounds[0]
        if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
            raise InvalidTimestamp(f"timestamp {timestamp} of record {index} goes beyond 64 bits")
        largest = max(largest, timestamp)
        if bounds[1] != index:
            errors.append((index, f"offset delta {bounds[1]}, {index} expected"))
        elif bounds[3] < 0 and config.is_compacted:
            errors.append((index, "a record of a compacted topic needs a key"))
        elif not (earliest <= timestamp <= latest or timestamp == NO_TIMESTAMP or config.log_append_time):
            errors.append((index, f"timestamp {timestamp} is not within {earliest} and {latest}"))
            code = ErrorCode.INVALID_TIMESTAMP
    if errors:
        raise RecordsRefused(
            code,
            f"{len(errors)} of {header.record_count} records refused; the first: {errors[0][1]}",
            tuple(errors[:RECORD_ERRORS_MAX]),
        )
    return largest
