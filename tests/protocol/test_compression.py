"""The codecs: what Kafka's clients write and read, and inputs made to exhaust a reader (§16.3.6)."""

import json
import struct
import subprocess
import sys
from contextlib import suppress

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from ottla.protocol.records.compression import Codec, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog; " * 3000
KIB, MIB = 1024, 1024 * 1024

KAFKA_PYTHON = {
    Codec.GZIP: (kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    Codec.SNAPPY: (kafka.codec.snappy_encode, kafka.codec.snappy_decode),
    Codec.LZ4: (kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    Codec.ZSTD: (kafka.codec.zstd_encode, kafka.codec.zstd_decode),
}
HAS = {
    Codec.GZIP: kafka.codec.has_gzip,
    Codec.SNAPPY: kafka.codec.has_snappy,
    Codec.LZ4: kafka.codec.has_lz4,
    Codec.ZSTD: kafka.codec.has_zstd,
}


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=2000), repeat=st.sampled_from([1, 1, 50]))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, repeat: int):
    whole = data * repeat
    assert decompress(codec, memoryview(compress(codec, whole)), len(whole)) == whole


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("level", [None, 1, 5])
def test_large_data_comes_back_from_a_small_first_room(codec: Codec, level: int | None):
    packed = compress(codec, TEXT, level)
    assert len(packed) < len(TEXT) / 8
    assert decompress(codec, packed) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_other_clients_read_what_is_compressed(codec: Codec):
    if not HAS[codec]():
        pytest.skip("kafka-python has no library for this codec here")
    assert bytes(KAFKA_PYTHON[codec][1](compress(codec, TEXT))) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_other_clients_compress_is_read(codec: Codec):
    if not HAS[codec]():
        pytest.skip("kafka-python has no library for this codec here")
    assert decompress(codec, KAFKA_PYTHON[codec][0](TEXT)) == TEXT


def test_aiokafka_s_codecs_are_read():
    """It always has its compression library here, whatever kafka-python finds."""
    assert decompress(Codec.GZIP, aiokafka.codec.gzip_encode(TEXT)) == TEXT
    assert decompress(Codec.SNAPPY, aiokafka.codec.snappy_encode(TEXT)) == TEXT
    assert decompress(Codec.LZ4, aiokafka.codec.lz4_encode(TEXT)) == TEXT
    assert decompress(Codec.ZSTD, aiokafka.codec.zstd_encode(TEXT)) == TEXT


def test_lz4_blocks_are_independent():
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20, "the flag of independent blocks"


def test_snappy_is_framed_as_snappy_java_frames_it():
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert struct.unpack_from(">i", packed, 16)[0] == len(cramjam.snappy.compress_raw(TEXT[: 32 * KIB]))


def test_raw_snappy_is_read_too():
    """librdkafka writes it without frames."""
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_joined_streams_are_one(codec: Codec):
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two")) == b"one two"


def test_no_codec_gives_the_buffer_itself():
    view = memoryview(b"plain")
    assert decompress(Codec.NONE, view, 1) is view
    assert compress(Codec.NONE, view) == b"plain"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int):
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"")
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_exact(codec: Codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(MessageTooLarge):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("garbage", [b"\x00" * 40, b"\xff" * 40, b"no stream at all", TEXT[:1000]])
def test_garbage_is_refused(codec: Codec, garbage: bytes):
    with pytest.raises(InvalidRecord):
        decompress(codec, garbage)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
def test_changed_streams_are_bytes_or_a_documented_error(codec: Codec, data: st.DataObject):
    packed = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    with suppress(InvalidRecord, MessageTooLarge):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


@pytest.mark.parametrize("declared", [1 << 20, (1 << 32) - 1])
def test_impossible_snappy_length_allocates_no_memory(declared: int):
    varint = bytearray()
    while declared > 0x7F:
        varint.append(declared & 0x7F | 0x80)
        declared >>= 7
    varint.append(declared)
    block = bytes(varint) + b"\x00a"

    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, block, 1 << 33)
    framed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", len(block)) + block
    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, framed, 1 << 33)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 1000, (1 << 31) - 1])
