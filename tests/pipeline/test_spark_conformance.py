"""What Spark's official Kafka connector asks of a broker, one way of asking after the other; of three as of one."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster_processes import wait_for
from tests.pipeline import topics
from tests.pipeline.streams import Running, batch, options_of, run_available, stream, values_of
from tests.pipeline.topics import WAIT_S, Reachable, make_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
LONG_AGO_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
# A second one goes into a segment of its own.
ONE_BATCH_OF_TEN = "250"


@pytest.fixture(scope="module", params=["broker", "cluster"])
def broker(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def numbers(*ranges: range) -> list[str]:
    return sorted(f"{number:05}" for each in ranges for number in each)


def fill(broker: Reachable, topic: str, values: range, **fields: Any) -> None:
    produce(broker, topic, numbers(values), **fields)


# Batches


def test_a_batch_has_every_field_of_every_record(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker)
    headers = [("a", b"1"), ("empty", b""), ("null", None), ("a", b"2")]
    produce(broker, topic, ["v"], key="k", partition=2, timestamp=1_700_000_000_123, headers=headers)
    produce(broker, topic, [""], partition=0, timestamp=1_700_000_000_456)

    rows = {row.partition: row for row in batch(spark, broker, topic, includeHeaders=True).collect()}

    assert sorted(rows) == [0, 2]
    full, bare = rows[2], rows[0]
    assert (bytes(full.key), bytes(full.value), full.topic, full.offset) == (b"k", b"v", topic, 0)
    assert (round(full.timestamp.timestamp() * 1000), full.timestampType) == (1_700_000_000_123, 0)
    assert [(h.key, None if h.value is None else bytes(h.value)) for h in full.headers] == headers
    assert (bare.key, bytes(bare.value), bare.headers) == (None, b"", None)


def test_a_tombstone_is_a_null_value(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker, 1)
    produce(broker, topic, [None], key="k")
    (row,) = batch(spark, broker, topic).collect()
    assert (bytes(row.key), row.value) == (b"k", None)


def test_a_batch_is_bounded_by_offsets(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker, 2)
    fill(broker, topic, range(10), partition=0)
    fill(broker, topic, range(10, 20), partition=1)

    frame = batch(
        spark, broker, topic,
        startingOffsets={topic: {"0": 3, "1": -2}}, endingOffsets={topic: {"0": -1, "1": 4}},
    )  # fmt: skip

    assert values_of(frame) == numbers(range(3, 10), range(10, 14))


def test_a_batch_is_bounded_by_timestamps(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker, 1)
    for number in range(5):
        fill(broker, topic, range(number, number + 1), partition=0, timestamp=1_700_000_000_000 + 1000 * number)

    first, last = 1_700_000_001_000, 1_700_000_003_500
    assert values_of(batch(spark, broker, topic, startingTimestamp=first, endingTimestamp=last)) == numbers(range(1, 4))
    by_partition = {"startingOffsetsByTimestamp": {topic: {"0": first + 1}}}
    assert values_of(batch(spark, broker, topic, **by_partition)) == numbers(range(2, 5))


def test_start_after_the_last_record_is_an_error_or_the_end(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker, 1)
    fill(broker, topic, range(3))
    beyond = {"startingTimestamp": 4_000_000_000_000}

    assert values_of(batch(spark, broker, topic, **beyond, startingOffsetsByTimestampStrategy="latest")) == []
    with pytest.raises(Exception, match=r"No offset matched from request"):
        batch(spark, broker, topic, **beyond).collect()


def test_partitions_are_split_among_more_tasks(spark: Any, broker: Reachable) -> None:
    topic = make_topic(broker, 2)
    fill(broker, topic, range(1000))

    frame = batch(spark, broker, topic, minPartitions=7)

    assert frame.rdd.getNumPartitions() >= 7
    assert values_of(frame) == numbers(range(1000))


def test_topics_by_pattern_and_partitions_by_name(spark: Any, broker: Reachable) -> None:
    first, second = make_topic(broker, 2), make_topic(broker, 2)
    fill(broker, first, range(5), partition=0)
    fill(broker, second, range(5, 10), partition=1)

    by_pattern = spark.read.format("kafka").options(**options_of(broker, {"subscribePattern": f"{first}|{second}"}))
    by_name = spark.read.format("kafka").options(**options_of(broker, {"assign": {first: [1], second: [1]}}))

    assert values_of(by_pattern.load()) == numbers(range(10))
    assert values_of(by_name.load()) == numbers(range(5, 10))


def test_a_topic_that_is_not_there_is_named(spark: Any, broker: Reachable) -> None:
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        batch(spark, broker, topics.topic_name("absent")).collect()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(spark: Any, broker: Reachable, codec: str) -> None:
    topic = make_topic(broker, 1, compression_type=codec)
    fill(broker, topic, range(500))
    assert values_of(batch(spark, broker, topic)) == numbers(range(500))


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels(spark: Any, broker: Reachable, level: str) -> None:
    topic = make_topic(broker)
    fill(broker, topic, range(100))
    assert values_of(batch(spark, broker, topic, kafka_isolation_level=level)) == numbers(range(100))


# Streams


def test_a_stream_sees_what_is_there_and_what_comes(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker)
    fill(broker, topic, range(10))
    with Running(stream(spark, broker, topic), checkpoint) as running:
        running.wait_for(lambda values: len(values) >= 10)
        fill(broker, topic, range(10, 20))
        assert running.wait_for(lambda values: len(values) >= 20) == numbers(range(20))


def test_a_stream_from_the_end_sees_only_what_comes(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker, 1)
    fill(broker, topic, range(10))
    with Running(stream(spark, broker, topic, startingOffsets="latest"), checkpoint) as running:
        wait_for(lambda: (Path(checkpoint) / "offsets" / "0").exists(), WAIT_S, "the query has not begun")
        fill(broker, topic, range(10, 20))
        assert running.wait_for(lambda values: len(values) >= 10) == numbers(range(10, 20))


def test_available_now_ends_and_the_next_run_goes_on(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker)
    fill(broker, topic, range(100))
    assert run_available(stream(spark, broker, topic), checkpoint).values == numbers(range(100))
    fill(broker, topic, range(100, 130))

    assert run_available(stream(spark, broker, topic), checkpoint).values == numbers(range(100, 130))
    assert run_available(stream(spark, broker, topic), checkpoint).values == []


def test_batches_are_no_larger_than_asked(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker, 2)
    fill(broker, topic, range(100))

    done = run_available(stream(spark, broker, topic, maxOffsetsPerTrigger=30), checkpoint)

    assert done.values == numbers(range(100))
    assert len(done.batches) >= 4
    assert max(map(len, done.batches)) <= 30


def test_a_stream_starts_at_a_timestamp(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker, 1)
    for number in range(4):
        fill(broker, topic, range(number, number + 1), timestamp=1_700_000_000_000 + 1000 * number)
    started = stream(spark, broker, topic, startingTimestamp=1_700_000_002_000)
    assert run_available(started, checkpoint).values == numbers(range(2, 4))


def test_a_partition_added_during_a_query_is_read_from_its_start(
    spark: Any, broker: Reachable, checkpoint: str
) -> None:
    topic = make_topic(broker, 1)
    fill(broker, topic, range(5))
    settings = {"kafka_metadata_max_age_ms": 200}
    with Running(stream(spark, broker, topic, **settings), checkpoint) as running:
        running.wait_for(lambda values: len(values) >= 5)
        topics.add_partitions(broker, topic, 2)
        fill(broker, topic, range(5, 10), partition=1)
        assert running.wait_for(lambda values: len(values) >= 10) == numbers(range(10))


# Records that are gone


def seen_then_lost(spark: Any, broker: Reachable, checkpoint: str) -> str:
    """A query has read 0-9; of the 20 records after that, retention has taken the first ten."""
    topic = make_topic(broker, 1, segment_bytes=ONE_BATCH_OF_TEN)
    fill(broker, topic, range(10), timestamp=LONG_AGO_MS)
    assert len(run_available(stream(spark, broker, topic), checkpoint).values) == 10
    fill(broker, topic, range(10, 20), timestamp=LONG_AGO_MS)
    fill(broker, topic, range(20, 30))
    topics.set_retention(broker, topic, HOUR_MS)
    wait_for(lambda: topics.watermarks(broker, topic, 0) == (20, 30), WAIT_S, "retention takes nothing")
    return topic


def test_lost_records_stop_a_query_that_minds(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = seen_then_lost(spark, broker, checkpoint)
    with pytest.raises(Exception, match=r"(?i)data.?loss|missed|out of range|aged out"):
        run_available(stream(spark, broker, topic, failOnDataLoss=True), checkpoint)


def test_lost_records_are_passed_over_by_a_query_that_does_not(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = seen_then_lost(spark, broker, checkpoint)
    done = run_available(stream(spark, broker, topic, failOnDataLoss=False), checkpoint)
    assert done.values == numbers(range(20, 30))


# The old way to ask for offsets: a consumer group's member


def test_offsets_by_way_of_a_consumer_group(spark: Any, broker: Reachable, checkpoint: str) -> None:
    topic = make_topic(broker)
    fill(broker, topic, range(50))
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    try:
        assert values_of(batch(spark, broker, topic)) == numbers(range(50))
        frame = stream(spark, broker, topic, groupIdPrefix="old-way")
        assert run_available(frame, checkpoint).values == numbers(range(50))
        fill(broker, topic, range(50, 60))
        assert run_available(frame, checkpoint).values == numbers(range(50, 60))
    finally:
        spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")


# The sink


def rows_to_write(spark: Any, count: int) -> Any:
    return spark.range(count).selectExpr(
        "CAST(id AS STRING) AS key",
        "printf('%05d', id) AS value",
        "CAST(id % 3 AS INT) AS partition",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )


@pytest.mark.parametrize("idempotent", [True, False])
def test_the_sink_writes_every_row_once(spark: Any, broker: Reachable, idempotent: bool) -> None:
    topic = make_topic(broker)
    settings = {"topic": topic, "includeHeaders": True, "kafka.enable.idempotence": idempotent}

    rows_to_write(spark, 2000).write.format("kafka").options(**options_of(broker, settings)).save()

    records = topics.consume_all(broker, topic)
    assert sorted(record.value().decode() for record in records) == numbers(range(2000))
    assert all(int(record.key()) % 3 == record.partition() for record in records)
    assert all(record.headers() == [("n", record.key())] for record in records)


def test_a_stream_from_topic_to_topic(spark: Any, broker: Reachable, checkpoint: str) -> None:
    source, target = make_topic(broker), make_topic(broker)
    fill(broker, source, range(300))
    settings = options_of(broker, {"topic": target, "checkpointLocation": checkpoint})

    query = stream(spark, broker, source).select("key", "value").writeStream.format("kafka").options(**settings)
    assert query.trigger(availableNow=True).start().awaitTermination(60)

    assert values_of(batch(spark, broker, target)) == numbers(range(300))
