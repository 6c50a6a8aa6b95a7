"""Producer ids: from blocks at hand, and given once, also when the metadata store is put back (§13.3.4)."""

import asyncio
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from ottla.broker.broker import Broker
from ottla.broker.broker_data import METADATA_FILE
from ottla.broker.metadata.producer_ids import BLOCK_SIZE, CLAIMED_AHEAD, RETRY_BACKOFF_MS
from ottla.broker.upkeep.producer_id_file import PRODUCER_IDS_FILE
from ottla.cluster.encoding import PRODUCER_IDS, next_producer_id_value
from ottla.cluster.store import Put, Snapshot, Unavailable
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.files import write_file
from ottla.storage.producer_table import GIVEN_IDS_END
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.virtual_cluster import Cluster, Node
from tests.broker.wire import client_of, create_topic, produce_request, running_broker, until
from tests.fakes.disk import FakeDisk


async def test_ids_that_cannot_wait_come_from_a_block_at_hand(tmp_path: Path) -> None:
    """§13.3.4"""
    async with running_broker(tmp_path) as broker:
        assert broker.producer_ids.take_now() is None
        await until(broker, lambda: broker.producer_ids.take_now() is not None)

        given = [broker.producer_ids.take_now() for _ in range(BLOCK_SIZE - CLAIMED_AHEAD)]
        assert len(set(given)) == BLOCK_SIZE - CLAIMED_AHEAD
        assert None not in given


async def test_the_next_block_is_claimed_before_the_last_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.producer_ids.take()
        given = [broker.producer_ids.take_now() for _ in range(BLOCK_SIZE - CLAIMED_AHEAD + 1)]

        await until(broker, lambda: len(broker.producer_ids._blocks) == 2)

        given += [broker.producer_ids.take_now() for _ in range(CLAIMED_AHEAD + 5)]
        assert len(set(given)) == len(given)
        assert None not in given


# The metadata store is put back (§13.3.4).


