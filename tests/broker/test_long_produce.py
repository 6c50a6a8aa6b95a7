"""A produce request with hundreds of partitions appends to some of them in each step of the loop, in its turn."""

from pathlib import Path

import pytest

from ottla.broker.handlers import produce as handler
from ottla.broker.runtime import ITEMS_PER_SLICE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceResponse
from tests.broker.test_long_requests import CallsInStep
from tests.broker.test_transactional_produce import codes, in_transaction, running
from tests.broker.wire import batch, client_of, create_topic, fetch, produce, produce_request, running_broker, values_of

COUNT = 2 * ITEMS_PER_SLICE + 1
PARTITIONS = 3
"""Of the topic; the others that are named do not exist."""
VERSION = 9
LONG = [batch(b"%d" % index) for index in range(COUNT)]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("flush_messages", [None, 1])
async def test_long_produce_is_appended_in_slices(
    tmp_path: Path, acks: int, flush_messages: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `flush.messages` the answer waits for the disk."""
    configs = {} if flush_messages is None else {"flush_messages": flush_messages}
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", PARTITIONS, **configs)
        calls = CallsInStep(monkeypatch, handler, "_append")

        response = await client.call(produce_request("t", *LONG, acks=acks), ProduceResponse, VERSION)

        assert 0 < calls.most <= ITEMS_PER_SLICE
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(response) == [ErrorCode.NONE] * PARTITIONS + [absent] * (COUNT - PARTITIONS)
        assert [each.index for each in response.responses[0].partition_responses] == list(range(COUNT))
        for index in range(PARTITIONS):
            assert values_of((await fetch(client, "t", index=index)).records) == [b"%d" % index]


async def test_hundreds_of_partitions_with_scraps_are_sliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a request is short, and each refusal takes as long as any."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", PARTITIONS)
        calls = CallsInStep(monkeypatch, handler, "_append")

        response = await client.call(produce_request("t", *[bytes(20)] * COUNT), ProduceResponse, VERSION)

    assert 0 < calls.most <= ITEMS_PER_SLICE
    assert len(codes(response)) == COUNT
    assert ErrorCode.NONE not in codes(response)


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_next_request_does_not_overtake_a_long_produce(tmp_path: Path, acks: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", PARTITIONS)
        # Of a partition that is named again and again the last data counts: no error closes the connection.
        request = produce_request("t", *LONG[:PARTITIONS], acks=acks)
        repeated = [PartitionProduceData(index=index % PARTITIONS, records=LONG[0]) for index in range(COUNT)]
        request.topic_data[0].partition_data[:0] = repeated
        client.send(request, VERSION)
        client.send(produce_request("t", batch(b"second")), VERSION)

        if acks:
            await client.receive(ProduceResponse, VERSION)
        answer = await client.receive(ProduceResponse, VERSION)

        assert answer.responses[0].partition_responses[0].base_offset == 1
        assert values_of((await fetch(client, "t")).records) == [b"0", b"second"]


async def test_long_produce_without_acks_that_fails_closes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client, client_of(broker) as other:
        await create_topic(client, "t", PARTITIONS)
        client.send(produce_request("t", *LONG, acks=0), VERSION)

        assert await client.is_closed_by_broker()
        assert (await produce(other, "t", b"next")).base_offset == 1


@pytest.mark.parametrize("is_known", [False, True])
async def test_long_produce_of_a_transaction_is_verified_first(
    tmp_path: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (_, client, coordinator):
        first = 0
        if is_known:
            assert codes(await client.call(in_transaction(0, 0), ProduceResponse, 11)) == [ErrorCode.NONE] * 2
            first = 1
        absent = {index: LONG[index] for index in range(2, COUNT)}
        calls = CallsInStep(monkeypatch, handler, "_append")

        response = await client.call(in_transaction(first, first, records=absent), ProduceResponse, 11)

        assert 0 < calls.most <= ITEMS_PER_SLICE
        assert codes(response)[:3] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(coordinator.asked) == 1
