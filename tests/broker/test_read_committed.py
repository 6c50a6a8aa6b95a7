"""Consumers with `isolation.level=read_committed`, and what shows open transactions (§43)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPythonPartition

from ottla.broker.broker import Broker
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.fetch import FetchResponse, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.storage.files import OsFile
from tests.broker.requests import list_offsets
from tests.broker.transactions import ended, mark, marker, written
from tests.broker.wire import (
    WAIT_S,
    Client,
    client_of,
    create_topic,
    fetch,
    fetch_request,
    parked_fetch,
    produce,
    running_broker,
    values_of,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ABORT, COMMIT = False, True
LATEST, MAX_TIMESTAMP = -1, -3


async def offset_by(client: Client, timestamp: int, isolation_level: int) -> int:
    request = list_offsets("t", timestamp=timestamp)
    request.isolation_level = isolation_level
    response = await client.call(request, ListOffsetsResponse, 7)
    answer = response.topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


async def test_latest_offset_is_the_last_stable_one(tmp_path: Path) -> None:
    """§43.6: a time at or above it is answered with none."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"plain")
        written(broker, "t", "open", producer=7)

        asked = [
            await offset_by(client, timestamp, level)
            for timestamp in (LATEST, MAX_TIMESTAMP, 2_000)
            for level in (READ_UNCOMMITTED, READ_COMMITTED)
        ]
        assert asked == [2, 1, 1, 0, 1, -1]

        await ended(client, "t", producer=7, commit=COMMIT)
        assert await offset_by(client, LATEST, READ_COMMITTED) == 3
        assert await offset_by(client, 2_000, READ_COMMITTED) == 1


async def test_answer_ends_at_the_first_open_transaction(tmp_path: Path) -> None:
    """§42.5, §43.1, §43.2: what others have committed behind it waits, too."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", segment_ms=1 << 60)
        await produce(client, "t", b"plain")
        written(broker, "t", "open", producer=7)
        written(broker, "t", "decided", producer=8)
        await ended(client, "t", producer=8, commit=COMMIT)

        committed = await fetch(client, "t", isolation_level=READ_COMMITTED)
        uncommitted = await fetch(client, "t", isolation_level=READ_UNCOMMITTED)

        assert values_of(committed.records) == [b"plain"]
        assert (committed.high_watermark, committed.last_stable_offset, committed.aborted_transactions) == (4, 1, [])
        assert values_of(uncommitted.records)[:3] == [b"plain", b"open", b"decided"]
        assert (uncommitted.last_stable_offset, uncommitted.aborted_transactions) == (1, None)


@pytest.mark.parametrize("names_replica", [{"replica_id": -3}, {"replica_state": ReplicaState(replica_id=-3)}])
async def test_future_replica_reads_what_is_uncommitted(tmp_path: Path, names_replica: dict[str, Any]) -> None:
    """As in Kafka, whatever its isolation level is."""
    version = 15 if "replica_state" in names_replica else 12
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "open", producer=7)
        topic_id = broker.metadata.image.topics["t"].topic_id
        request = fetch_request("t", isolation_level=READ_COMMITTED, **names_replica)
        if version == 15:
            request.topics[0].topic_id = topic_id

        response = await client.call(request, FetchResponse, version)

        answer = response.responses[0].partitions[0]
        assert values_of(answer.records) == [b"open"]
        assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (1, 0, None)


@pytest.mark.parametrize("deleted", [False, True], ids=["as it was", "with its segment deleted"])
async def test_cold_read_says_what_was_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool) -> None:
    """Also if the segments that know it go while a thread reads; nothing is said of what comes behind the answer."""

    def not_at_hand(self: OsFile, buffer: object, position: int) -> int:
        raise BlockingIOError

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", segment_ms=1 << 60)
        for producer in (7, 8):
            written(broker, "t", "undone", producer=producer)
            await ended(client, "t", producer=producer, commit=ABORT)
        log = broker.replicas.partition("t", 0).log
        log.roll()
        offload = broker.runtime.offload

        def delete_at_the_end(work: Any, done: Any, **options: Any) -> None:
            def delete_first() -> None:
                if deleted:
                    log.delete_records_before(log.log_end_offset)
                    log.delete_expired(log.log_end_offset, 0)
                done()

            offload(work, delete_first, **options)

        monkeypatch.setattr(OsFile, "readinto_nowait", not_at_hand)
        monkeypatch.setattr(broker.runtime, "offload", delete_at_the_end)
        answer = await fetch(client, "t", isolation_level=READ_COMMITTED, max_bytes=1)

        assert values_of(answer.records) == [b"undone"]
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 0)]
        assert len(list(log.segments)) == (1 if deleted else 2)


async def test_reader_in_the_middle_learns_what_was_aborted(tmp_path: Path) -> None:
    """§43.5: the marker lies behind what is returned, the beginning before it."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        for value in ("a", "b", "c"):
            written(broker, "t", value, producer=7)
        await ended(client, "t", producer=7, commit=ABORT)

        answer = await fetch(client, "t", 1, isolation_level=READ_COMMITTED, max_bytes=1)

        assert values_of(answer.records) == [b"b"]
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 0)]


