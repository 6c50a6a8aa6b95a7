"""Records in and out over the wire: §15.1 to §15.5."""

import errno
import gc
from pathlib import Path

import pytest

from ottla.broker.replicas.delayed_fetch import DelayedFetch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
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
    produce_request,
    running_broker,
    values_of,
)


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("acks", [1, -1])
async def test_what_is_produced_can_be_fetched(tmp_path: Path, version: int, acks: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        first = await produce(client, "t", b"a", b"b", version=version, acks=acks)
        second = await produce(client, "t", b"c", version=version, acks=acks)
        fetched = await fetch(client, "t", 1)

    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert first.log_append_time_ms == -1
    assert fetched.high_watermark == 3
    assert values_of(fetched.records) == [b"a", b"b", b"c"], "whole batches, from the one that holds the offset"


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


@pytest.mark.parametrize(
    ("records", "acks", "topic", "index", "code"),
    [
        (batch(b"a"), 2, "t", 0, ErrorCode.INVALID_REQUIRED_ACKS),
        (batch(b"a"), 1, "nix", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch(b"a"), 1, "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch(b"a"), 1, "__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (batch(b"a")[:-1], 1, "t", 0, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1] + b"x", 1, "t", 0, ErrorCode.CORRUPT_MESSAGE),
        (b"", 1, "t", 0, ErrorCode.INVALID_RECORD),
        (batch(bytes(3000)), 1, "t", 0, ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", control=True), 1, "t", 0, ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_bad_produce_gets_its_code_and_stores_nothing(
    tmp_path: Path, records: bytes, acks: int, topic: str, index: int, code: ErrorCode
) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", max_message_bytes=2000)
        request = produce_request(topic, records, acks=acks, index=index)

        response = await client.call(request, ProduceResponse, 9)
        answer = response.responses[0].partition_responses[0]
        after = await produce(client, "t", b"good")

    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert (after.error_code, after.base_offset) == (0, 0)


KEYLESS = batch(b"a", b"b")
MIXED_TIMES = bytes(build_batch([Record(timestamp=wall_ms, key=b"k", value=b"v") for wall_ms in (1 << 42, 1000)]))


@pytest.mark.parametrize("version", [3, 7, 8, 11])
@pytest.mark.parametrize(
    ("configs", "records", "code", "named"),
    [
        ({"cleanup_policy": "compact"}, KEYLESS, ErrorCode.INVALID_RECORD, [0, 1]),
        (
            {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1 << 60},
            MIXED_TIMES,
            ErrorCode.INVALID_TIMESTAMP,
            [1],
        ),
    ],
)
async def test_single_records_that_are_refused_are_named(
    tmp_path: Path, version: int, configs: dict[str, object], records: bytes, code: ErrorCode, named: list[int]
) -> None:
    """§16.3.3. Which records, only versions from 8 on can say (KIP-467)."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", **configs)

        response = await client.call(produce_request("t", records), ProduceResponse, version)

    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert [each.batch_index for each in answer.record_errors] == (named if version >= 8 else [])
    assert all(each.batch_index_error_message for each in answer.record_errors)


async def test_one_bad_partition_does_not_harm_the_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 3)
        request = produce_request("t", batch(b"a"), b"garbage", batch(b"c"))

        response = await client.call(request, ProduceResponse, 9)

    codes = [answer.error_code for answer in response.responses[0].partition_responses]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0]


async def test_zstd_needs_produce_7(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = produce_request("t", batch(b"a", codec=4))

        old = await client.call(request, ProduceResponse, 6)
        new = await client.call(request, ProduceResponse, 7)

    assert old.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert new.responses[0].partition_responses[0].error_code == 0


async def test_failed_write_fails_every_request_that_shared_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of one read event share a write; the answer of each says that it failed, and the log is as before."""

    def no_space(self: OsFile, buffers: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"before")
        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "writev", no_space)
            frames = [client.send(produce_request("t", batch(b"lost")), 9) for _ in range(3)]
            failed = [await client.receive(ProduceResponse, 9) for _ in frames]
        after = await produce(client, "t", b"after")
        fetched = await fetch(client, "t")

    answers = [response.responses[0].partition_responses[0] for response in failed]
    assert [(a.error_code, a.base_offset) for a in answers] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 3
    assert after.base_offset == 1
    assert values_of(fetched.records) == [b"before", b"after"]


async def test_flush_messages_delays_acknowledgement_until_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = OsFile.fsync
    monkeypatch.setattr(OsFile, "fsync", lambda self: (synced.append(1), fsync(self))[1])
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", flush_messages=1)
        synced.clear()

        sent = [client.send(produce_request("t", batch(b"a")), 9) for _ in range(20)]
        answers = [await client.receive(ProduceResponse, 9) for _ in sent]
        log = broker.replicas.partition("t", 0).log

        assert [a.responses[0].partition_responses[0].base_offset for a in answers] == list(range(20))
        assert log.flushed_offset == 20
        assert 1 <= len(synced) < 20, "group commit"


async def test_a_sync_that_takes_too_long_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", flush_messages=1)
        with monkeypatch.context() as patch:
            held: list[object] = []
            patch.setattr(broker.runtime, "offload", lambda work, done: held.append((work, done)))
            patch.setattr(broker.replicas._disk_sync._flusher, "_submit", lambda work, done: held.append((work, done)))
            request = produce_request("t", batch(b"a"), timeout_ms=30)

            response = await client.call(request, ProduceResponse, 9)

            assert response.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            work, done = held[0]  # type: ignore[misc]
            work()
            done()


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
    assert (answer.log_start_offset, answer.high_watermark) == (0, 1)


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
        request.topics[0].partitions[0].last_fetched_epoch = 0
        same = await client.call(fetch_request("t", 1), FetchResponse, 12)
        log.maybe_assign_leader_epoch(4)
        request.topics[0].partitions[0].last_fetched_epoch = 2

        diverging = await client.call(request, FetchResponse, 12)

    assert same.responses[0].partitions[0].diverging_epoch is None
    assert diverging.responses[0].partitions[0].diverging_epoch.epoch == 0
    assert diverging.responses[0].partitions[0].diverging_epoch.end_offset == 1


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


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 3), (-2, 0), (1_001, 1), (5_000, -1)])
async def test_offsets_by_position_and_by_time(tmp_path: Path, version: int, timestamp: int, offset: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b", b"c")

        answer = await list_offset(client, timestamp, version)

    assert (answer.error_code, answer.offset) == (0, offset)
    assert answer.timestamp == (1_001 if offset == 1 else -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(-3, 2), (-4, 0), (-5, -1)])
