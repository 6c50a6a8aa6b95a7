"""Limits of connections: by listener, out of brokers' way, at Kafka's pace, by address (§66)."""

import asyncio
from typing import Any

from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_interfaces import HELD_BY_THROTTLE
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.security.quotas import DEFAULT, QuotaEntity
from tests.broker.quotas.world import VirtualClient, World

METADATA = MetadataRequest(topics=[]), 5
INSIDE, OUTSIDE = 9093, 9092
TWO_LISTENERS = {
    "listeners": f"OUT://broker-0:{OUTSIDE},IN://broker-0:{INSIDE}",
    "listener_security_protocol_map": "OUT:PLAINTEXT,IN:PLAINTEXT",
    "inter_broker_listener_name": "IN",
}


class TwoListeners(World):
    """One for clients, and one for brokers."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**TWO_LISTENERS, **settings)


async def is_served(client: VirtualClient) -> bool:
    answer = client.send(*METADATA)
    await asyncio.sleep(0.4)
    return answer.done()


def closed(world: World) -> int:
    return sum(n for (_, reason), n in world.broker.server.closed.items() if reason is CloseReason.OVER_LIMIT)


def test_the_limit_of_a_listener_is_its_own() -> None:
    async def story(world: World) -> None:
        outside = [await world.client(port=OUTSIDE) for _ in range(3)]
        inside = [await world.client(port=INSIDE) for _ in range(3)]
        assert [await is_served(each) for each in outside] == [True, True, False]
        assert [await is_served(each) for each in inside] == [True, True, True]
        outside[0].close()
        await asyncio.sleep(0.4)
        assert await is_served(await world.client(port=OUTSIDE))

    TwoListeners(listener_name_out_max_connections=2).run(story)


def test_brokers_have_a_place_where_clients_have_taken_all() -> None:
    """SEC26: the client that was idle longest makes room."""

    async def story(world: World) -> None:
        clients = [await world.client(port=OUTSIDE) for _ in range(4)]
        assert [await is_served(each) for each in clients] == [True, True, True, False]
        assert await is_served(clients[0])
        broker = await world.client(port=INSIDE)
        assert await is_served(broker)
        assert [each.is_closed for each in clients] == [False, True, False, True]

    TwoListeners(max_connections=3).run(story)


def test_one_listener_alone_is_not_protected() -> None:
    async def story(world: World) -> None:
        assert [await is_served(await world.client()) for _ in range(3)] == [True, True, False]

    World(max_connections=2).run(story)


def test_connections_come_at_the_pace_of_kafkas_acceptor() -> None:
    """§66.4: ten seconds' worth at once, then one by one."""

    async def story(world: World) -> None:
        clients = [await world.client(port=OUTSIDE) for _ in range(26)]
        brokers = [await world.client(port=INSIDE) for _ in range(5)]
        began_ms = world.clock.now_ms()
        answers = [each.send(*METADATA) for each in (*clients, *brokers)]
        served_ms: list[int] = []
        for answer in answers:
            await answer
            served_ms.append(world.clock.now_ms() - began_ms)
        assert max(served_ms[:20]) < 400
        assert 2_500 < served_ms[25] < 6_000
        assert [each.done() for each in answers[26:]] == [True] * 5

    TwoListeners(max_connection_creation_rate=2).run(story)


def test_the_wait_is_seen_and_nothing_is_left_of_it() -> None:
    async def story(world: World) -> None:
        clients = [await world.client() for _ in range(12)]
        await asyncio.sleep(0.3)
        held = [bool(each.holds & HELD_BY_THROTTLE) for each in world.connections()]
        assert held == [False] * 10 + [True] * 2
        for each in clients:
            each.close()
        await asyncio.sleep(0.5)
        assert len(world.broker.server.muted) == 0
        limits = world.broker.server.limits
        assert (limits._of_host.total(), limits._of_listener.total()) == (0, 0)

    World(max_connection_creation_rate=1).run(story)


def test_an_address_beyond_its_rate_is_kept_unread_then_closed() -> None:
    """SEC26, §66.5: and does not count for others."""

    async def story(world: World) -> None:
        await world.set_quota(QuotaEntity(ip=DEFAULT), connection_creation_rate=1)
        clients = [await world.client() for _ in range(13)]
        served = [each.send(*METADATA) for each in clients]
        await asyncio.sleep(0.4)
        assert [each.done() for each in served] == [True] * 10 + [False] * 3
        assert not any(each.is_closed for each in clients)
        await asyncio.sleep(1)
        assert [each.is_closed for each in clients] == [False] * 10 + [True] * 3
        assert closed(world) == 3
        addresses = world.broker.parts.quotas.enforcer.managers.addresses
        assert addresses.throttles.count == 3
        await world.set_quota(QuotaEntity(ip=DEFAULT), connection_creation_rate=None)
        assert await is_served(await world.client())

    World().run(story)


def test_counters_are_back_at_zero_after_a_flood() -> None:
    """ST-27: whatever ends a connection."""

    async def story(world: World) -> None:
        await world.set_quota(QuotaEntity(ip=DEFAULT), connection_creation_rate=100)
        for _ in range(20):
            clients = [await world.client() for _ in range(100)]
            for each in clients[::2]:
                each.close()
            for each in clients[1::2]:
                each._transport.abort()
            await asyncio.sleep(0.5)
        await asyncio.sleep(3)
        limits: Any = world.broker.server.limits
        assert (len(limits._of_host), len(limits._of_listener)) == (0, 0)
        assert len(world.broker.server.muted) == len(world.broker.server.connections) == 0

    World(max_connections=80, max_connections_per_ip=70).run(story)


def test_limits_of_a_listener_change_while_the_broker_runs() -> None:
    """§66.6"""

    async def alter(world: World, name: str, value: str | None) -> None:
        config = AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        admin = await world.client(port=INSIDE)
        answer = await admin.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [each.error_code for each in answer.responses] == [0], answer

    async def described(world: World, name: str, broker: str) -> str:
        resource = DescribeConfigsResource(resource_type=4, resource_name=broker, configuration_keys=None)
        admin = await world.client(port=INSIDE)
        answer = await admin.ask(DescribeConfigsRequest(resources=[resource]), 4)
        assert [each.error_code for each in answer.results] == [0], answer
        return next(each.value for each in answer.results[0].configs if each.name == name)

    async def story(world: World) -> None:
        name = "listener.name.out.max.connections"
        clients = [await world.client(port=OUTSIDE)]
        await alter(world, name, "2")
        clients += [await world.client(port=OUTSIDE) for _ in range(2)]
        assert [await is_served(each) for each in clients] == [True, True, False]
        assert await described(world, name, "") == await described(world, name, "0") == "2"
        await alter(world, name, "3")
        assert await is_served(await world.client(port=OUTSIDE))
        await alter(world, name, None)
        assert await is_served(await world.client(port=OUTSIDE))

    TwoListeners().run(story)
