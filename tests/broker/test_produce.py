"""Produce over the wire: §15.1 and §15.2; idempotent producers and their ids."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.store import Unavailable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.files import OsFile
from tests.broker.wire import (
    batch,
    client_of,
    create_topic,
    fetch,
    produce,
    produce_request,
    running_broker,
    until,
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


@pytest.mark.parametrize(
    ("records", "acks", "topic", "index", "code"),
    [
        (batch(b"a"), 2, "t", 0, ErrorCode.INVALID_REQUIRED_ACKS),
        (batch(b"a"), 1, "nix", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch(b"a"), 1, "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch(b"a"), 1, "__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (batch(b"a")[:-1], 1, "t", 0, ErrorCode.INVALID_RECORD),
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
    assert codes == [0, ErrorCode.INVALID_RECORD, 0]


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


async def test_log_that_cannot_be_synced_holds_no_other_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait together while an earlier sync is under way."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        for topic in ("first", "bad", "good"):
            await create_topic(client, topic, flush_messages=1)
        flusher, held = broker.replicas._disk_sync._flusher, list[Any]()
        submit = flusher._submit
        with monkeypatch.context() as patch:
            patch.setattr(flusher, "_submit", lambda *work: held.append(work))
            patch.setattr(broker.replicas.partition("bad", 0).log, "begin_flush", lambda: 1 // 0)
            for topic in ("first", "bad", "good"):
                client.send(produce_request(topic, batch(b"a"), timeout_ms=5000), 9)
            await until(broker, lambda: len(flusher._waiting) == 2)
            patch.setattr(flusher, "_submit", submit)
            submit(*held[0])
            await until(broker, lambda: "sync failed" in [event for event, _ in broker.log.events])
        answers = [await client.receive(ProduceResponse, 9) for _ in range(3)]

    assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [0, 0, 0]


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


async def test_consumers_see_what_is_to_be_synced_when_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I-5. With flush.messages=1 Kafka syncs within the append, so that a loss of power takes nothing that was seen."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client, client_of(broker) as consumer:
        await create_topic(client, "t", flush_messages=1)
        with monkeypatch.context() as patch:
            held: list[tuple[Callable[[], None], Callable[[], None]]] = []
            patch.setattr(broker.replicas._disk_sync._flusher, "_submit", lambda work, done: held.append((work, done)))
            client.send(produce_request("t", batch(b"a")), 9)
            await until(broker, lambda: bool(held))
            before = await fetch(consumer, "t")
        for work, done in held:
            work()
            done()
        await client.receive(ProduceResponse, 9)
        after = await fetch(consumer, "t")

    assert (values_of(before.records), before.high_watermark) == ([], 0)
    assert (values_of(after.records), after.high_watermark) == ([b"a"], 1)


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


async def test_leader_without_a_session_misses_no_batch_for_good(tmp_path: Path) -> None:
    """Its successor may have the batches that it misses, also while the store gives no answer."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        async def code_of(sequence: int) -> int:
            records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
            response = await client.call(produce_request("t", records), ProduceResponse, 11)
            return int(response.responses[0].partition_responses[0].error_code)

        first = await code_of(0)
        registration = broker.parts.lifecycle._registration
        ends_ms, registration._session_ends_ms = registration._session_ends_ms, 0
        stopped = await code_of(5)
        registration.store_answered(Unavailable("no connection"))
        cut_off = [await code_of(sequence) for sequence in (5, 0, 1)]
        registration.store_answered()
        registration._session_ends_ms = ends_ms
        back = await code_of(5)

    assert (first, stopped, back) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert cut_off == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0], "what it has, and what follows, it takes"


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
        ({"transactional_id": "tx"}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "tx", "transaction_timeout_ms": 1}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_an_identity_cannot_be_asked_with(tmp_path: Path, fields: dict[str, object], code: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        answer = await client.call(InitProducerIdRequest(**fields), InitProducerIdResponse, 4)

    assert answer.error_code == code


async def test_transactional_id_without_a_transaction_is_no_matter(tmp_path: Path) -> None:
    """As in Kafka: what counts are the batches (tests/broker/test_transactional_produce.py)."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        request = produce_request("t", batch(b"a"))
        request.transactional_id = "tx"

        response = await client.call(request, ProduceResponse, 9)

    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
