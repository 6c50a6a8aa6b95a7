"""Records inside batches: against Kafka's own bytes, against other clients' builders and readers, against garbage."""

import tracemalloc
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from ottla.protocol.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from ottla.protocol.primitives import build_varint, read_varint, read_varlong
from ottla.protocol.records.batch import BATCH_HEADER_SIZE, crc_is_valid, parse_batch_header, seal_batch
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import (
    Record,
    build_batch,
    iterate_records,
    rebuild_batch,
    recompress_batch,
    record_block,
    records_fit,
    walk_block,
)
from tests.protocol import fuzz_records
from tests.protocol import golden_batches as golden

CODECS = list(Codec)

parts = st.one_of(st.none(), st.binary(max_size=40))
records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(-1, 1 << 45),
    key=parts,
    value=parts,
    headers=st.lists(st.tuples(st.text(max_size=5), parts), max_size=3).map(tuple),
)


def numbered(some: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(some)]


def batch_with_block(block: bytes, count: int) -> bytearray:
    """A batch around bytes that may be no records, with a right checksum."""
    batch = build_batch([Record()])[:BATCH_HEADER_SIZE] + block
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    seal_batch(batch)
    return batch


# Golden bytes


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_s_batches_are_read(codec: Codec):
    assert list(iterate_records(golden.BY_CODEC[codec])) == golden.RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_built_as_kafka_builds_them(codec: Codec):
    """Byte for byte where there is no codec's library whose choices may differ; otherwise in every field."""
    built = build_batch(golden.RECORDS, codec=codec, producer_id=4711, producer_epoch=3, base_sequence=7)
    kafkas = golden.BY_CODEC[codec]

    if codec == Codec.NONE:
        assert built == kafkas
    ours, theirs = parse_batch_header(built), parse_batch_header(kafkas)
    assert ours._replace(crc=0, batch_length=0) == theirs._replace(crc=0, batch_length=0)
    assert record_block(built, ours) == record_block(kafkas, theirs)


def test_a_marker_of_kafka_s_is_rebuilt_byte_for_byte():
    (marker,) = iterate_records(golden.MARKER)
    assert marker == Record(41, 1700000000000, b"\0\0\0\0", b"\0\0\0\0\0\x09")

    built = build_batch(
        [marker],
        base_offset=41,
        producer_id=4711,
        producer_epoch=3,
        leader_epoch=5,
        transactional=True,
        control=True,
    )
    assert built == golden.MARKER


def test_log_append_time_is_the_time_of_every_record():
    assert [record.timestamp for record in iterate_records(golden.APPEND_TIME)] == [1800000000000]
    built = build_batch(
        [Record(timestamp=1700000000000, key=b"k", value=b"v")],
        base_offset=5,
        leader_epoch=2,
        log_append_time_ms=1800000000000,
    )
    assert list(iterate_records(built)) == list(iterate_records(golden.APPEND_TIME))
    assert parse_batch_header(built).attributes == parse_batch_header(golden.APPEND_TIME).attributes


# Round trips and other clients


@given(st.lists(records, min_size=1, max_size=12), st.sampled_from(CODECS), st.integers(0, 1 << 50))
def test_what_is_built_is_read(some: list[Record], codec: Codec, base_offset: int):
    batch = build_batch(some, codec=codec, base_offset=base_offset)

    header = parse_batch_header(batch)
    assert list(iterate_records(batch)) == numbered(some, base_offset)
    assert crc_is_valid(batch, 0, header)
    assert (header.size_bytes, header.codec, header.record_count) == (len(batch), codec, len(some))
    assert header.max_timestamp == max(record.timestamp for record in some)


@pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])
@given(some=st.lists(records.filter(lambda r: r.timestamp >= 0), min_size=1, max_size=6), codec=st.sampled_from(CODECS))
def test_other_clients_read_what_is_built(reader: type, some: list[Record], codec: Codec):
    batch = bytes(build_batch(some, codec=codec, base_offset=100))

    theirs = reader(batch).next_batch()

    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in theirs] == [
        tuple(record) for record in numbered(some, 100)
    ]


def built_by_kafka_python(some: list[Record], codec: Codec) -> bytes:
    builder = KafkaPythonBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for record in some:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    return bytes(builder.buffer())


def built_by_aiokafka(some: list[Record], codec: Codec) -> bytes:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, record in enumerate(some):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("build", [built_by_kafka_python, built_by_aiokafka])
@given(some=st.lists(records.filter(lambda r: r.timestamp >= 0), min_size=1, max_size=6), codec=st.sampled_from(CODECS))
def test_what_other_clients_build_is_read(build: Callable, some: list[Record], codec: Codec):
    batch = build(some, codec)

    assert crc_is_valid(batch, 0, parse_batch_header(batch))
    assert list(iterate_records(batch)) == numbered(some)


