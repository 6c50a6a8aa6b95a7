"""A request about hundreds of partitions is answered in several steps of the loop, and as several short ones are."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from ottla.broker.handlers import delete_records, list_offsets, metadata, offset_delete, offset_for_leader_epoch
from ottla.broker.replicas.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsPartitionStatus
from ottla.broker.runtime import ITEMS_PER_SLICE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.schema import Message
from tests.broker.wire import client_of, create_topic, produce, running_broker

COUNT = 3 * ITEMS_PER_SLICE
PARTITIONS = 3
"""Of the topic; the others that are asked for do not exist."""


def list_offsets_request(indexes: range) -> Message:
    # The first record of a time is looked up in a thread.
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=0 if index == 1 else -1) for index in indexes]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def epochs_request(indexes: range) -> Message:
    partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])


def delete_records_request(indexes: range) -> Message:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1_000)


def metadata_request(indexes: range) -> Message:
    topics = [MetadataRequestTopic(name=f"t{index}" if index else "t") for index in indexes]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


class Api(NamedTuple):
    request: Callable[[range], Message]
    response: type[Message]
    version: int
    module: Any
    function: str
    """Called for each partition."""
    answers: Callable[[Any], list[Any]] = lambda response: [
        each for topic in response.topics for each in topic.partitions
    ]


APIS = {
    "ListOffsets": Api(list_offsets_request, ListOffsetsResponse, 5, list_offsets, "_answer"),
    "OffsetForLeaderEpoch": Api(
        epochs_request, OffsetForLeaderEpochResponse, 3, offset_for_leader_epoch, "_end_offset"
    ),
    "DeleteRecords": Api(delete_records_request, DeleteRecordsResponse, 1, delete_records, "_result"),
    "Metadata": Api(metadata_request, MetadataResponse, 9, metadata, "_topic", lambda response: response.topics),
}


class CallsInStep:
    """The calls of a function in one step of the loop, at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, function: str) -> None:
        self.most = self._count = 0
        called, run = getattr(module, function), asyncio.Handle._run

        def counting(*arguments: Any) -> Any:
            self._count += 1
            self.most = max(self.most, self._count)
            return called(*arguments)

        def step(handle: asyncio.Handle) -> None:
            self._count = 0
            run(handle)

        monkeypatch.setattr(module, function, counting)
        monkeypatch.setattr(asyncio.Handle, "_run", step)


def parts(count: int) -> Iterator[range]:
    """Each so small that its request is handled in one step."""
    yield from (range(first, first + 64) for first in range(0, count, 64))


@pytest.mark.parametrize("name", APIS)
async def test_long_request_is_answered_in_slices(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = APIS[name]
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", PARTITIONS)
        await produce(client, "t", b"a", index=1)
        short = [await client.call(api.request(indexes), api.response, api.version) for indexes in parts(COUNT)]
        calls = CallsInStep(monkeypatch, api.module, api.function)

        long = await client.call(api.request(range(COUNT)), api.response, api.version)

        assert api.answers(long) == [answer for response in short for answer in api.answers(response)]
        assert 0 < calls.most <= ITEMS_PER_SLICE


def test_offsets_to_delete_are_not_compared_with_each_other() -> None:
    """Of 10,000 partitions that exist that took half a second."""

    class Index(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError("two partitions were compared")

    asked: Any = SimpleNamespace(image=SimpleNamespace(partition=lambda topic, index: True if index else None))
    partitions = [OffsetDeleteRequestPartition(partition_index=Index(index)) for index in range(3)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])

    known, errors = offset_delete._known(asked, request)

    assert (len(known[0][1]), list(errors.values())) == (2, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


def test_known_results_of_delete_records_are_not_looked_at_again() -> None:
    """Each partition that changes is a look: of 10,000 with followers, a hundred million looks at results."""
    looks: list[int] = []

    class Leadership:
        def __init__(self, index: int) -> None:
            self.index = index
            self.low_watermark = 0

        def lowest_log_start_offset(self, own: int, is_live: object) -> int:
            looks.append(self.index)
            return self.low_watermark

    leaderships = [Leadership(index) for index in range(3)]
    awaited: list[Any] = [
        DeleteRecordsPartitionStatus(
            cast("Any", SimpleNamespace(leadership=each, log=SimpleNamespace(log_start_offset=5))),
            5,
            DeleteRecordsPartitionResult(partition_index=each.index),
        )
        for each in leaderships
    ]
    replicas: Any = SimpleNamespace(image=SimpleNamespace(live_brokers={}))
    answered: list[bool] = []
    delayed = DelayedDeleteRecords(replicas, lambda: answered.append(True), awaited, deadline_ms=1)

    for each in reversed(leaderships):
        assert not delayed.try_complete()
        each.low_watermark = 5
    assert delayed.try_complete()

    assert looks == [2, 2, 1, 1, 0, 0]
    assert answered == [True]
