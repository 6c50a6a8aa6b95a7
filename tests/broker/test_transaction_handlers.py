"""Transactional ids over the wire: every request of a transaction, its versions and its errors (§13, I-23)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.cluster.store import Unavailable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.clusters import ask, until
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.transactions import written
from tests.broker.wire import client_of, create_topic, fetch, running_broker

NONE = ErrorCode.NONE


async def began(broker: Broker, *indexes: int) -> TransactionalProducer:
    """A producer with a record in each of these partitions of t."""
    async with client_of(broker) as client:
        await create_topic(client, "t", partitions=3)
    producer = TransactionalProducer({0: broker})
    assert await producer.initialize() is NONE
    assert not indexes or await producer.add("t", indexes) == [NONE] * len(indexes)
    for index in indexes:
        written(broker, "t", "a", producer=producer.producer_id, index=index)
    return producer


def stable(broker: Broker, index: int = 0) -> bool:
    partition = broker.replicas.partition("t", index)
    return partition.last_stable_offset == partition.log.log_end_offset


async def aborted_in(broker: Broker, index: int) -> list[Any]:
    async with client_of(broker) as client:
        answer = await fetch(client, "t", index=index, isolation_level=1)
    return answer.aborted_transactions or []


async def verified(broker: Broker, producer: TransactionalProducer, *indexes: int, **settings: Any) -> dict[int, int]:
    fields = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "verify_only": True,
        "topics": [AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
    }
    asked = AddPartitionsToTxnTransaction(**fields | settings)
    response = await ask(broker, AddPartitionsToTxnRequest(transactions=[asked]), 5)
    ((topic,),) = [result.topic_results for result in response.results_by_transaction]
    return {each.partition_index: each.partition_error_code for each in topic.results_by_partition}


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_in_all_its_partitions(tmp_path: Path, commit: bool) -> None:
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0, 2)
        assert not stable(broker)
        assert not stable(broker, 2)

        assert await producer.end(commit=commit) is NONE
        await until(lambda: stable(broker) and stable(broker, 2))

        assert len(await aborted_in(broker, 2)) == (not commit)
        state = "CompleteCommit" if commit else "CompleteAbort"
        await described_as(producer, state)


async def described_as(producer: TransactionalProducer, state: str) -> None:
    async with asyncio.timeout(10):
        while (await producer.described()).transaction_state != state:  # noqa: ASYNC110 - it is asked over the wire.
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", range(6))
async def test_producers_of_every_version_are_fenced(tmp_path: Path, version: int) -> None:
    """§13.3.3"""
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)
        producer.producer_epoch += 5
        old = ErrorCode.INVALID_PRODUCER_EPOCH

        assert await producer.end(commit=True, version=version) is (ErrorCode.PRODUCER_FENCED if version > 1 else old)
        if version < 4:
            fenced = ErrorCode.PRODUCER_FENCED if version > 1 else old
            assert await producer.add("t", [1], version) == [fenced]
        if version < 5:
            assert await producer.add_offsets("g", version) is (ErrorCode.PRODUCER_FENCED if version > 1 else old)
        if version >= 3:
            pair = {"producer_id": producer.producer_id + 1, "producer_epoch": 0}
            code = await producer.initialize(version, **pair)
            assert code is (ErrorCode.PRODUCER_FENCED if version > 3 else old)


async def test_the_newer_producer_gets_the_next_epoch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first = await began(broker, 0)
        second = TransactionalProducer({0: broker})

        assert await second.initialize() is NONE

        assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 2)
        assert stable(broker)
        assert len(await aborted_in(broker, 0)) == 1
        assert await first.end(commit=True) is ErrorCode.PRODUCER_FENCED


async def test_one_unknown_partition_keeps_the_others_out(tmp_path: Path) -> None:
    """§13.4.2"""
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)

        assert await producer.add("t", [1, 9]) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await producer.add(TRANSACTION_STATE, [1]) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert await producer.add(CONSUMER_OFFSETS, [1]) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        (topic,) = (await producer.described()).topics
        assert (topic.topic, topic.partitions) == ("t", [0])


async def test_offsets_of_a_group_are_part_of_a_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path, offsets_topic_num_partitions=3) as broker:
        producer = await began(broker, 0)

        assert await producer.add_offsets("g") is NONE

        topics = {topic.topic: topic.partitions for topic in (await producer.described()).topics}
        assert topics == {"t": [0], CONSUMER_OFFSETS: [ord("g") % 3]}


async def test_leaders_verify_partitions_and_add_them(tmp_path: Path) -> None:
    """§13.4.4"""
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)

        assert await verified(broker, producer, 0, 1) == {0: 0, 1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await verified(broker, producer, 1, verify_only=False) == {1: 0}
        assert await verified(broker, producer, 0, 1) == {0: 0, 1: 0}
        assert await verified(broker, producer, 0, producer_epoch=9) == {0: ErrorCode.PRODUCER_FENCED}
        assert await verified(broker, producer, 0, 9) == {
            0: ErrorCode.OPERATION_NOT_ATTEMPTED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_the_answer_of_v5_has_the_next_pair(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)

        assert await producer.end(commit=True, version=5) is NONE

        assert producer.producer_epoch == 1
        assert await producer.add("t", [1]) == [NONE]


async def test_transactions_are_listed_and_described(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0, 1)
        idle = TransactionalProducer({0: broker}, "idle")
        await idle.initialize()

        response = await ask(broker, ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 1)
        described = await producer.described()
        absent = await ask(broker, DescribeTransactionsRequest(transactional_ids=["absent", ""]), 0)

        assert response.unknown_state_filters == ["Odd"]
        (listed,) = response.transaction_states
        assert (listed.transactional_id, listed.producer_id) == ("tx", producer.producer_id)
        assert (described.transaction_timeout_ms, described.topics[0].partitions) == (60_000, [0, 1])
        assert [state.error_code for state in absent.transaction_states] == [
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
        ]


async def test_before_the_topic_exists_there_is_no_coordinator(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        end = EndTxnRequest(transactional_id="tx", producer_id=1, producer_epoch=0, committed=True)
        assert (await ask(broker, end)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await ask(broker, ListTransactionsRequest(), 1)).transaction_states == []
        refused = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        assert (await ask(broker, refused)).error_code == ErrorCode.INVALID_REQUEST


async def test_the_state_topic_has_the_settings_of_kafka(tmp_path: Path) -> None:
    async with running_broker(tmp_path, transaction_state_log_num_partitions=7) as broker:
        await TransactionalProducer({0: broker}).initialize()

        topic = broker.image.topic(TRANSACTION_STATE)
        assert topic is not None
        assert len(topic.partitions) == 7
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        }


async def test_a_restarted_broker_goes_on_with_a_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)
    async with running_broker(tmp_path) as broker:
        producer.brokers = {0: broker}
        assert not stable(broker)

        assert await producer.add("t", [1]) == [NONE]
        assert await producer.end(commit=True) is NONE
        await until(lambda: stable(broker))

        assert await aborted_in(broker, 0) == []


async def test_a_silent_producer_is_aborted_after_its_timeout(tmp_path: Path) -> None:
    settings = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 20}
    async with running_broker(tmp_path, **settings) as broker:
        producer = await began(broker)
        await producer.initialize(transaction_timeout_ms=50)
        await producer.add("t", [0])
        written(broker, "t", "a", producer=producer.producer_id, epoch=producer.producer_epoch)

        await until(lambda: stable(broker))

        assert await producer.end(commit=True) is ErrorCode.PRODUCER_FENCED


async def test_a_coordinator_is_silent_on_what_may_be_cut_off(tmp_path: Path) -> None:
    """What a new coordinator has loaded counts when the high watermark has passed it: a partition that is part of the
    transaction already gets no record that would have to be committed first."""
    async with running_broker(tmp_path) as broker:
        producer = await began(broker, 0)
        (replica,) = (each for each in broker.replicas.of_topic(TRANSACTION_STATE) if each.log.log_end_offset)
        began_at, replica.leader_epoch_start = replica.leader_epoch_start, replica.log.log_end_offset + 1

        assert await verified(broker, producer, 0) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

        replica.leader_epoch_start = began_at
        assert await verified(broker, producer, 0) == {0: NONE}


async def test_a_perhaps_deposed_coordinator_refuses_nothing_for_good(tmp_path: Path) -> None:
    """The transaction may have begun at another coordinator; while the store does not answer, no broker can know."""
    async with running_broker(tmp_path) as broker:
        producer = await began(broker)
        asked = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        registration = broker.parts.lifecycle._registration
        ends_ms, registration._session_ends_ms = registration._session_ends_ms, 0

        stopped = await ask(broker, asked, 5)
        registration.store_answered(Unavailable("no connection"))
        cut_off = await ask(broker, asked, 5)
        registration.store_answered()
        registration._session_ends_ms = ends_ms

        assert stopped.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cut_off.error_code == ErrorCode.INVALID_TXN_STATE
        assert (await ask(broker, asked, 5)).error_code == ErrorCode.INVALID_TXN_STATE