async def test_marker_wakes_a_parked_reader(tmp_path: Path) -> None:
    """§42.3: all that was held back can be read when the high watermark passes the marker."""
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", "b", producer=7)
        reader.send(fetch_request("t", max_wait_ms=600_000, isolation_level=READ_COMMITTED), 11)
        await parked_fetch(broker)
        written(broker, "t", "c", producer=7)
        assert len(broker.replicas.delayed_fetch) == 1, "more of an open transaction is no reason"

        await ended(client, "t", producer=7, commit=COMMIT)

        response = await reader.receive(FetchResponse, 11)
        assert values_of(response.responses[0].partitions[0].records)[:3] == [b"a", b"b", b"c"]


async def test_producers_show_their_open_transactions(tmp_path: Path) -> None:
    """§41.1, KIP-664"""

    async def described(client: Client) -> list[tuple[int, int, int, int]]:
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        response = await client.call(request, DescribeProducersResponse, 0)
        return [
            (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.current_txn_start_offset)
            for each in response.topics[0].partitions[0].active_producers
        ]

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"plain")
        written(broker, "t", "a", producer=7, epoch=3)
        assert await described(client) == [(7, 3, -1, 1)]

        await mark(client, marker("t", producer=7, commit=COMMIT, epoch=3, coordinator_epoch=5))

        assert await described(client) == [(7, 3, 5, -1)]
        broker.replicas.partition("t", 0).resign()
        assert await described(client) == [(7, 3, 5, -1)], "any replica answers"


async def three_producers(broker: Broker, client: Client) -> list[tuple[int, bytes]]:
    """Interleaved, over several segments; (offset, value) of what is committed, in the order of the log."""
    await create_topic(client, "t", segment_bytes=400)
    committed: list[tuple[int, bytes]] = []
    for n in range(12):
        for producer in (1, 2, 3):
            value = f"{producer}/{n}"
            offset = written(broker, "t", value, value + "+", producer=producer)
            if commits(producer, n):
                committed += [(offset, value.encode()), (offset + 1, f"{value}+".encode())]
        plain = await produce(client, "t", b"plain/%d" % n)
        committed.append((plain.base_offset, b"plain/%d" % n))
        if n % 2:
            for producer in (3, 1, 2):
                await ended(client, "t", producer=producer, commit=commits(producer, n))
    assert len(broker.replicas.partition("t", 0).log.segments) > 5
    written(broker, "t", "open", producer=9)
    return committed


def commits(producer: int, n: int) -> bool:
    return bool((n // 2 + producer) % 2)


def by_confluent_kafka(bootstrap: str, offset: int, count: int) -> list[tuple[int, bytes]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, offset)])
    try:
        messages = consumer.consume(count, timeout=WAIT_S)
        messages += consumer.consume(1, timeout=0.3)
        return [(message.offset(), message.value()) for message in messages]
    finally:
        consumer.close()


def by_kafka_python(bootstrap: str, offset: int, count: int) -> list[tuple[int, bytes]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=500, fetch_max_wait_ms=100
    )
    partition = KafkaPythonPartition("t", 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    try:
        return [(message.offset, message.value) for message in consumer]
    finally:
        consumer.close()


@pytest.mark.parametrize("read", [by_confluent_kafka, by_kafka_python])
async def test_clients_read_what_was_committed_and_no_more(tmp_path: Path, read: Any) -> None:
    """TX03, TX04: also from the middle of transactions on, which began in segments before."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        committed = await three_producers(broker, client)

        for start in (0, 9, 31):
            expected = [each for each in committed if each[0] >= start]
            assert await asyncio.to_thread(read, broker.bootstrap, start, len(expected)) == expected
