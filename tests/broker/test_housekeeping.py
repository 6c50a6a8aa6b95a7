"""What a broker does by itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
from tests.broker.wire import (
    WAIT_S,
    client_of,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    running_broker,
    values_of,
)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - a state of the broker has no event
            await asyncio.sleep(0.01)


async def test_old_segments_are_deleted(tmp_path: Path) -> None:
    """§16.6.1"""
    async with (
        running_broker(tmp_path, log_retention_check_interval_ms=20) as broker,
        client_of(broker) as client,
    ):
        await create_topic(client, "t", retention_bytes=2000, segment_bytes=1048576, retention_ms=-1)
        log = broker.replicas.partition("t", 0).log
        for _ in range(6):
            await produce(client, "t", bytes(500_000))

        await until(lambda: log.log_start_offset > 0)

    assert len(log.segments) < 4


async def test_compacted_topics_are_compacted(tmp_path: Path) -> None:
    """§16.6.2"""
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        await create_topic(client, "t", cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio="0.01")
        for i in range(6):
            keyed = bytes(build_batch([Record(timestamp=1_000 + 10 * i, key=b"k", value=b"%d" % i)]))
            await client.call(produce_request("t", keyed), ProduceResponse, 9)
        log = broker.replicas.partition("t", 0).log

        await until(lambda: log.gaps_until > 0)
        response = await client.call(fetch_request("t"), FetchResponse, 11)

    answer = response.responses[0].partitions[0]
    assert answer.high_watermark == 6, "offsets stay"
    assert b"0" not in values_of(answer.records)


async def test_high_watermarks_are_checkpointed(tmp_path: Path) -> None:
    """§14.6.5"""
    interval = {"replica_high_watermark_checkpoint_interval_ms": 20}
    async with running_broker(tmp_path, **interval) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")

        checkpoint = tmp_path / "replication-offset-checkpoint"
        await until(lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text())
