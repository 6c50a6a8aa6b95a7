"""What rules do to the requests of a client, byte by byte, and what the broker has afterwards."""

import asyncio
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.testing.faults.actions import (
    Delay,
    Disconnect,
    Drop,
    Error,
)
from ottla.testing.faults.faults import HitsMissing
from ottla.testing.faults.rule_values import RuleError
from tests.broker.wire import WAIT_S, fetch_request, turn
from tests.faults.worlds import FETCH_VERSION, PRODUCE_VERSION, faulty_broker, produce, produced

REFUSED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_error_of_one_partition_leaves_the_other_served() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        with world.faults.fault(api="Produce", topic="t", partition=1, do=Error("NOT_LEADER_OR_FOLLOWER")) as fault:
            assert await produced(client, b"a", 0, 1) == {0: 0, 1: REFUSED}
            assert await produced(client, b"b", 0, 1) == {0: 0, 1: 0}

        assert (await world.values(0), await world.values(1)) == ([b"a", b"b"], [b"b"])
        assert fault.hits == 1
        assert fault.last is not None
        assert fault.last.units == ("t-1",)


async def test_topic_without_a_partition_is_named_alone() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        with world.faults.fault(api="Metadata", topic="t", do={"observe": True}) as fault:
            await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse, 9)

        assert [hit.units for hit in fault.hit_log] == [("t",)]


async def test_errors_of_several_rules_combine_within_a_request() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        first = world.faults.fault(api="Produce", partition=0, do=Error("NOT_ENOUGH_REPLICAS"))
        second = world.faults.fault(api="Produce", do=Error("MESSAGE_TOO_LARGE"))
        third = world.faults.fault(api="Produce", do=Drop("request"))

        assert await produced(client, b"a", 0, 1) == {
            0: int(ErrorCode.NOT_ENOUGH_REPLICAS), 1: int(ErrorCode.MESSAGE_TOO_LARGE)
        }  # fmt: skip
        assert (first.hits, second.hits, third.hits) == (1, 1, 0)
        assert await world.values() == []


async def test_error_after_is_answered_to_what_was_applied() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=Error("NOT_ENOUGH_REPLICAS_AFTER_APPEND", after=True))

        assert await produced(client, b"a") == {0: int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)}
        assert await world.values() == [b"a"]


@pytest.mark.parametrize(("what", "log"), [("request", []), ("response", [b"a"])])
async def test_dropped_answers_leave_the_order_of_the_others(what: str, log: list[bytes]) -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=Drop(what))

        dropped = client.send(produce(b"a"), PRODUCE_VERSION)
        later = [client.send(produce(b"b", acks=acks), PRODUCE_VERSION) for acks in (-1, 1, -1)]
        answered = [(await client.receive_frame())[0] for _ in later]

        assert dropped not in answered
        assert answered == later
        assert await world.values() == [*log, b"b", b"b", b"b"]


@pytest.mark.parametrize(("when", "log"), [("before", []), ("after", [b"a"])])
@pytest.mark.parametrize("reset", [False, True])
async def test_disconnect_ends_the_connection(when: str, reset: bool, log: list[bytes]) -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=Disconnect(when, reset=reset))

        client.send(produce(b"a"), PRODUCE_VERSION)

        async with asyncio.timeout(WAIT_S):
            if reset:
                with pytest.raises(ConnectionResetError):
                    await client.reader.read(1)
            else:
                assert await client.reader.read(1) == b""
        assert await world.values() == log


async def test_delayed_request_keeps_its_bytes_while_others_are_busy() -> None:
    async with faulty_broker() as world:
        client, other = await world.client(), await world.client()
        delayed = world.faults.fault(api="Produce", connection=1, do=Delay(100), times=1)

        client.send(produce(b"the first value"), PRODUCE_VERSION)
        await delayed.wait_async()
        for _ in range(20):
            await produced(other, b"an other one..")
        await client.receive(ProduceResponse, PRODUCE_VERSION)

        values = await world.values()
        assert values[-1] == b"the first value"
        assert set(values[:-1]) == {b"an other one.."}


