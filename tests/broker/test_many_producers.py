"""A broker with a partition of very many producers: a snapshot is written in a thread, the rest is done in slices."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers import describe_producers
from ottla.broker.runtime import ITEMS_PER_SLICE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
from ottla.storage import log_producers, producer_pages, producer_table
from ottla.storage.producer_pages import ExpirySlice
from ottla.storage.producer_snapshots import SnapshotWrite
from ottla.storage.producer_state import ProducerStateManager
from tests.broker.test_small_steps import most_in_a_step
from tests.broker.wire import Client, client_of, create_topic, produce_request, running_broker, until
from tests.storage.producers import batch as header_of

COUNT = 60
MORE_THAN_A_SLICE = 2 * ITEMS_PER_SLICE + 7


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "SNAPSHOT_IN_PLACE_MAX", 10)
    monkeypatch.setattr(producer_pages, "PRODUCERS_PER_PAGE", 4)
    monkeypatch.setattr(producer_pages, "PAGES_PER_SLICE", 2)
    monkeypatch.setattr(producer_table, "RECENT_MAX", 2)
    monkeypatch.setattr(producer_table, "PACKED_AT_ONCE", 1)


async def write_as_many(client: Client) -> None:
    for producer in range(COUNT):
        records = [Record(timestamp=1_000, key=None, value=b"x")]
        sent = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0)
        await client.call(produce_request("t", bytes(sent)), ProduceResponse, 9)


async def test_snapshot_of_many_is_written_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    run = SnapshotWrite.run
    monkeypatch.setattr(
        SnapshotWrite, "run", lambda self: (threads.append(threading.current_thread().name), run(self))[1]
    )
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await write_as_many(client)
        log = broker.replicas.partition("t", 0).log
        log.roll()
        path = tmp_path / "t-0" / f"{COUNT:020}.snapshot"

        await until(broker, path.exists)

        loaded = ProducerStateManager()
        loaded.load(path.read_bytes(), 0, COUNT)
        assert set(loaded.states) == set(range(COUNT))
        assert threads
        assert threading.main_thread().name not in threads


async def test_many_producers_expire_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[ExpirySlice] = []
    expire = ProducerStateManager.expire

    def noting(self: ProducerStateManager, now_wall_ms: int, from_id: int | None = None) -> ExpirySlice:
        expiry = expire(self, now_wall_ms, from_id)
        slices.append(expiry)
        return expiry

    monkeypatch.setattr(ProducerStateManager, "expire", noting)
    intervals = {"producer_id_expiration_ms": 300, "producer_id_expiration_check_interval_ms": 20}
    async with running_broker(tmp_path, **intervals) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await write_as_many(client)
        log = broker.replicas.partition("t", 0).log

        await until(broker, lambda: len(log.producers) == 0)

    expired = [producer_id for each in slices for producer_id in each.expired]
    assert sorted(expired) == list(range(COUNT))
    assert max(len(each.expired) for each in slices) <= 3 + 2 * 4


async def test_many_producers_are_described_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[Any] = []
    describe = describe_producers._producer
    monkeypatch.setattr(describe_producers, "_producer", lambda known: (described.append(known), describe(known))[1])
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 9])])
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        producers = broker.replicas.partition("t", 0).log.producers
        for producer in range(MORE_THAN_A_SLICE):
            producers.update(header_of(3, producer=producer), producer, 0)
            producers.confirm()

        response = await client.call(request, DescribeProducersResponse, 0)
        described.clear()
        most = most_in_a_step(describe_producers._response(broker.replicas, request), lambda: len(described))

    known, absent = response.topics[0].partitions
    assert {(each.producer_id, each.last_sequence) for each in known.active_producers} == {
        (producer, 3) for producer in range(MORE_THAN_A_SLICE)
    }
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (most, len(described)) == (ITEMS_PER_SLICE, MORE_THAN_A_SLICE)
