"""Headers of record batches (§16.1): their fields, their checksum, and what may be patched in them."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import CorruptMessage
from ottla.protocol.records import batch as batches
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    CRC_COVERS_FROM,
    BatchHeader,
    assign_offset_and_epoch,
    crc32c,
    crc_is_valid,
    iterate_batches,
    parse_batch_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.protocol.records.record import Record, build_batch, iterate_records
from tests.protocol import golden_batches as golden


def batch_of(*values: bytes, **options: object) -> bytearray:
    return build_batch([Record(timestamp=1000 + i, value=value) for i, value in enumerate(values)], **options)


def header_with(**fields: int) -> BatchHeader:
    plain = BatchHeader(0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return plain._replace(**fields)


def test_a_header_of_kafka_s_is_read_field_by_field():
    header = parse_batch_header(golden.ZSTD)

    assert header == BatchHeader(
        base_offset=0,
        batch_length=0x6C,
        partition_leader_epoch=-1,
        magic=2,
        crc=0xD4DA8D14,
        attributes=4,
        last_offset_delta=2,
        base_timestamp=1700000000000,
        max_timestamp=1700000000005,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=7,
        record_count=3,
    )
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(golden.ZSTD), 2, 3)
    assert (header.codec, header.last_sequence, header.timestamp_type) == (4, 9, batches.CREATE_TIME)
    assert (header.is_control, header.is_transactional, header.has_delete_horizon) == (False, False, False)


def test_a_marker_of_kafka_s_is_a_transactional_control_batch():
    header = parse_batch_header(golden.MARKER)

    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.base_sequence) == (41, 5, -1)
    assert header.last_sequence == -1


@pytest.mark.parametrize("kafkas", [*golden.BY_CODEC.values(), golden.MARKER, golden.APPEND_TIME])
def test_the_checksum_of_kafka_s_batches_is_ours(kafkas: bytes):
    assert crc_is_valid(kafkas, 0, parse_batch_header(kafkas))


def test_crc32c_has_the_check_value_of_rfc_3720():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(memoryview(bytearray(32))) == 0x8A9136AA


def test_checksum_does_not_import_importlib_metadata():
    script = "import sys, ottla.protocol.records.batch as b; print('importlib.metadata' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_position_within_the_buffer_is_where_the_batch_is_read():
    buffer = b"xyz" + golden.NONE

    header = parse_batch_header(memoryview(buffer), 3)

    assert header == parse_batch_header(golden.NONE)
    assert crc_is_valid(memoryview(buffer), 3, header)


@pytest.mark.parametrize("size", [0, 1, BATCH_HEADER_SIZE - 1])
def test_too_few_bytes_are_no_header(size: int):
    with pytest.raises(CorruptMessage):
        parse_batch_header(golden.NONE[:size])


def test_setting_offset_and_leader_epoch_keeps_the_checksum():
    """T-19: neither lies under the CRC."""
    batch = bytearray(golden.GZIP)

    assign_offset_and_epoch(memoryview(batch), 0, 1 << 40, 12)

    header = parse_batch_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert crc_is_valid(batch, 0, header)
    assert batch[16:] == golden.GZIP[16:]


@given(st.sampled_from([*golden.BY_CODEC.values(), golden.MARKER]), st.data())
def test_one_changed_bit_under_the_checksum_is_always_seen(kafkas: bytes, data: st.DataObject):
    at = data.draw(st.integers(CRC_COVERS_FROM, len(kafkas) - 1))
    batch = bytearray(kafkas)
    batch[at] ^= data.draw(st.integers(1, 255))

    assert not crc_is_valid(batch, 0, parse_batch_header(batch))


@pytest.mark.parametrize("at", range(17, 21))
def test_a_changed_checksum_is_seen(at: int):
    batch = bytearray(golden.NONE)
    batch[at] ^= 1
    assert not crc_is_valid(batch, 0, parse_batch_header(batch))


def test_log_append_time_is_written_with_a_new_checksum():
    batch = bytearray(b"??") + batch_of(b"a", b"b", codec=1)

    header = set_log_append_time(memoryview(batch), 2, parse_batch_header(batch, 2), 5000)

    assert header == parse_batch_header(batch, 2)
    assert crc_is_valid(batch, 2, header)
    assert header.timestamp_type == batches.LOG_APPEND_TIME
    assert [record.timestamp for record in iterate_records(batch[2:])] == [5000, 5000]


def test_the_max_timestamp_is_corrected_with_a_new_checksum():
    batch = bytearray(b"??") + batch_of(b"a", b"b")

    header = set_max_timestamp(memoryview(batch), 2, parse_batch_header(batch, 2), 7000)

    assert header == parse_batch_header(batch, 2)
    assert header.max_timestamp == 7000
    assert crc_is_valid(batch, 2, header)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 3, 8), (2147483647, 0, 2147483647), (2147483647, 1, 0), (2147483646, 4, 2), (-1, 5, -1)],
)
def test_after_the_last_sequence_number_comes_zero(base: int, delta: int, last: int):
    """§13.6.2 d."""
    assert header_with(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_attribute_bits_are_told_apart():
    horizon = header_with(attributes=0x40 | 0x08 | 2)
    assert (horizon.has_delete_horizon, horizon.timestamp_type, horizon.codec) == (True, 1, 2)


def test_batches_come_one_after_the_other_with_their_positions():
    first, second = batch_of(b"a"), batch_of(b"b", b"c", base_offset=1)

    found = list(iterate_batches(memoryview(first + second)))

    assert [(position, header.base_offset) for position, header in found] == [(0, 0), (len(first), 1)]


@pytest.mark.parametrize("missing", [1, 20, 60, 61, 68])
def test_a_batch_cut_off_by_the_end_is_left_out(missing: int):
    whole, torn = batch_of(b"a"), batch_of(b"b")
    buffer = whole + torn[: len(torn) - missing]

    assert [position for position, _ in iterate_batches(buffer)] == [0]


@pytest.mark.parametrize("length", [48, 0, -1, -(1 << 31)])
def test_a_length_that_no_batch_can_have_ends_the_search(length: int):
    broken = bytearray(batch_of(b"b"))
    broken[8:12] = length.to_bytes(4, "big", signed=True)
    found = iterate_batches(batch_of(b"a") + broken)

    assert next(found)[0] == 0
    with pytest.raises(CorruptMessage):
        next(found)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_ends_the_search(magic: int):
    broken = batch_of(b"a")
    broken[16] = magic
    with pytest.raises(CorruptMessage):
        list(iterate_batches(broken))


@given(st.binary(max_size=300))
def test_garbage_is_batches_or_a_documented_error(garbage: bytes):
    try:
        end = 0
        for position, header in iterate_batches(garbage):
            assert position == end
            end = position + header.size_bytes
        assert end <= len(garbage)
    except CorruptMessage:
        pass
