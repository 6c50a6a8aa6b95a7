"""Fetch over the wire: §15.3 and §15.5."""

import gc
from pathlib import Path

import pytest

from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.storage.files import OsFile
from tests.broker.wire import (
    Client,
    batch,
    client_of,
    create_topic,
    fetch,
    fetch_request,
    parked_fetch,
    produce,
    running_broker,
    values_of,
)


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_of_fetch_by_name(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")

        fetched = await fetch(client, "t", version=version)

    assert values_of(fetched.records) == [b"a"]
    assert fetched.aborted_transactions is None


@pytest.mark.parametrize("version", range(13, 18))
async def test_every_version_of_fetch_by_id(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")
        topic_id = broker.image.topics["t"].topic_id

        found = await fetch_by_id(client, topic_id, version)
        missing = await fetch_by_id(client, b"\1" * 16, version)

    assert values_of(found.records) == [b"a"]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def fetch_by_id(client: Client, topic_id: bytes, version: int) -> object:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=partitions)])
    response = await client.call(request, FetchResponse, version)
    assert response.responses[0].topic_id == topic_id
    return response.responses[0].partitions[0]


async def test_a_fetch_waits_for_records_and_no_longer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t")
        reader.send(fetch_request("t", max_wait_ms=60_000), 11)
        await parked_fetch(broker)

        await produce(writer, "t", b"a")
        response = await reader.receive(FetchResponse, 11)

    assert values_of(response.responses[0].partitions[0].records) == [b"a"]


async def test_an_answered_fetch_is_gone_without_the_garbage_collector(tmp_path: Path) -> None:
    """It holds records, and in a quiet process the collector does not come."""
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t")
        gc.collect()
        gc.disable()
        try:
            reader.send(fetch_request("t", max_wait_ms=60_000), 11)
            await parked_fetch(broker)
            await produce(writer, "t", b"a")
            await reader.receive(FetchResponse, 11)
            left = [each for each in gc.get_objects() if isinstance(each, DelayedFetch)]
        finally:
            gc.enable()

    assert left == []


async def test_a_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as reader, client_of(broker) as writer:
        await create_topic(writer, "t")
        size = len(batch(b"a"))
        reader.send(fetch_request("t", max_wait_ms=60_000, min_bytes=3 * size), 11)

        await produce(writer, "t", b"a")
        await produce(writer, "t", b"b")
        assert len(broker.replicas.delayed_fetch) == 1
        await produce(writer, "t", b"c")
        response = await reader.receive(FetchResponse, 11)

    assert values_of(response.responses[0].partitions[0].records) == [b"a", b"b", b"c"]


async def test_a_fetch_ends_with_max_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        answer = await fetch(client, "t", max_wait_ms=20)

    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 0, b"")


async def test_a_fetch_of_a_deleted_topic_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        client.send(fetch_request("t", max_wait_ms=60_000), 11)
        await parked_fetch(broker)

        broker.runtime.spawn(broker.topics.delete([broker.image.topics["t"]]), "test")
        response = await client.receive(FetchResponse, 11)

    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [-1, 2])
async def test_an_offset_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")

        answer = await fetch(client, "t", offset, max_wait_ms=1000)

    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.log_start_offset, answer.high_watermark, answer.last_stable_offset) == (-1, -1, -1)
    assert answer.aborted_transactions is None


async def test_leader_without_a_session_has_no_offset_out_of_range(tmp_path: Path) -> None:
    """Its successor may have it: a client that gets this error begins again at the first record, or at the last."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")
        registration = broker.parts.lifecycle._registration
        ends_ms, registration._session_ends_ms = registration._session_ends_ms, 0
        without = [await fetch(client, "t", offset) for offset in (0, 1, 2)]
        registration._session_ends_ms = ends_ms
        again = await fetch(client, "t", 2)

    assert [int(answer.error_code) for answer in without] == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert values_of(without[0].records) == [b"a"]
    assert again.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_new_session_counts_when_the_metadata_has_it(tmp_path: Path) -> None:
    """Before that, this broker may not know that another one leads by now."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")
        registration = broker.parts.lifecycle._registration
        revision, registration.revision = registration.revision, broker.metadata.image.revision + 1
        unseen = [await fetch(client, "t", offset) for offset in (0, 2)]
        registration.revision = revision
        seen = await fetch(client, "t", 2)

    assert [int(answer.error_code) for answer in unseen] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert seen.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_the_first_batch_is_sent_however_large(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", bytes(50_000))
        await produce(client, "t", b"b")

        answer = await fetch(client, "t", max_bytes=10)

    assert values_of(answer.records) == [bytes(50_000)]


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, 0), (-1, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)], ids=["current", "none", "future"]
)
async def test_the_leader_epoch_of_a_fetch_is_checked(tmp_path: Path, epoch: int, code: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = fetch_request("t")
        request.topics[0].partitions[0].current_leader_epoch = epoch

        response = await client.call(request, FetchResponse, 11)

    assert response.responses[0].partitions[0].error_code == code


async def test_a_claim_to_be_a_follower_is_not_believed(tmp_path: Path) -> None:
    """§3.4, T-25."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        response = await client.call(fetch_request("t", replica_id=5), FetchResponse, 11)

    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_reader_whose_log_diverges_learns_where(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")
        log = broker.replicas.partition("t", 0).log
        request = fetch_request("t", 1, max_wait_ms=5_000)
        request.isolation_level = 1
        request.topics[0].partitions[0].last_fetched_epoch = 0
        same = await client.call(request, FetchResponse, 12)
        log.maybe_assign_leader_epoch(4)
        request.topics[0].partitions[0].last_fetched_epoch = 2

        diverging = await client.call(request, FetchResponse, 12)

    first, second = (each.responses[0].partitions[0] for each in (same, diverging))
    assert (first.diverging_epoch, first.aborted_transactions) == (None, [])
    assert (second.diverging_epoch.epoch, second.diverging_epoch.end_offset) == (0, 1)
    assert second.aborted_transactions is None


async def test_incremental_fetch_session_returns_only_changes(tmp_path: Path) -> None:
    """§15.5."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)
        opened = await client.call(fetch_request("t", session_epoch=0), FetchResponse, 11)
        assert opened.session_id > 0

        def incremental(epoch: int) -> FetchRequest:
            return FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch)

        silent = await client.call(incremental(1), FetchResponse, 11)
        await produce(client, "t", b"a")
        changes = await client.call(incremental(2), FetchResponse, 11)
        repeated = await client.call(incremental(2), FetchResponse, 11)

    assert silent.responses == []
    assert values_of(changes.responses[0].partitions[0].records) == [b"a"]
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_records_that_are_not_in_memory_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_at_hand(self: OsFile, buffer: object, position: int) -> int:
        raise BlockingIOError

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)
        await produce(client, "t", b"a")
        monkeypatch.setattr(OsFile, "readinto_nowait", not_at_hand)

        answer = await fetch(client, "t", max_wait_ms=5_000)

    assert values_of(answer.records) == [b"a"]