async def test_delays_add_up_and_the_connection_waits() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.add_all(["api=Heartbeat,delay=60", "api=Heartbeat,delay=60,stage=after", "api=Heartbeat,observe"])
        began_ms = world.core.runtime.clock.now_ms()

        heartbeat = client.send(HeartbeatRequest(group_id="g"), 4)
        versions = client.send(ApiVersionsRequest(), 0)
        order = [(await client.receive_frame())[0] for _ in range(2)]

        assert order == [heartbeat, versions]
        assert world.core.runtime.clock.now_ms() - began_ms >= 120
        assert [fault.hits for fault in world.faults] == [1, 1, 1]


async def test_held_requests_are_served_when_they_are_released() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        hold = world.faults.fault(api="Produce", do="hold")
        client.send(produce(b"a"), PRODUCE_VERSION)
        await hold.wait_async()
        assert (hold.held, await world.values()) == (1, [])

        assert hold.release() == 1

        await client.receive(ProduceResponse, PRODUCE_VERSION)
        assert await world.values() == [b"a"]


async def test_held_requests_are_released_one_by_one() -> None:
    async with faulty_broker() as world:
        first, second = await world.client(), await world.client()
        hold = world.faults.fault(api="Produce", do="hold", times=2)
        for hits, client in enumerate((first, second), 1):
            client.send(produce(b"%d" % hits), PRODUCE_VERSION)
            await hold.wait_async(hits)

        assert hold.release(1) == 1
        await first.receive(ProduceResponse, PRODUCE_VERSION)
        assert (hold.held, await world.values()) == (1, [b"1"])
        assert hold.release() == 1
        await second.receive(ProduceResponse, PRODUCE_VERSION)
        assert await world.values() == [b"1", b"2"]


async def test_removed_rule_lets_go_what_it_holds() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        with world.faults.fault(api="Produce", do="hold") as hold:
            client.send(produce(b"a"), PRODUCE_VERSION)
            await hold.wait_async()

        await client.receive(ProduceResponse, PRODUCE_VERSION)
        assert await world.values() == [b"a"]


async def test_rule_holds_for_connections_that_were_open_before() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        assert await produced(client, b"a") == {0: 0}
        plain = dict(world.core.server.dispatcher.routes)

        with world.faults.fault(api="Produce", do=Error("NOT_LEADER_OR_FOLLOWER")):
            assert await produced(client, b"b") == {0: REFUSED}

        assert await produced(client, b"c") == {0: 0}
        routes = world.core.server.dispatcher.routes
        assert all(routes[key] is route for key, route in plain.items())


async def test_only_the_apis_of_rules_have_other_routes() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        await produced(client, b"a")
        await client.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 4)
        dispatcher = world.core.server.dispatcher

        world.faults.add_all([f"api=Fetch,topic=t-{number},observe" for number in range(20)])
        assert all(
            dispatcher.routes[key] is route for key, route in dispatcher.made.items() if route.api.name != "Fetch"
        )
        world.faults.add("api=any,delay=0")
        assert all(dispatcher.routes[key] is not route for key, route in dispatcher.made.items())
        world.faults.clear()
        assert all(dispatcher.routes[key] is route for key, route in dispatcher.made.items())


async def test_error_of_acks_0_closes_the_connection() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=Error("NOT_LEADER_OR_FOLLOWER"))

        client.send(produce(b"a", acks=0), PRODUCE_VERSION)

        assert await client.is_closed_by_broker()
        assert await world.values() == []


async def test_disconnect_after_acks_0_leaves_the_record() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.fault(api="Produce", do=Disconnect("after"))

        client.send(produce(b"a", acks=0), PRODUCE_VERSION)

        assert await client.is_closed_by_broker()
        assert await world.values() == [b"a"]


async def test_dropping_the_response_of_acks_0_is_no_hit() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        drop = world.faults.fault(api="Produce", do=Drop("response"))

        client.send(produce(b"a", acks=0), PRODUCE_VERSION)
        await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)

        assert (drop.hits, await world.values()) == (0, [b"a"])


