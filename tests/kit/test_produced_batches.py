"""What the handle writes at once may be several batches, as of a producer; what can never be written leaves nothing."""

import random

import pytest

from ottla.protocol.errors import KafkaError, MessageTooLarge
from ottla.protocol.records.record import Record
from ottla.testing.audit.final_logs import batches_of
from ottla.testing.handle import Kafka

LIMIT = 1000
CONFIGS = {"max.message.bytes": LIMIT}


def bases(handle: Kafka, topic: str = "t") -> list[int]:
    """The base offset of each batch in the log."""
    leader = handle._bed.reader.leader(topic, 0)
    assert leader is not None
    found = batches_of(leader, 0, leader.log.log_end_offset)
    assert found is not None
    return [each.base_offset for each in found]


def test_many_records_are_several_batches(handle: Kafka) -> None:
    handle.create_topic("t", 1)

    places = handle.produce("t", [b"%d" % number * 500 for number in range(2000)])

    assert places == [(0, offset) for offset in range(2000)]
    assert [each.value for each in handle.records("t")] == [b"%d" % number * 500 for number in range(2000)]
    assert 2 <= len(bases(handle)) <= 4


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_no_batch_is_larger_than_the_topic_takes(handle: Kafka, compression: str) -> None:
    """Of random bytes, which no codec makes smaller, with keys and headers."""
    handle.create_topic("t", 2, configs=CONFIGS)
    chance = random.Random(5)
    values = [chance.randbytes(chance.randrange(850)) for _ in range(60)]
    records = [Record(key=b"%d" % n, value=value, headers=[("h", b"x")] * (n % 3)) for n, value in enumerate(values)]

    places = handle.produce("t", records, compression=compression)

    written = {(each.partition, each.offset): each.value for each in handle.records("t")}
    assert [written[place] for place in places] == values
    assert len(written) == 60


@pytest.mark.parametrize(
    ("topic_compression", "compression", "value"),
    [("producer", "none", b"x" * LIMIT), ("uncompressed", "gzip", b"x" * 2 * LIMIT)],
    ids=["as it is", "as the topic keeps it"],
)
def test_record_too_large_by_itself_leaves_nothing(
    handle: Kafka, topic_compression: str, compression: str, value: bytes
) -> None:
    handle.create_topic("t", 2, configs={**CONFIGS, "compression.type": topic_compression})

    with pytest.raises(MessageTooLarge, match=r"a record of t-0 is a batch of \d+ bytes, at most 1000 allowed"):
        handle.produce("t", [b"small", b"small", value], compression=compression)

    assert handle.records("t") == []


def test_record_of_a_partition_that_is_not_there_leaves_nothing(handle: Kafka) -> None:
    handle.create_topic("t", 1)

    with pytest.raises(KafkaError, match="there is no partition t-3"):
        handle.produce("t", [b"a"], partition=3)

    assert handle.records("t") == []


def test_compressed_record_is_measured_as_it_is_kept(handle: Kafka) -> None:
    handle.create_topic("t", 1, configs=CONFIGS)

    handle.produce("t", [b"x" * 5 * LIMIT], compression="gzip")

    assert len(handle.records("t")) == 1


def test_sequences_go_on_from_batch_to_batch(handle: Kafka) -> None:
    handle.create_topic("t", 1, configs=CONFIGS)

    handle.produce("t", [b"x" * 400] * 4, as_producer=(7, 0, (1 << 31) - 2))

    assert [each.sequence for each in handle.records("t")] == [(1 << 31) - 2, (1 << 31) - 1, 0, 1]
    assert bases(handle) == [0, 2]