async def write(broker: Broker, producer_id: int) -> tuple[int, int]:
    """The error code and the offset of a producer's first batch."""
    batch = build_batch([Record(0, 0, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    async with client_of(broker) as client:
        response = await client.call(produce_request("t", bytes(batch)), ProduceResponse, 9)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


@pytest.mark.parametrize("file_is_lost", [False, True])
async def test_an_older_metadata_file_gives_no_id_again(tmp_path: Path, file_is_lost: bool) -> None:
    """Without its own file, as after an upgrade, the broker knows the ids of its logs."""
    data = tmp_path / "data"
    async with running_broker(data) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await broker.producer_ids.take()
    copy = shutil.copy(data / METADATA_FILE, tmp_path / "copy")
    async with running_broker(data) as broker:
        second = await broker.producer_ids.take()
        assert await write(broker, second) == (0, 0)
    shutil.copy(copy, data / METADATA_FILE)
    if file_is_lost:
        (data / PRODUCER_IDS_FILE).unlink()

    async with running_broker(data) as broker:
        third = await broker.producer_ids.take()
        assert third > second
        assert await write(broker, third) == (0, 1)


async def test_ids_of_transactional_ids_are_not_given_again(tmp_path: Path) -> None:
    """They stand in `__transaction_state`, longer than partitions remember their producers."""
    data, settings = tmp_path / "data", {"transaction_state_log_num_partitions": 1}
    async with running_broker(data, **settings) as broker:
        assert await TransactionalProducer({0: broker}, "first").initialize() == 0
    copy = shutil.copy(data / METADATA_FILE, tmp_path / "copy")
    async with running_broker(data, **settings) as broker:
        producer = TransactionalProducer({0: broker}, "second")
        assert await producer.initialize() == 0
    shutil.copy(copy, data / METADATA_FILE)
    (data / PRODUCER_IDS_FILE).unlink()

    async with running_broker(data, **settings) as broker:
        await until(broker, lambda: len(broker.parts.transaction_loader.loaded_shards()) == 1)
        assert await broker.producer_ids.take() > producer.producer_id


async def test_an_id_that_a_client_made_up_does_not_use_all_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        assert await write(broker, 5_000) == (0, 0)
        assert await write(broker, GIVEN_IDS_END) == (0, 1)

    async with running_broker(tmp_path) as broker:
        assert await broker.producer_ids.take() == 5_001


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def put_back(cluster: Cluster, next_id: int) -> None:
    """What an older copy of the store would say."""
    cluster.machine.store.commit((), (Put(PRODUCER_IDS, next_producer_id_value(next_id)),), lambda _: None)


def take(cluster: Cluster, node: Node) -> "asyncio.Future[int]":
    return cluster.spawn(node, node.broker.producer_ids.take())


def test_brokers_that_come_back_raise_an_older_store(cluster: Cluster) -> None:
    """Also the one that has not given the ids itself."""

    async def story() -> None:
        nodes = await cluster.started(1, 2)
        given = [await take(cluster, node) for node in nodes]
        await cluster.until(lambda: all(node.broker.producer_ids._file._kept == 2 * BLOCK_SIZE for node in nodes))
        await cluster.stop_all(*nodes)
        put_back(cluster, 0)

        again = cluster.boot(1, nodes[0].disk)
        await again.started
        assert cluster.stored(PRODUCER_IDS) == {PRODUCER_IDS: b"2000"}
        assert (
            "the metadata store did not know producer ids that may have been given, and has been raised"
            in again.events()
        )
        assert await take(cluster, again) not in given
        await cluster.stop(again)

    cluster.run(story())


def test_no_block_begins_below_what_was_seen(cluster: Cluster) -> None:
    """§13.3.4, of a broker that has gone on through it all."""

    async def story() -> None:
        (node,) = await cluster.started(1)
        first = await take(cluster, node)
        put_back(cluster, first)
        node.broker.producer_ids._blocks.clear()

        assert await take(cluster, node) == first + BLOCK_SIZE
        await cluster.stop(node)

    cluster.run(story())


def test_a_store_that_has_lost_data_gives_no_ids(cluster: Cluster) -> None:
    """What it gives it would forget when its data is given back (docs/decisions/0012)."""

    async def story() -> None:
        (node,) = await cluster.started(1)
        metadata = node.broker.metadata
        older = Snapshot((), metadata.image.revision - 1)

        async def read(prefix: str) -> Snapshot:
            return older

        with patch.object(metadata, "read", read), pytest.raises(KafkaError):
            await take(cluster, node)
        assert PRODUCER_IDS not in cluster.stored()
        await cluster.stop(node)

    cluster.run(story())


def test_no_id_is_given_that_the_disk_does_not_know(cluster: Cluster) -> None:
    async def story() -> None:
        disk = FakeDisk()
        node = cluster.boot(1, disk)
        await node.started
        disk.fail("writev", OSError("full"))
        with pytest.raises(KafkaError):
            await take(cluster, node)
        await cluster.until(lambda: cluster.clock.now_ms() >= node.broker.producer_ids._may_claim_from_ms)
        assert await take(cluster, node) == 0
        await cluster.stop(node)

    cluster.run(story())


def test_an_unreadable_file_of_ids_is_said_and_no_id_is_lost(cluster: Cluster) -> None:
    async def story() -> None:
        (node,) = await cluster.started(1)
        given = await take(cluster, node)
        await cluster.stop(node)
        write_file(node.disk, Path("/data") / PRODUCER_IDS_FILE, b"a lot")

        again = cluster.boot(1, node.disk)
        await again.started
        assert "the file of producer ids cannot be read" in again.events()
        assert await take(cluster, again) == given + BLOCK_SIZE
        await cluster.stop(again)

    cluster.run(story())


def test_after_a_failed_claim_none_is_made_for_some_time(cluster: Cluster) -> None:
    """§13.3.4"""

    async def story() -> None:
        (node,) = await cluster.started(1)
        producer_ids, metadata, asked_ms = node.broker.producer_ids, node.broker.metadata, list[int]()

        async def read(prefix: str) -> Unavailable:
            asked_ms.append(cluster.clock.now_ms())
            return Unavailable("away")

        with patch.object(metadata, "read", read):
            until_ms = cluster.clock.now_ms() + 2 * RETRY_BACKOFF_MS
            while cluster.clock.now_ms() < until_ms:
                with pytest.raises(KafkaError):
                    await take(cluster, node)
                assert producer_ids.take_now() is None
                await asyncio.sleep(0.001)
        gaps = [later - earlier for earlier, later in pairwise(asked_ms)]
        assert gaps
        assert min(gaps) >= RETRY_BACKOFF_MS
        assert await take(cluster, node) == 0
        await cluster.stop(node)

    cluster.run(story())