async def test_fetch_with_an_error_is_answered_at_once_and_sent_again() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        await produced(client, b"a")
        opening = fetch_request("t", 1, session_epoch=0, max_wait_ms=0)
        session = (await client.call(opening, FetchResponse, FETCH_VERSION)).session_id
        world.faults.fault(api="Fetch", topic="t", do=Error("NOT_LEADER_OR_FOLLOWER"))

        def incremental(epoch: int, wait_ms: int) -> Any:
            request = fetch_request("t", 0, session_epoch=epoch, max_wait_ms=wait_ms)
            request.session_id, request.topics = session, []
            return request

        async with asyncio.timeout(5):
            failed = await client.call(incremental(1, 60_000), FetchResponse, FETCH_VERSION)
        again = await client.call(incremental(2, 0), FetchResponse, FETCH_VERSION)

        (partition,) = failed.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, bytes(partition.records)) == (REFUSED, -1, b"")
        (partition,) = again.responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (0, 1)


async def test_metadata_hides_a_leader_or_a_topic() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        world.faults.add("api=Metadata,topic=t,partition=1,error=LEADER_NOT_AVAILABLE")
        world.faults.add("api=Metadata,topic=t,error=UNKNOWN_TOPIC_OR_PARTITION")
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)

        leaderless = await client.call(named, MetadataResponse, 9)
        unknown = await client.call(MetadataRequest(topics=None), MetadataResponse, 9)

        errors = {each.partition_index: (each.error_code, each.leader_id) for each in leaderless.topics[0].partitions}
        assert errors == {0: (0, 0), 1: (int(ErrorCode.LEADER_NOT_AVAILABLE), -1)}
        assert [(each.name, each.error_code, each.partitions) for each in unknown.topics] == [
            ("t", int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), [])
        ]


async def test_wait_that_is_missed_says_what_came_instead() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        fault = world.faults.fault(api="Produce", topic="order", do=Drop("response"))
        await produced(client, b"a")

        with pytest.raises(HitsMissing) as late:
            await fault.wait_async(hits=2, within=0.01)
        wanted, missing = late.value.wanted, late.value.missing
        assert (wanted, missing) == ("fault 'fault-1' did not have 2 hits", ("2 of 2 hits",))
        assert late.value.state.endswith("1 request matched all but topic: 't' ≠ 'order'")
        assert str(late.value).startswith("fault 'fault-1' did not have 2 hits within 0.0 s\n  now      'fault-1' (")
        with pytest.raises(RuntimeError, match="would hold up the loop"):
            fault.wait(within=0.01)


async def test_unused_rules_are_listed_until_all_are_cleared() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        with world.faults.fault(id="gone", api="Produce", topic="order", do=Drop("response")):
            await produced(client, b"a")
        world.faults.add("id=used,api=Produce,observe")
        world.faults.add("id=luck,api=Produce,probability=0.000001,drop=response")
        world.faults.add("id=maybe,api=Fetch,observe,optional=true")
        await produced(client, b"b")

        unused = {each.fault.id: (each.is_error, each.text) for each in world.faults.unused()}
        assert {name: is_error for name, (is_error, _) in unused.items()} == {
            "gone": True,
            "luck": False,
            "maybe": False,
        }
        assert unused["luck"][1].endswith("never hit in 1 requests, for which the odds were 1")
        world.faults.clear()
        assert world.faults.unused() == []
        assert world.faults.add("api=Fetch,observe").id == "fault-1"


async def test_rule_has_hit_though_it_was_removed() -> None:
    """Another of the same id is another rule."""
    async with faulty_broker() as world:
        client = await world.client()
        with world.faults.add("id=first,api=Produce,observe"):
            second = world.faults.add("api=Produce,after=first,observe")
            third = world.faults.add("api=Produce,until=first,observe")
            await produced(client, b"a")
            assert (second.hits, third.hits) == (1, 0)
        await produced(client, b"b")
        world.faults.add("id=first,api=Fetch,observe")
        await produced(client, b"c")

        assert (second.hits, third.hits) == (3, 0)


async def test_rule_about_no_broker_is_refused() -> None:
    async with faulty_broker() as world:
        with pytest.raises(RuleError, match=r"^node: there is no broker 7, 8, only 0$"):
            world.faults.add("api=Produce,node=7|8,observe")

        assert world.faults.add("api=Produce,node=7|0,observe").hits == 0


async def test_delayed_request_is_applied_though_its_client_went() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        delay = world.faults.fault(api="Produce", do=Delay(30))
        client.send(produce(b"a"), PRODUCE_VERSION)
        await delay.wait_async()
        client.close()

        async with asyncio.timeout(WAIT_S):
            while await world.values() != [b"a"]:
                await turn(world.core)