def test_a_snappy_frame_with_a_wrong_length_is_refused(length: int):
    head = compress(Codec.SNAPPY, b"")[:16]
    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, head + struct.pack(">i", length) + b"abc")
    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, head + b"\x00\x00")


def bombs() -> dict[str, tuple[int, bytes]]:
    """Inputs that want hundreds of megabytes, by their contents or by what they declare."""
    mebibyte = bytes(MIB)
    joined = {codec.name: (int(codec), compress(codec, mebibyte) * 200) for codec in COMPRESSING}
    # A frame that declares a content of 2**40 bytes, and one with a window of 128 MiB, around three raw bytes.
    zstd_block = (3 << 3 | 1).to_bytes(3, "little") + b"abc"
    # The byte before the block is a checksum of the header; one of the 256 is right.
    lz4_block = (0x80000003).to_bytes(4, "little") + b"abc" + bytes(4)
    lz4_header = b"\x04\x22\x4d\x18\x68\x70" + (1 << 40).to_bytes(8, "little")
    lz4_frames = {f"lz4 content size {byte}": (3, lz4_header + bytes([byte]) + lz4_block) for byte in range(256)}
    return {
        **joined,
        **lz4_frames,
        "one gzip member": (1, bytes(cramjam.gzip.compress(bytes(100 * MIB), 1))),
        "one zstd frame": (4, bytes(cramjam.zstd.compress(bytes(100 * MIB), 1))),
        "zstd content size": (4, b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + zstd_block),
        "zstd window": (4, b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3]) + zstd_block),
        "raw snappy length": (2, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        "raw snappy": (2, bytes(cramjam.snappy.compress_raw(bytes(100 * MIB)))),
    }


# Writing 5 to clear_refs sets the high-water mark back to what is resident.
READ_BOMBS = """
import json, sys
from pathlib import Path
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.compression import compress, decompress

def resident_kib(mark):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(mark))
    return int(line.split()[1])

def grown_kib(codec, packed, limit):
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_kib("VmRSS")
    try:
        answer = len(decompress(codec, packed, limit))
    except KafkaError as error:
        answer = type(error).__name__
    return answer, resident_kib("VmHWM") - before

for codec in (1, 2, 3, 4):
    decompress(codec, compress(codec, bytes(100_000)))
answers = {}
for line in sys.stdin:
    name, codec, packed = json.loads(line)
    answers[name] = grown_kib(codec, bytes.fromhex(packed), 1 << 20)
    if name == "one zstd frame":
        answers["control"] = grown_kib(codec, bytes.fromhex(packed), 200 << 20)
print(json.dumps(answers))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the high-water mark of memory from /proc")
def test_bombs_cost_no_more_memory_than_the_limit():
    lines = "\n".join(json.dumps((name, codec, packed.hex())) for name, (codec, packed) in bombs().items())

    run = subprocess.run([sys.executable, "-c", READ_BOMBS], input=lines, capture_output=True, text=True, check=True)

    results = json.loads(run.stdout)
    answer, grown_without_limit = results.pop("control")
    assert (answer, grown_without_limit > 90 * KIB) == (100 * MIB, True)
    answers = {name: answer for name, (answer, _) in results.items() if not name.startswith("lz4 content size")}
    assert answers == {
        "GZIP": "MessageTooLarge",
        "SNAPPY": "MessageTooLarge",
        "LZ4": "MessageTooLarge",
        "ZSTD": "MessageTooLarge",
        "one gzip member": "MessageTooLarge",
        "one zstd frame": "MessageTooLarge",
        "zstd content size": "InvalidRecord",
        "zstd window": 3,
        "raw snappy length": "InvalidRecord",
        "raw snappy": "MessageTooLarge",
    }
    assert {answer for name, (answer, _) in results.items() if name not in answers} == {"InvalidRecord"}
    assert max(grown for _, grown in results.values()) < 8 * KIB, results
