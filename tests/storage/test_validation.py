"""What producers may put into a log (§16.3), with Kafka's errors in Kafka's order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    crc_is_valid,
    parse_batch_header,
    seal_batch,
)
from ottla.protocol.records.compression import Codec, compress
from ottla.protocol.records.record import Record, build_batch, iterate_records
from ottla.storage.validation import (
    RECORD_ERRORS_MAX,
    RECORDS_LOOKED_AT,
    NotOneBatch,
    RecordsRefused,
    ValidationConfig,
    validate_produced_batch,
)
from tests.protocol import fuzz_records
from tests.protocol import golden_batches as golden

NOW = 1_700_000_000_000
PLAIN = ValidationConfig()
COMPACTED = ValidationConfig(is_compacted=True)
WALKED = ValidationConfig(timestamp_before_max_ms=(1 << 63) - 2)
"""Every record is looked at, and none is too old."""
HOUR = 3_600_000


def some_records(count: int = 3, **fields: object) -> list[Record]:
    return [Record(timestamp=NOW + i, key=b"k%d" % i, value=b"value")._replace(**fields) for i in range(count)]


def sealed(batch: bytearray, **patches: tuple[int, bytes]) -> bytearray:
    for at, content in patches.values():
        batch[at : at + len(content)] = content
    seal_batch(batch)
    return batch


def with_bytes(at: int, content: bytes, batch: bytearray | None = None) -> bytearray:
    """A batch with other bytes at a position and a right checksum."""
    return sealed(build_batch(some_records()) if batch is None else batch, patch=(at, content))


def validated(batch: bytes | bytearray, config: ValidationConfig = PLAIN, **options: object) -> BatchHeader:
    view, header = validate_produced_batch(memoryview(bytearray(batch)), config=config, now_wall_ms=NOW, **options)
    assert header == parse_batch_header(view)
    assert crc_is_valid(view, 0, header)
    return header


def refusal(batch: bytes | bytearray, config: ValidationConfig = PLAIN, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        validated(batch, config, **options)
    return refused.value


# What is accepted, and as what


@pytest.mark.parametrize("config", [PLAIN, COMPACTED, ValidationConfig(timestamp_before_max_ms=HOUR)])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_stored_as_it_came(config: ValidationConfig, codec: Codec):
    batch = memoryview(build_batch(some_records(), codec=codec))
    before = bytes(batch)

    view, header = validate_produced_batch(batch, config=config, now_wall_ms=NOW)

    assert view is batch
    assert view == before
    assert header == parse_batch_header(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_s_producer_is_accepted(codec: Codec):
    assert validated(golden.BY_CODEC[codec], WALKED).producer_id == 4711


# The header


def test_no_batch_is_refused():
    assert isinstance(refusal(b""), InvalidRecord)


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, 80])
def test_a_torn_batch_is_no_batch(size: int):
    assert isinstance(refusal(build_batch(some_records())[:size]), NotOneBatch)


@pytest.mark.parametrize(
    ("length", "error"),
    [(-1, CorruptMessage), (0, CorruptMessage), (13, CorruptMessage), (48, CorruptMessage), (1 << 30, NotOneBatch)],
)
def test_a_batch_length_that_cannot_be_is_refused(length: int, error: type[KafkaError]):
    batch = build_batch(some_records())
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert type(refusal(batch)) is error


@pytest.mark.parametrize(
    ("more", "error"), [(bytes(16), NotOneBatch), (bytes(17), CorruptMessage), (bytes([255] * 17), CorruptMessage)]
)
def test_what_follows_the_batch_is_refused_as_by_kafka(more: bytes, error: type[KafkaError]):
    assert type(refusal(build_batch(some_records()) + more)) is error


def test_zstd_is_refused_before_what_follows_is_looked_at():
    batch = build_batch(some_records(), codec=Codec.ZSTD)
    for more in (bytes(16), bytes(17), batch):
        assert isinstance(refusal(batch + more, zstd_allowed=False), UnsupportedCompressionType)
        assert not isinstance(refusal(batch + more), UnsupportedCompressionType)


def test_exactly_one_batch_is_accepted():
    batch = build_batch(some_records())
    assert isinstance(refusal(batch + batch), InvalidRecord)
    assert isinstance(refusal(batch + b"x"), InvalidRecord)


@pytest.mark.parametrize(("magic", "code"), [(0, 87), (1, 87), (3, 2), (255, 2)])
def test_other_message_formats_are_refused(magic: int, code: int):
    assert refusal(with_bytes(16, bytes([magic]))).code == code


def test_a_wrong_checksum_is_corrupt():
    batch = build_batch(some_records())
    batch[-1] ^= 1
    assert isinstance(refusal(batch), CorruptMessage)


def test_sizes_are_bounded_by_the_topic_and_by_the_segment():
    batch = build_batch(some_records())
    assert validated(batch, ValidationConfig(max_message_bytes=len(batch), segment_bytes=len(batch)))
    assert isinstance(refusal(batch, ValidationConfig(max_message_bytes=len(batch) - 1)), MessageTooLarge)
    assert isinstance(refusal(batch, ValidationConfig(segment_bytes=len(batch) - 1)), RecordListTooLarge)
    least = ValidationConfig(max_message_bytes=0, segment_bytes=14)
    assert validated(batch, least, from_client=False, is_size_bounded=False)


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (0, (5).to_bytes(8, "big")),  # base offset
        (23, (1).to_bytes(4, "big")),  # last offset delta below the count
        (23, (7).to_bytes(4, "big")),
        (57, (2).to_bytes(4, "big")),  # record count
        (57, b"\xff\xff\xff\xff"),
        (57, bytes(4)),
    ],
)
def test_offsets_and_count_must_agree(at: int, content: bytes):
    assert isinstance(refusal(with_bytes(at, content)), InvalidRecord)


def test_a_batch_without_records_is_refused():
    empty = build_batch(some_records(1))[:BATCH_HEADER_SIZE]
    assert isinstance(refusal(sealed(empty, last=(23, b"\xff" * 4), count=(57, bytes(4)))), InvalidRecord)


def test_broker_may_write_control_batches_clients_may_not():
    marker = build_batch(some_records(1), producer_id=5, producer_epoch=0, transactional=True, control=True)
    assert isinstance(refusal(marker), InvalidRecord)
    assert validated(marker, from_client=False).is_control


def test_the_timestamp_type_belongs_to_the_topic():
    batch = build_batch(some_records(), log_append_time_ms=NOW)
    assert (validated(batch).attributes, validated(batch).max_timestamp) == (0, NOW)
    assert isinstance(refusal(batch, ValidationConfig(log_append_time=True)), InvalidTimestamp)


def test_a_producer_id_without_an_epoch_is_accepted():
    validated(build_batch(some_records(), producer_id=1, producer_epoch=-1, base_sequence=0))


@pytest.mark.parametrize(("epoch", "sequence"), [(0, -1), (-1, -1)])
def test_a_producer_id_needs_a_sequence(epoch: int, sequence: int):
    batch = build_batch(some_records(), producer_id=1, producer_epoch=epoch, base_sequence=sequence)
    assert isinstance(refusal(batch), InvalidRecord)


def test_a_transactional_batch_needs_a_producer_id():
    assert isinstance(refusal(build_batch(some_records(), transactional=True)), InvalidRecord)


def test_unknown_codecs_are_refused():
    assert isinstance(refusal(with_bytes(22, b"\x05")), UnsupportedCompressionType)


def test_zstd_needs_a_young_enough_request():
    """§15.2.1: Produce below version 7."""
    batch = build_batch(some_records(), codec=Codec.ZSTD)
    assert isinstance(refusal(batch, zstd_allowed=False), UnsupportedCompressionType)
    assert validated(build_batch(some_records(), codec=Codec.LZ4), zstd_allowed=False)


def test_the_first_fault_in_kafka_s_order_is_reported():
    """A batch with every fault, mended one by one: zstd, base offset, size, checksum, count, records."""
    batch = build_batch(some_records(2, key=None), codec=Codec.ZSTD, base_offset=9)
    batch[57:61] = bytes(4)
    small = ValidationConfig(max_message_bytes=len(batch) - 1, is_compacted=True)

    assert refusal(batch, small, zstd_allowed=False).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert "base offset" in str(refusal(batch, small))
    batch[0:8] = bytes(8)
    assert refusal(batch, small).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(batch, COMPACTED).code == ErrorCode.CORRUPT_MESSAGE
    seal_batch(batch)
    assert "0 records" in str(refusal(batch, COMPACTED))
    assert isinstance(refusal(with_bytes(57, (2).to_bytes(4, "big"), batch), COMPACTED), RecordsRefused)


# The records


def test_records_of_a_compacted_topic_need_keys():
    batch = build_batch([Record(timestamp=NOW, key=key, value=b"v") for key in (b"a", None, b"", None)])

    error = refusal(batch, COMPACTED)

    assert isinstance(error, RecordsRefused)
    assert error.code == ErrorCode.INVALID_RECORD
    message = "a record of a compacted topic needs a key"
    assert error.record_errors == ((1, message), (3, message))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(("late", "accepted"), [(HOUR, True), (HOUR + 1, False)])
def test_timestamps_too_far_ahead_are_refused(codec: Codec, late: int, accepted: bool):
    config = ValidationConfig(timestamp_after_max_ms=HOUR)
    batch = build_batch([*some_records(2), Record(timestamp=NOW + late, value=b"v")], codec=codec)

    if accepted:
        assert validated(batch, config)
        return
    error = refusal(batch, config)
    assert isinstance(error, RecordsRefused)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [2])


@pytest.mark.parametrize(("early", "accepted"), [(HOUR, True), (HOUR + 1, False)])
def test_timestamps_too_far_back_are_refused(early: int, accepted: bool):
    config = ValidationConfig(timestamp_before_max_ms=HOUR)
    batch = build_batch([*some_records(1), Record(timestamp=NOW - early), *some_records(1)])

    if accepted:
        assert validated(batch, config)
        return
    assert refusal(batch, config).code == ErrorCode.INVALID_TIMESTAMP


def test_records_without_a_timestamp_are_never_too_old():
    config = ValidationConfig(timestamp_before_max_ms=HOUR)
    assert validated(build_batch([Record(timestamp=-1, value=b"v")]), config).max_timestamp == -1


@pytest.mark.parametrize("config", [COMPACTED, ValidationConfig(is_compacted=True, log_append_time=True)])
@pytest.mark.parametrize(("base", "delta"), [((1 << 63) - 1, 1), (-(1 << 63), -1)])
def test_a_timestamp_beyond_64_bits_is_refused(config: ValidationConfig, base: int, delta: int):
    batch = build_batch([Record(timestamp=5), Record(timestamp=5 + delta)])
    batch = sealed(batch, base=(27, base.to_bytes(8, "big", signed=True)))
    assert isinstance(refusal(batch, config), InvalidTimestamp)
    with pytest.raises(InvalidRecord):
        list(iterate_records(batch))


def test_log_append_time_ignores_the_clients_timestamp():
    config = ValidationConfig(log_append_time=True, timestamp_before_max_ms=1, timestamp_after_max_ms=1)

    header = validated(build_batch([Record(timestamp=5), Record(timestamp=NOW * 2)]), config)

    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, NOW)


def test_implausible_max_timestamp_is_corrected_as_kafka_does():
    too_low = with_bytes(35, (NOW - 1).to_bytes(8, "big"))
    too_high = with_bytes(35, (NOW * 2).to_bytes(8, "big"))

    assert validated(too_low).max_timestamp == NOW + 2
    assert validated(too_high, ValidationConfig(timestamp_after_max_ms=HOUR)).max_timestamp == NOW + 2
    assert validated(too_high, COMPACTED).max_timestamp == NOW + 2


def test_offsets_within_the_batch_must_count_up():
    batch = build_batch(some_records(1, key=b""))
    assert batch[BATCH_HEADER_SIZE + 3] == 0, "the offset delta"
    error = refusal(with_bytes(BATCH_HEADER_SIZE + 3, b"\x04", batch), COMPACTED)
    assert isinstance(error, RecordsRefused)
    assert error.record_errors == ((0, "offset delta 2, 0 expected"),)


def test_not_every_wrong_record_of_a_large_batch_is_named():
    error = refusal(build_batch(some_records(RECORD_ERRORS_MAX + 5, key=None)), COMPACTED)
    assert isinstance(error, RecordsRefused)
    assert len(error.record_errors) == RECORD_ERRORS_MAX
    assert str(error).startswith(f"{RECORD_ERRORS_MAX + 5} of {RECORD_ERRORS_MAX + 5} records refused")


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
@pytest.mark.parametrize("codec", list(Codec))
def test_lengths_that_do_not_fit_are_refused_in_small_batches(config: ValidationConfig, codec: Codec):
    """Without walking: as many records as are looked at, and their last must end with the batch."""
    for block in (b"\x0c\x00", bytes(20), b"\x7f" * 20):
        batch = build_batch(some_records(RECORDS_LOOKED_AT), codec=codec)[:BATCH_HEADER_SIZE] + compress(codec, block)
        assert isinstance(refusal(sealed(batch), config), InvalidRecord)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_block_that_does_not_decompress_is_refused(codec: Codec):
    batch = build_batch(some_records(), codec=codec)
    batch[BATCH_HEADER_SIZE + 8 :] = b"?" * 30
    assert isinstance(refusal(sealed(batch)), InvalidRecord)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_is_refused_so_that_a_java_producer_splits_it(codec: Codec):
    """§16.3.6: the bound is sixteen times max.message.bytes, 16 MiB at least."""
    assert PLAIN.max_decompressed_bytes == 16 * 1048588
    assert ValidationConfig(max_message_bytes=1000).max_decompressed_bytes == 16 << 20
    bomb = build_batch([Record(timestamp=NOW, value=bytes((16 << 20) + 10_000))], codec=codec)
    assert isinstance(refusal(bomb, ValidationConfig(max_message_bytes=len(bomb) // 2)), MessageTooLarge)
    assert isinstance(refusal(bomb), MessageTooLarge)


def test_what_is_not_walked_is_bounded_to_its_own_batch():
    """The price of not walking, as docs/decisions say it: stored, and every reader of records says so."""
    records = some_records(RECORDS_LOOKED_AT + 3)
    batch = build_batch(records)
    batch[-1] = 2  # The last record now announces a header that is not there.

    header = validated(sealed(batch))

    assert header.size_bytes == len(batch)
    read = iterate_records(batch)
    assert [next(read).value for _ in records[:-1]] == [b"value"] * (len(records) - 1)
    with pytest.raises(InvalidRecord):
        next(read)
    assert isinstance(refusal(batch, COMPACTED), InvalidRecord)


# Recompression


@pytest.mark.parametrize("stored", list(Codec))
@pytest.mark.parametrize("sent", list(Codec))
def test_a_topic_s_codec_is_what_is_stored(sent: Codec, stored: Codec):
    batch = build_batch(some_records(), codec=sent, producer_id=1, producer_epoch=2, base_sequence=3)
    view, header = validate_produced_batch(memoryview(batch), config=ValidationConfig(codec=stored), now_wall_ms=NOW)

    assert header == parse_batch_header(view)
    assert crc_is_valid(view, 0, header)
    assert list(iterate_records(view)) == list(iterate_records(batch))
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (stored, 1, 2, 3)
    assert (view.obj is batch) == (sent == stored)


def test_recompression_checks_records_and_the_size_it_comes_to():
    packed = build_batch([Record(timestamp=NOW, value=bytes(5000))], codec=Codec.ZSTD)
    plain = ValidationConfig(codec=Codec.NONE, max_message_bytes=len(packed))
    assert isinstance(refusal(packed, plain), MessageTooLarge)
    torn = build_batch(some_records())
    torn[-1] = 9
    assert isinstance(refusal(sealed(torn), ValidationConfig(codec=Codec.GZIP)), InvalidRecord)


def test_recompression_and_the_log_s_own_time_go_together():
    config = ValidationConfig(codec=Codec.LZ4, log_append_time=True)
    view, header = validate_produced_batch(memoryview(build_batch(some_records())), config=config, now_wall_ms=NOW + 9)
    assert crc_is_valid(view, 0, header)
    assert [record.timestamp for record in iterate_records(view)] == [NOW + 9] * 3


# The short way


@given(st.integers(0, 1 << 30))
def test_the_short_way_and_the_long_way_agree(seed: int):
    """Batches of the fuzz, once with settings that allow the short way and once with the same that do not."""
    batch = fuzz_records.damaged(fuzz_records.random.Random(seed))
    short, long = ValidationConfig(timestamp_after_max_ms=1000), ValidationConfig(timestamp_after_max_ms=1000)
    object.__setattr__(long, "is_plain", False)
    assert short.is_plain

    assert outcome(batch, short) == outcome(batch, long)


def outcome(batch: bytearray, config: ValidationConfig) -> object:
    try:
        view, header = validate_produced_batch(memoryview(bytearray(batch)), config=config, now_wall_ms=NOW)
    except KafkaError as error:
        return error.code, str(error)
    return bytes(view), header
