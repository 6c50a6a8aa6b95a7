"""Requests that rules hold up: what they keep of the buffer that all connections receive into, and the world that they
belong to."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.server.apis import APIS, Api
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.testing.faults.actions import Action, Delay, Hold
from ottla.testing.faults.calls import FaultCall
from tests.faults.worlds import faulty_broker, produced
from tests.protocol.random_messages import random_message

REQUESTS_EACH = 5
FIND_VERSION, JOIN_VERSION, SYNC_VERSION = 1, 3, 3
HAVE_VIEWS = {"Produce", "SyncGroup"}


def parsed(api: Api, version: int, frame: bytes | bytearray) -> Any:
    return decode_whole(api.request_class(), version, frame)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_nothing_of_the_receive_buffer_is_kept(api: Api) -> None:
    """Of no API and version: other bytes in the buffer change no request that waits."""
    rng, plain_changes = random.Random(api.key), False
    for version in range(api.min_version, api.max_version + 1):
        for _ in range(REQUESTS_EACH):
            frame = encode(random_message(api.request_class(), version, rng), version)
            buffer, sent = bytearray(frame), parsed(api, version, frame)
            plain, waiting = parsed(api, version, buffer), parsed(api, version, buffer)

            route: Any = SimpleNamespace(api=api, version=version)
            call: Any = FaultCall(SimpleNamespace(), route, SimpleNamespace(), waiting)  # type: ignore[arg-type]
            call.keep_views()
            buffer[:] = bytes(each ^ 0xFF for each in buffer)

            assert waiting == sent
            plain_changes |= plain != sent

    assert plain_changes == (api.name in HAVE_VIEWS)


@pytest.mark.parametrize("action", [Delay(100), Hold()], ids=["delay", "hold"])
async def test_waiting_sync_keeps_its_assignment(action: Action) -> None:
    async with faulty_broker() as world:
        client, other = await world.client(), await world.client()
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, FIND_VERSION)
        joined = await client.call(join, JoinGroupResponse, JOIN_VERSION)
        rule = world.faults.fault(api="SyncGroup", do=action, times=1)
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"the first part")
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[part])

        client.send(sync, SYNC_VERSION)
        await rule.wait_async()
        for _ in range(20):
            await produced(other, b"an other one.." * 8)
        rule.release()
        synced = await client.receive(SyncGroupResponse, SYNC_VERSION)

        assert (synced.error_code, synced.assignment) == (0, b"the first part")
