"""What topic configs do in a running broker, set at creation and later; and what damage on the disk looks like."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.batch import BatchHeader, iterate_batches, parse_batch_header
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log import Log
from tests.broker.wire import (
    WAIT_S,
    Client,
    batch,
    client_of,
    create_topic,
    fetch,
    produce,
    produce_request,
    running_broker,
    values_of,
)

TOPIC_RESOURCE = 2
SET = 0


async def alter(client: Client, topic: str, **configs: object) -> None:
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=str(value))
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await client.call(request, IncrementalAlterConfigsResponse, 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def log_of(broker: Broker, topic: str = "t") -> Log:
    return broker.replicas.partition(topic, 0).log


def headers_in(records: bytes) -> list[BatchHeader]:
    return [header for _, header in iterate_batches(memoryview(bytes(records)))]


async def test_with_log_append_time_the_broker_says_when(tmp_path: Path) -> None:
    """§16.3.5"""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", message_timestamp_type="LogAppendTime")
        now_ms = broker.runtime.clock.wall_ms()
        answer = await produce(client, "t", b"a")
        fetched = await fetch(client, "t")

    assert now_ms <= answer.log_append_time_ms < now_ms + WAIT_S * 1000
    header = parse_batch_header(memoryview(bytes(fetched.records)))
    assert (header.timestamp_type, header.max_timestamp) == (1, answer.log_append_time_ms)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
        ("uncompressed", Codec.NONE),
    ],
)
async def test_batches_are_stored_with_the_codec_of_the_topic(tmp_path: Path, name: str, codec: Codec) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await alter(client, "t", compression_type=name)
        for sent_with in Codec:
            await client.call(produce_request("t", batch(b"a" * 300, b"b", codec=sent_with)), ProduceResponse, 9)
        fetched = await fetch(client, "t")

    assert [header.codec for header in headers_in(fetched.records)] == [codec] * len(Codec)
    assert values_of(fetched.records) == [b"a" * 300, b"b"] * len(Codec)


async def test_a_limit_that_is_set_later_holds_from_the_next_batch_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        before = await produce(client, "t", bytes(1000))
        await alter(client, "t", max_message_bytes=500)
        after = await produce(client, "t", bytes(1000))

    assert (before.error_code, after.error_code) == (0, ErrorCode.MESSAGE_TOO_LARGE)


async def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    """§16.3.1"""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", segment_bytes=1_048_576, max_message_bytes=5_000_000)
        answer = await produce(client, "t", bytes(2_000_000))

    assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("configs", "segments"),
    [
        ({"segment_bytes": 1_048_576}, 3),
        ({"segment_ms": 1}, 3),
        ({"segment_index_bytes": 24, "index_interval_bytes": 0}, 2),
    ],
)
async def test_segments_are_rolled(tmp_path: Path, configs: dict[str, object], segments: int) -> None:
    """§16.2.3: by size, by age, and because an index is full"""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", **configs)
        for n in range(3):
            records = [Record(timestamp=1_000 + 10 * n, value=bytes(600_000))]
            await client.call(produce_request("t", bytes(build_batch(records))), ProduceResponse, 9)

        assert len(log_of(broker).segments) == segments


async def test_flush_ms_syncs_without_a_waiting_producer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", flush_ms=20)
        await produce(client, "t", b"a")
        log = log_of(broker)
        async with asyncio.timeout(WAIT_S):
            while log.flushed_offset != 1:  # noqa: ASYNC110 - a sync has no event for tests
                await asyncio.sleep(0.01)


async def test_records_are_deleted_up_to_an_offset(tmp_path: Path) -> None:
    """§15.6"""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        for n in range(5):
            await produce(client, "t", b"%d" % n)

        async def delete_before(offset: int) -> tuple[int, int]:
            topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
            answer = (await client.call(request, DeleteRecordsResponse, 2)).topics[0].partitions[0]
            return answer.low_watermark, answer.error_code

        assert await delete_before(3) == (3, 0)
        assert await delete_before(2) == (3, 0), "the start never moves back"
        assert await delete_before(6) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert (await fetch(client, "t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of((await fetch(client, "t", 3)).records) == [b"3", b"4"]
        assert await delete_before(-1) == (5, 0)

    async with running_broker(tmp_path) as broker:
        assert log_of(broker).log_start_offset == 5


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_flipped_bit_is_never_served_as_good_data(tmp_path: Path, is_restarted: bool) -> None:
    """What is before the damage and what comes after it can be read, the damaged batch cannot."""
    size = len(batch(b"good"))
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        for _ in range(3):
            await produce(client, "t", b"good")
        if not is_restarted:
            flip_bit(tmp_path, size + size // 2)
            await check_damage(client)
    if is_restarted:
        flip_bit(tmp_path, size + size // 2)
        async with running_broker(tmp_path) as broker, client_of(broker) as client:
            await check_damage(client)


def flip_bit(data_dir: Path, position: int) -> None:
    path = data_dir / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    with path.open("r+b") as log_file:
        log_file.write(content)


async def check_damage(client: Client) -> None:
    assert values_of((await fetch(client, "t", 0)).records) == [b"good"]
    assert (await fetch(client, "t", 1)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await produce(client, "t", b"more")).base_offset == 3
    assert values_of((await fetch(client, "t", 3)).records) == [b"more"]
