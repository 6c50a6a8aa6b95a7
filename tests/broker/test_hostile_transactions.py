"""Requests of transactions with fields that no client sends: each gets its error, and nothing of them stays."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.clusters import ask, until
from tests.broker.test_transaction_handlers import began, stable
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.transactions import mark, marker
from tests.broker.wire import client_of, create_topic, running_broker

FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
NONE = ErrorCode.NONE
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
INT64, INT32, INT16 = (-(2**63), 2**63 - 1), (-(2**31), 2**31 - 1), (-(2**15), 2**15 - 1)
LONG = "x" * INT16[1]
STRANGE_PAIRS = [(producer_id, epoch) for producer_id in (*INT64, -1, -2) for epoch in (*INT16, -1, 0)]


def strange_pairs(producer: TransactionalProducer) -> Iterator[tuple[tuple[int, int], ErrorCode]]:
    """And what is said to each where the producer has an open transaction."""
    for pair in STRANGE_PAIRS:
        yield pair, UNMAPPED
    for epoch in (*INT16, -1, producer.producer_epoch - 1, producer.producer_epoch + 1):
        yield (producer.producer_id, epoch), FENCED


async def goes_on(broker: Broker, producer: TransactionalProducer) -> None:
    """The open transaction is as it was, and commits."""
    state = await producer.described()
    assert (state.transaction_state, state.producer_epoch) == ("Ongoing", producer.producer_epoch)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
    assert await producer.end(commit=True) is NONE
    await until(lambda: stable(broker))
    assert [event for event, fields in broker.log.events if fields.get("exc_info")] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [4, 5])
async def test_end_with_a_strange_pair_ends_nothing(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        for (producer_id, epoch), code in strange_pairs(producer):
            for commit in (True, False):
                request = EndTxnRequest(
                    transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=commit
                )
                response = await ask(broker, request, version)
                assert (ErrorCode(response.error_code), (producer_id, epoch)) == (code, (producer_id, epoch))
                assert version < 5 or (response.producer_id, response.producer_epoch) == (-1, -1)

        await goes_on(broker, producer)


async def test_partitions_of_a_strange_pair_are_not_added(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        for (producer_id, epoch), code in strange_pairs(producer):
            other = TransactionalProducer({0: broker})
            other.producer_id, other.producer_epoch = producer_id, epoch
            assert await other.add("t", [1, 2]) == [code, code]
            assert await other.add_offsets("g") is code

        await goes_on(broker, producer)


UNKNOWN, NOT_TRIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("topic", "indexes", "expected"),
    [
        ("t", [-1, 1], [UNKNOWN, NOT_TRIED]),
        ("t", [1, INT32[0]], [NOT_TRIED, UNKNOWN]),
        ("t", [1, INT32[1]], [NOT_TRIED, UNKNOWN]),
        ("", [0], [UNKNOWN]),
        (LONG, [0], [UNKNOWN]),
        ("t/../t", [0], [UNKNOWN]),
        ("__transaction_state", [0], [ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
        ("__consumer_offsets", [0], [ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
    ],
)
async def test_strange_partitions_are_not_added(
    tmp_path: Path, topic: str, indexes: list[int], expected: list[ErrorCode]
) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)

        assert await producer.add(topic, indexes) == expected

        await goes_on(broker, producer)


async def test_partition_that_is_named_often_is_added_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)

        assert await producer.add("t", [0] * 50_000) == [NONE]

        await goes_on(broker, producer)


async def test_partitions_that_fit_into_no_record_are_not_added(tmp_path: Path) -> None:
    """§13.9"""
    async with running_broker(tmp_path, message_max_bytes=600, **FEW) as broker:
        producer = await began(broker, 0)
        async with client_of(broker) as client:
            await create_topic(client, "wide", partitions=300)

        assert set(await producer.add("wide", range(300))) == {ErrorCode.UNKNOWN_SERVER_ERROR}

        await goes_on(broker, producer)


@pytest.mark.parametrize("transactional_id", ["", LONG], ids=["none", "long"])
async def test_strange_transactional_ids_are_refused_or_served(tmp_path: Path, transactional_id: str) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        await began(broker, 0)
        other = TransactionalProducer({0: broker}, transactional_id)

        code = await other.initialize()
        assert code is (NONE if transactional_id else ErrorCode.INVALID_REQUEST)
        code = await other.end(commit=True)
        assert code is (ErrorCode.INVALID_TXN_STATE if transactional_id else ErrorCode.INVALID_REQUEST)
        codes = await other.add("t", [1])
        assert codes == [NONE if transactional_id else ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("timeout_ms", [*INT32, -1, 0, 900_001])
@pytest.mark.parametrize("pair", [(-1, -1), (0, 0), (INT64[1], INT16[1])])
async def test_strange_timeouts_begin_no_producer(tmp_path: Path, timeout_ms: int, pair: tuple[int, int]) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        request = InitProducerIdRequest(
            transactional_id="tx", transaction_timeout_ms=timeout_ms, producer_id=pair[0], producer_epoch=pair[1]
        )

        assert (await ask(broker, request, 5)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

        await goes_on(broker, producer)


async def test_strange_pairs_begin_no_producer(tmp_path: Path) -> None:
    """Half a pair is no request; another producer id than that of the transaction is fenced."""
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        for producer_id, epoch in STRANGE_PAIRS:
            if (producer_id, epoch) == (-1, -1):
                continue
            half = (producer_id == -1) != (epoch == -1)
            request = InitProducerIdRequest(
                transactional_id="tx", transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            expected = ErrorCode.INVALID_REQUEST if half else FENCED
            assert ErrorCode((await ask(broker, request, 5)).error_code) is expected, (producer_id, epoch)

        await goes_on(broker, producer)


async def test_new_id_is_not_given_a_strange_pair(tmp_path: Path) -> None:
    """What a client says that it has counts only where its id is known."""
    async with running_broker(tmp_path, **FEW) as broker:
        await began(broker)
        for number, (producer_id, epoch) in enumerate(STRANGE_PAIRS):
            if (producer_id == -1) != (epoch == -1):
                continue
            other = TransactionalProducer({0: broker}, f"new-{number}")
            assert await other.initialize(producer_id=producer_id, producer_epoch=epoch) is NONE
            assert (other.producer_id >= 0, other.producer_epoch) == (True, 0)


def committed(offset: int, index: int, leader_epoch: int, metadata: str | None) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata=metadata,
    )


async def found(broker: Broker) -> None:
    """The coordinator of the group."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await ask(broker, request, 6)).coordinators[0].error_code:  # noqa: ASYNC110 - it is asked over the wire.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (committed(5, INT32[0], -1, ""), UNKNOWN),
        (committed(5, INT32[1], -1, ""), UNKNOWN),
        (committed(5, 0, -1, "x" * 4097), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (committed(INT64[0], 0, INT32[0], None), NONE),
        (committed(INT64[1], 0, INT32[1], None), NONE),
    ],
)
async def test_strange_offsets_in_a_transaction(
    tmp_path: Path, partition: TxnOffsetCommitRequestPartition, code: ErrorCode
) -> None:
    """Any number is an offset, here as on Kafka."""
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        await found(broker)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        response = await ask(broker, request, 5)
        assert ErrorCode(response.topics[0].partitions[0].error_code) is code

        assert await producer.end(commit=True) is NONE
        await until(lambda: stable(broker))


