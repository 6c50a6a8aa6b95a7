"""Answers with other bytes and fields, or slowly, and functions that decide."""

from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, error_for
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.records.batch import parse_batch_header
from ottla.testing.faults.actions import (
    Bandwidth,
    Call,
    Corrupt,
    Duplicate,
    Rewrite,
    Slice,
    ThrottleClient,
    TruncateResponse,
)
from tests.broker.wire import fetch_request
from tests.faults.worlds import FETCH_VERSION, PRODUCE_VERSION, faulty_broker, produce, produced

SLOW_MS = 100


@pytest.mark.parametrize("action", [Bandwidth(1000), Slice(7, 10), Bandwidth(1000, "request"), Slice(9, 10, "request")])
async def test_slow_bytes_are_late_and_the_same(action: Any) -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=action)

        began_ms = world.core.runtime.clock.now_ms()
        for value in (b"a", b"b"):
            assert await produced(client, value, 0, 1) == {0: 0, 1: 0}
        assert world.core.runtime.clock.now_ms() - began_ms >= SLOW_MS
        assert await world.values() == [b"a", b"b"]


async def test_truncated_and_lying_frames_end_where_they_say() -> None:
    async with faulty_broker() as world:
        client, other = await world.client(), await world.client()
        world.faults.fault(api="Produce", do=TruncateResponse(6))
        client.send(produce(b"a"), PRODUCE_VERSION)
        begin = await client.reader.read()
        assert len(begin) == 6
        assert int.from_bytes(begin[:4], "big") > 2

        world.faults.fault(api="Heartbeat", do=Corrupt("length"))
        other.send(HeartbeatRequest(group_id="g"), 4)
        size = int.from_bytes(await other.reader.readexactly(4), "big")
        rest = await other.reader.read(size)
        assert size == len(rest) + 1000


async def test_duplicate_and_flipped_bits() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Heartbeat", do=Duplicate())
        sent = client.send(HeartbeatRequest(group_id="g"), 4)
        first, second = await client.receive_frame(), await client.receive_frame()
        assert first == second
        assert first[0] == sent

        world.faults.fault(api="Heartbeat", do=Corrupt("bytes"))
        client.send(HeartbeatRequest(group_id="g"), 4)
        _, corrupted = await client.receive_frame()
        assert len(corrupted) == len(first[1])
        assert corrupted != first[1]


async def test_fetched_batch_has_a_wrong_checksum_and_the_log_has_not() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        await produced(client, b"a")
        world.faults.fault(api="Fetch", do=Corrupt("crc"))

        response = await client.call(fetch_request("t", 0, max_wait_ms=0), FetchResponse, FETCH_VERSION)

        records = response.responses[0].partitions[0].records
        intact = batch_of(await _fetched(world))
        assert bytes(records)[:17] == intact[:17]
        assert bytes(records)[17] != intact[17]
        assert parse_batch_header(intact).base_offset == 0
        assert await world.values() == [b"a"]


async def _fetched(world: Any) -> Any:
    client = await world.client()
    return await client.call(fetch_request("t", 0, max_wait_ms=0), FetchResponse, FETCH_VERSION)


def batch_of(response: Any) -> bytes:
    return bytes(response.responses[0].partitions[0].records)


async def test_throttle_is_sent_and_enforced() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Heartbeat", do=ThrottleClient(80, enforce=True))
        sent = await client.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 4)
        began_ms = world.core.runtime.clock.now_ms()

        free = await client.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 4)

        assert (sent.throttle_time_ms, free.throttle_time_ms) == (80, 0)
        assert world.core.runtime.clock.now_ms() - began_ms >= 70


async def test_rewritten_fields_and_versions() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="ApiVersions", do=Rewrite({"versions": {"Fetch": "4-11", "Metadata": ""}}))
        world.faults.fault(api="Metadata", do=Rewrite({"brokers.port": 1, "cluster_id": "other"}))

        versions = await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)

        served = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
        assert (served[1], 3 in served) == ((4, 11), False)
        assert ([broker.port for broker in metadata.brokers], metadata.cluster_id) == ([1], "other")


async def test_function_decides_whether_and_how_a_request_is_answered() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        seen: list[Any] = []

        async def twist(request: Any, proceed: Any) -> Any:
            response = await proceed()
            seen.append((request.api, request.client_id, response.error_code))
            response.error_code = int(ErrorCode.REBALANCE_IN_PROGRESS)
            return response

        async def refuse(request: Any, proceed: Any) -> Any:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        async def swallow(request: Any, proceed: Any) -> None:
            return None

        for function in (twist, refuse, swallow):
            world.faults.fault(api="Heartbeat", do=Call(function))
        codes = [(await client.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 4)).error_code for _ in range(2)]
        client.send(HeartbeatRequest(group_id="g"), 4)
        last = await client.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 4)

        assert codes == [int(ErrorCode.REBALANCE_IN_PROGRESS), int(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert seen == [("Heartbeat", "test", int(ErrorCode.NOT_COORDINATOR))]
        assert last.error_code == int(ErrorCode.NOT_COORDINATOR)
        assert client.last_correlation_id == 4
