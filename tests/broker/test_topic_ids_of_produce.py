"""Produce from version 13 on, which names topics by their ids (KIP-516)."""

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.asking import Asking, running
from tests.broker.requests import fetch, topic
from tests.broker.wire import batch, values_of

UNKNOWN_ID = bytes(15) + b"\x07"
BY_ID, BY_NAME = 13, 12


async def created_topic(broker: Asking, name: str) -> bytes:
    created = await broker.ask(CreateTopicsRequest(topics=[topic(name)], timeout_ms=5000), 7)
    return bytes(created.topics[0].topic_id)


def by_id(*topic_ids: bytes, acks: int = 1, transactional: bool = False) -> ProduceRequest:
    records = batch(b"x", producer_id=7, base_sequence=0, transactional=True) if transactional else batch(b"x")
    data = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(topic_id=each, partition_data=data) for each in topic_ids]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


async def test_records_are_written_to_the_topic_of_the_id(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topic_id = await created_topic(broker, "t")

        answer = await broker.ask(by_id(topic_id), BY_ID)

        (of_topic,) = answer.responses
        assert (bytes(of_topic.topic_id), of_topic.partition_responses[0].error_code) == (topic_id, 0)
        fetched = await broker.ask(fetch("t"), 11)
        assert values_of(fetched.responses[0].partitions[0].records) == [b"x"]


async def test_each_unknown_id_has_its_own_refusal(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topic_id = await created_topic(broker, "t")

        answer = await broker.ask(by_id(UNKNOWN_ID, topic_id, bytes(16)), BY_ID)

        assert {bytes(each.topic_id): each.partition_responses[0].error_code for each in answer.responses} == {
            UNKNOWN_ID: ErrorCode.UNKNOWN_TOPIC_ID,
            topic_id: ErrorCode.NONE,
            bytes(16): ErrorCode.UNKNOWN_TOPIC_ID,
        }


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"transactional": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_unknown_id_comes_before_what_refuses_the_request(
    tmp_path: Path, asked: dict[str, object], code: ErrorCode
) -> None:
    async with running(tmp_path) as broker:
        topic_id = await created_topic(broker, "t")

        answer = await broker.ask(by_id(topic_id, UNKNOWN_ID, **asked), BY_ID)  # type: ignore[arg-type]

        codes = [each.partition_responses[0].error_code for each in answer.responses]
        assert codes == [code, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_empty_name_is_an_unknown_topic_before_ids(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answer = await broker.ask(by_id(bytes(16)), BY_NAME)

        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