async def test_the_newer_questions_for_offsets(tmp_path: Path, timestamp: int, offset: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b", b"c")

        answer = await list_offset(client, timestamp, 9)

    assert (answer.error_code, answer.offset) == (0, offset)


async def test_a_partition_asked_twice_is_an_invalid_request(tmp_path: Path) -> None:
    """§15.4.2."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])

        response = await client.call(request, ListOffsetsResponse, 5)

    assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def list_offset(client: Client, timestamp: int, version: int) -> ListOffsetsPartition:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    response = await client.call(request, ListOffsetsResponse, version)
    return response.topics[0].partitions[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_a_leader_epoch_ended(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a", b"b")
        partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=0), OffsetForLeaderPartition(partition=9)]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])

        response = await client.call(request, OffsetForLeaderEpochResponse, version)

    found, missing = response.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_batch_that_is_sent_twice_is_stored_once(tmp_path: Path) -> None:
    """§13.6, I-10."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        identity = await client.call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
        once = batch(b"a", producer_id=identity.producer_id, producer_epoch=identity.producer_epoch, base_sequence=0)

        answers = [await client.call(produce_request("t", once), ProduceResponse, 9) for _ in range(2)]
        fetched = await fetch(client, "t")

    assert [a.responses[0].partition_responses[0].base_offset for a in answers] == [0, 0]
    assert values_of(fetched.records) == [b"a"]


async def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    """§13.3.4, across restarts and kills too."""
    given: list[int] = []
    for _ in range(3):
        async with running_broker(tmp_path) as broker, client_of(broker) as client:
            for version in range(6):
                answer = await client.call(
                    InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, version
                )
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                given.append(answer.producer_id)

    assert len(set(given)) == len(given) == 18


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "tx"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_an_identity_cannot_be_asked_with(tmp_path: Path, fields: dict[str, object], code: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        answer = await client.call(InitProducerIdRequest(**fields), InitProducerIdResponse, 4)

    assert answer.error_code == code


async def test_a_transactional_produce_is_refused_for_good(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = produce_request("t", batch(b"a"))
        request.transactional_id = "tx"

        response = await client.call(request, ProduceResponse, 9)

    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