def test_many_records_of_every_length_of_length():
    some = [Record(timestamp=i, value=bytes(size)) for i, size in enumerate([0, 50, 63, 64, 8180, 8192, 1 << 20])]
    assert list(iterate_records(build_batch(some))) == numbered(some)


def test_header_names_that_are_not_utf8_survive():
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = build_batch([Record(headers=((name, b"x"),))])
    assert [record.headers for record in iterate_records(batch)] == [((name, b"x"),)]
    assert build_batch(iterate_records(batch)) == batch


# What compaction keeps


def test_rebuilding_keeps_offsets_producer_and_range():
    """§16.1.4: a compacted batch has fewer records than offsets."""
    original = build_batch(
        [Record(timestamp=1000 + i, key=b"%d" % i, value=b"v") for i in range(5)],
        base_offset=70,
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        leader_epoch=4,
    )
    header, kept = parse_batch_header(original), list(iterate_records(original))[1:3]

    rebuilt = rebuild_batch(header, kept)

    after = parse_batch_header(rebuilt)
    assert list(iterate_records(rebuilt)) == kept
    assert crc_is_valid(rebuilt, 0, after)
    assert (after.last_offset, after.last_sequence, after.record_count) == (74, 9, 2)
    assert (after.producer_id, after.producer_epoch, after.partition_leader_epoch, after.codec) == (9, 2, 4, 1)
    assert after.max_timestamp == 1002


def test_rebuilding_with_nothing_left_keeps_the_producer():
    header = parse_batch_header(golden.NONE)
    empty = rebuild_batch(header, [], codec=Codec.NONE)
    assert list(iterate_records(empty)) == []
    assert parse_batch_header(empty).last_sequence == header.last_sequence


def test_a_delete_horizon_takes_the_base_timestamp_and_stays():
    header, kept = parse_batch_header(golden.NONE), golden.RECORDS[1:]

    marked = rebuild_batch(header, kept, delete_horizon_ms=1800000000000)

    again = parse_batch_header(marked)
    assert (again.has_delete_horizon, again.base_timestamp) == (True, 1800000000000)
    assert list(iterate_records(marked)) == kept
    assert rebuild_batch(again, kept, delete_horizon_ms=1900000000000) == marked


@pytest.mark.parametrize("codec", CODECS)
def test_recompressing_changes_nothing_but_the_codec(codec: Codec):
    header = parse_batch_header(golden.SNAPPY)
    block = record_block(golden.SNAPPY, header)

    batch = recompress_batch(header, block, codec)

    assert list(iterate_records(batch)) == golden.RECORDS
    assert parse_batch_header(batch)._replace(crc=0, batch_length=0, attributes=0) == header._replace(
        crc=0, batch_length=0, attributes=0
    )


# Bad input (§1.7)


@pytest.mark.parametrize("cut", [1, 10, 40, len(golden.NONE) - 1])
def test_a_torn_batch_is_corrupt(cut: int):
    with pytest.raises(CorruptMessage):
        list(iterate_records(golden.NONE[:-cut]))


@pytest.mark.parametrize("count", [0, 2, 4, 1 << 20])
def test_records_must_fill_their_block(count: int):
    block = golden.NONE[BATCH_HEADER_SIZE:]
    with pytest.raises(InvalidRecord):
        list(iterate_records(batch_with_block(block, count)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\x01\x01",
        b"\x00\x00\x00\x03\x01\x00",
        b"\x00\x00\x00\x01\x03\x00",
        b"\x00\x00\x00\x01\x01\x01",
        b"\x00\x00\x00\x01\x01\x00extra",
        b"\x00\x00\x00\x7e\x01\x00",
        b"\x00\x00\x00\x01\x01\x02\x01\x01",
        b"\x00\x00\x00\x01\x01\x02\x00\x03",
        b"\x00\x00\x00\x01\x01" + build_varint(1 << 30),
        b"\x00\x00\x00" + build_varint((1 << 31) - 1),
        b"\x00\x00\xff\xff\xff\xff\xff\x01\x01\x01\x00",
        b"\x00" + b"\xff" * 10 + b"\x01\x00\x01\x01\x00",
        b"\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00",
    ],
)
def test_a_record_whose_parts_do_not_fill_it_is_refused(body: bytes):
    with pytest.raises(InvalidRecord):
        list(iterate_records(batch_with_block(build_varint(len(body)) + body, 1)))