async def test_strange_offset_commits_leave_the_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        for group_id in ("", LONG):
            request = AddOffsetsToTxnRequest(
                transactional_id="tx",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch + 1,
                group_id=group_id,
            )
            assert ErrorCode((await ask(broker, request, 4)).error_code) in (
                FENCED,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )

        await goes_on(broker, producer)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer": -1}, NONE),
        ({"producer": INT64[0]}, NONE),
        ({"producer": INT64[1]}, NONE),
        ({"producer": 7, "epoch": INT16[0]}, NONE),
        ({"producer": 7, "epoch": INT16[1]}, NONE),
        ({"producer": 7, "coordinator_epoch": INT32[0]}, NONE),
        ({"producer": 7, "coordinator_epoch": INT32[1]}, NONE),
        ({"producer": 7, "transaction_version": -128}, NONE),
        ({"producer": 7, "transaction_version": 127}, NONE),
        ({"producer": 7, "indexes": (INT32[0],)}, UNKNOWN),
        ({"producer": 7, "indexes": (INT32[1],)}, UNKNOWN),
    ],
    ids=str,
)
async def test_strange_markers_harm_no_transaction(tmp_path: Path, fields: dict[str, Any], code: ErrorCode) -> None:
    """A client that may write markers may write any; a broker that starts again reads its log all the same."""
    async with running_broker(tmp_path, **FEW) as broker:
        producer = await began(broker, 0)
        async with client_of(broker) as client:
            ((_, _, _, found),) = await mark(client, marker("t", commit=True, **fields))
        assert found is code
    async with running_broker(tmp_path, **FEW) as broker:
        producer.brokers = {0: broker}
        await goes_on(broker, producer)