@pytest.mark.parametrize("length", [-1, -5, 100, (1 << 31) - 1, -(1 << 31)])
def test_a_record_length_that_cannot_be_is_refused(length: int):
    block = build_varint(length) + golden.NONE[BATCH_HEADER_SIZE + 1 :]
    with pytest.raises(InvalidRecord):
        list(iterate_records(batch_with_block(block, 3)))


def test_announced_sizes_and_counts_are_not_allocated():
    """§1.7.8, T-24: two gigabytes announced in ten bytes, as a record, a value, headers and records."""
    hostile = [
        batch_with_block(build_varint((1 << 31) - 1), 1),
        batch_with_block(build_varint(10) + b"\x00\x00\x00\x01" + build_varint((1 << 31) - 1) + b"\x00", 1),
        batch_with_block(build_varint(10) + b"\x00\x00\x00\x01\x01" + build_varint((1 << 31) - 1), 1),
        batch_with_block(golden.NONE[BATCH_HEADER_SIZE:], (1 << 31) - 1),
    ]
    tracemalloc.start()
    try:
        for batch in hostile:
            with pytest.raises(InvalidRecord):
                list(iterate_records(batch))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_batch_that_decompresses_beyond_the_limit_is_refused():
    batch = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    assert len(list(iterate_records(batch, 101_000))) == 1
    with pytest.raises(MessageTooLarge):
        list(iterate_records(batch, 99_000))


def test_an_unknown_codec_is_refused():
    batch = build_batch([Record()])
    batch[22] |= 7
    with pytest.raises(UnsupportedCompressionType):
        list(iterate_records(batch))


@given(st.binary(max_size=120), st.integers(-3, 5))
def test_garbage_blocks_are_records_or_a_documented_error(block: bytes, count: int):
    try:
        list(iterate_records(batch_with_block(block, count)))
    except (InvalidRecord, CorruptMessage):
        return


def test_damaged_batches_raise_only_what_is_documented():
    assert fuzz_records.run(seed=1, inputs=3000) > 100


# Lengths only


@given(st.lists(records, min_size=1, max_size=8), st.integers(1, 10))
def test_the_lengths_of_records_lead_to_the_end(some: list[Record], records_max: int):
    batch = build_batch(some)
    assert records_fit(memoryview(batch), BATCH_HEADER_SIZE, len(some), records_max)
    assert not records_fit(batch, BATCH_HEADER_SIZE, len(some) + 1, len(some) + 1)
    assert not records_fit(batch + b"\x0c", BATCH_HEADER_SIZE, len(some), len(some))


@given(st.binary(max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_a_look_at_lengths_refuses_nothing_that_a_walk_accepts(block: bytes, count: int, records_max: int):
    try:
        walked = len(list(walk_block(block, count))) == count
    except InvalidRecord:
        walked = False
    assert records_fit(block, 0, count, records_max) or not walked


@pytest.mark.parametrize("length", [-1, -2, -64, -65, -8192, -8193, -(1 << 31)])
def test_a_look_at_lengths_refuses_negative_ones(length: int):
    assert not records_fit(build_varint(length) + bytes(10), 0, 1, 4)
    assert not records_fit(build_varint(length), 0, 1, 4)
    assert not records_fit(build_varint(length) + bytes(10_000), 0, 2, 1)


# Numbers


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlongs_come_back(number: int):
    assert read_varlong(build_varint(number), 0) == (number, len(build_varint(number)))


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_varints_come_back(number: int):
    packed = b"?" + build_varint(number) + b"?"
    assert read_varint(packed, 1) == (number, len(packed) - 1)


@pytest.mark.parametrize(
    ("number", "packed"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        ((1 << 31) - 1, "feffffff0f"),
    ],
)
def test_varints_are_kafka_s(number: int, packed: str):
    """Values of Kafka's ByteUtilsTest."""
    assert build_varint(number).hex() == packed


@pytest.mark.parametrize("packed", ["ffffffff10", "ffffffffff00", "ffffffff7f"])
def test_a_varint_beyond_32_bits_is_refused(packed: str):
    with pytest.raises(InvalidRecord):
        read_varint(bytes.fromhex(packed), 0)


@pytest.mark.parametrize("packed", ["ff" * 9 + "02", "ff" * 10 + "00"])
def test_a_varlong_beyond_64_bits_is_refused(packed: str):
    with pytest.raises(InvalidRecord):
        read_varlong(bytes.fromhex(packed), 0)
