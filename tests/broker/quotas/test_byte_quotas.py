"""producer_byte_rate and consumer_byte_rate: answers at once, connections muted, empty fetches (§64.12–64.17)."""

import asyncio
from typing import Any

import pytest

from ottla.broker.server.connection_interfaces import HELD_BY_THROTTLE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.security.quotas import DEFAULT, QuotaEntity
from tests.broker.quotas.world import VirtualClient, World
from tests.broker.requests import fetch, produce
from tests.broker.wire import batch, fetch_request

APP = QuotaEntity(None, "app")
EVERYBODY = QuotaEntity(None, DEFAULT)
PRODUCE, FETCH, METADATA = 9, 11, 5
# A request and its answer on the way, at most.
NETWORK_MS = 400


def of_size(size_bytes: int, **fields: Any) -> ProduceRequest:
    """Of so many bytes, nearly."""
    return produce("t", records=batch(bytes(max(size_bytes - 150, 1))), **fields)


async def throttle_of(client: VirtualClient, size_bytes: int) -> int:
    return int((await client.ask(of_size(size_bytes), PRODUCE)).throttle_time_ms)


def test_throttles_are_those_of_kafka_and_come_at_once() -> None:
    """The vectors of §64.8, with the size of each request as it is."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1000)
        client = await world.client()
        rate = world.broker.parts.quotas.enforcer.managers.producer
        expected_until_ms = 0
        for size, pause_ms in ((5000, 100), (5000, 100), (5000, 1300), (1000, 7500), (3000, 0)):
            with world.takes(max(expected_until_ms - world.clock.now_ms(), 0), 10_000):
                answer = await client.ask(of_size(size), PRODUCE)
            (_, budget) = rate.budgets.used_last(1)[0]
            now_ms = world.clock.now_ms()
            measured = budget.measure.throttle_ms(1000, now_ms)
            assert abs(answer.throttle_time_ms - measured) <= 5
            expected_until_ms = now_ms + answer.throttle_time_ms - 10
            await asyncio.sleep(pause_ms / 1000)

    World().run(story)


def test_an_answer_is_not_delayed_and_the_next_request_waits() -> None:
    """ST-22: the answer says how long."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1000)
        client, other = await world.client(), await world.client("other")
        with world.takes(0, NETWORK_MS):
            throttle_ms = await throttle_of(client, 20_000)
        assert 9_000 < throttle_ms < 11_000
        with world.takes(throttle_ms - NETWORK_MS, throttle_ms + NETWORK_MS):
            await client.ask(MetadataRequest(topics=[]), METADATA)
        with world.takes(0, NETWORK_MS):
            assert await throttle_of(other, 20_000) == 0

    World().run(story)


def test_a_muted_connection_is_not_closed_as_idle() -> None:
    """ST-22"""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1000)
        client = await world.client()
        throttle_ms = await throttle_of(client, 40_000)
        assert throttle_ms > 20_000
        await asyncio.sleep((throttle_ms - 100) / 1000)
        assert not client.is_closed
        await client.ask(MetadataRequest(topics=[]), METADATA)
        await asyncio.sleep(6)
        assert client.is_closed

    World(connections_max_idle_ms=2_000).run(story)


def test_requests_behind_the_one_that_is_throttled_wait() -> None:
    """They have arrived with it."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1000)
        client = await world.client()
        first, second = client.send(of_size(15_000), PRODUCE), client.send(of_size(1_000), PRODUCE)
        throttle_ms = (await first).throttle_time_ms
        assert throttle_ms > 4_000
        with world.takes(throttle_ms - NETWORK_MS, throttle_ms + NETWORK_MS):
            await second

    World().run(story)


def test_produce_without_an_answer_is_muted_too() -> None:
    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1000)
        client = await world.client()
        client.send(of_size(20_000, acks=0), PRODUCE, is_answered=False)
        with world.takes(9_000, 11_000):
            await client.ask(MetadataRequest(topics=[]), METADATA)

    World().run(story)


def test_a_closed_connection_leaves_no_timer() -> None:
    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=1)
        client = await world.client()
        assert await throttle_of(client, 20_000) > 1_000_000
        assert len(world.broker.server.muted) == 1
        assert world.connections()[0].holds & HELD_BY_THROTTLE
        client.close()
        await asyncio.sleep(0.1)
        assert len(world.broker.server.muted) == 0

    World().run(story)


def test_quotas_change_and_go_without_a_reconnect() -> None:
    """ST-25, SEC22"""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        client = await world.client()
        routes = world.broker.server.dispatcher.routes
        assert await throttle_of(client, 50_000) == 0
        plain = {key: route.handle for key, route in routes.items()}
        await world.set_quota(APP, producer_byte_rate=10_000)
        assert await throttle_of(client, 101_000) > 0
        await world.set_quota(APP, producer_byte_rate=100_000)
        assert await throttle_of(client, 1_000) == 0
        await world.set_quota(APP, producer_byte_rate=None)
        assert await throttle_of(client, 500_000) == 0
        assert {key: routes[key].handle for key in plain} == plain

    World().run(story)


@pytest.mark.parametrize(
    ("entity", "is_bound"),
    [
        (QuotaEntity("ANONYMOUS", "app"), {"app"}),
        (QuotaEntity("ANONYMOUS", DEFAULT), {"app", "other", ""}),
        (QuotaEntity("ANONYMOUS"), {"app", "other", ""}),
        (QuotaEntity(DEFAULT, "app"), {"app"}),
        (QuotaEntity(DEFAULT, DEFAULT), {"app", "other", ""}),
        (QuotaEntity(DEFAULT), {"app", "other", ""}),
        (APP, {"app"}),
        (EVERYBODY, {"app", "other", ""}),
        (QuotaEntity("alice"), set()),
    ],
)
def test_all_levels_of_entities_bind(entity: QuotaEntity, is_bound: set[str]) -> None:
    """SEC22: also a client without a client id."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(entity, producer_byte_rate=1000)
        found = {
            name for name in ("app", "other", "") if await throttle_of(await world.client(name or None), 20_000) > 0
        }
        assert found == is_bound

    World().run(story)


def test_long_client_ids_are_kept_shortened() -> None:
    """Clients choose them: of ten thousand with 32 KB each there would be too much to keep."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(EVERYBODY, producer_byte_rate=10_000)
        assert await throttle_of(await world.client("x" * 30_000), 5_000) == 0
        assert await throttle_of(await world.client("x" * 30_001), 50_000) > 0
        ((entity, _),) = world.broker.parts.quotas.enforcer.managers.producer.budgets.used_last(9)
        assert entity.client_id == "x" * 1024

    World().run(story)


def test_a_throttled_fetch_is_empty_and_loses_nothing() -> None:
    """ST-23, SEC23: and what it would have been sent does not count."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        producer, consumer = await world.client("producer"), await world.client()
        for number in range(30):
            await producer.ask(produce("t", records=batch(b"%03d" % number + bytes(2_000))), PRODUCE)
        await world.set_quota(APP, consumer_byte_rate=2_000)
        offset, empty, began_ms = 0, 0, world.clock.now_ms()
        session_id, epoch = 0, 0
        while offset < 30:
            request = fetch(
                "t", offset=offset, session_id=session_id, session_epoch=epoch, min_bytes=1, max_bytes=5_000
            )
            answer = await consumer.ask(request, FETCH)
            assert answer.error_code == 0
            assert world.clock.now_ms() - began_ms < 120_000
            if answer.session_id:
                session_id, epoch = answer.session_id, epoch + 1
            if answer.throttle_time_ms:
                empty += 1
                assert not answer.responses
                continue
            (partition,) = answer.responses[0].partitions
            offset += len(partition.records) // 2_000
        took_s = (world.clock.now_ms() - began_ms) / 1000
        assert empty > 3
        assert 30 * 2_100 / 2_000 - 11 <= took_s <= 30 * 2_100 / 2_000 + 2

    World().run(story)


def test_a_consumer_gets_at_most_what_its_window_allows() -> None:
    """§64.15: or one answer would be throttled for ever."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        producer, consumer = await world.client("producer"), await world.client()
        for _ in range(20):
            await producer.ask(produce("t", records=batch(bytes(1_000))), PRODUCE)
        await world.set_quota(APP, consumer_byte_rate=500)
        request = fetch_request("t", min_bytes=1 << 20, max_wait_ms=500)
        with world.takes(0, NETWORK_MS):
            answer = await consumer.ask(request, FETCH)
        assert answer.throttle_time_ms == 0
        assert 4_000 < len(answer.responses[0].partitions[0].records) <= 5_000

    World().run(story)


def test_a_new_session_is_not_made_by_a_throttled_fetch() -> None:
    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        consumer = await world.client()
        await consumer.ask(produce("t", records=batch(bytes(5_000))), PRODUCE)
        await world.set_quota(APP, consumer_byte_rate=400)
        answers = [await consumer.ask(fetch("t", session_epoch=0), FETCH) for _ in range(2)]
        assert [bool(answer.throttle_time_ms) for answer in answers] == [True, True]
        assert [answer.session_id for answer in answers] == [0, 0]
        assert len(world.broker.parts.fetch_sessions) == 0

    World().run(story)


@pytest.mark.parametrize(
    ("limit", "parts", "connections"), [(20_000, [0.1], 3), (50_000, [0.08, 0.12, 0.1], 4), (100_000, [0.2], 2)]
)
def test_a_byte_quota_is_kept_within_five_percent(limit: int, parts: list[float], connections: int) -> None:
    """SEC21: over forty windows, by clients that could send more. In one window Kafka's arithmetic allows bursts."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.set_quota(APP, producer_byte_rate=limit)
        clients = [await world.client() for _ in range(connections)]
        requests = [of_size(int(part * limit)) for part in parts]

        async def produce_on(client: VirtualClient) -> None:
            number = 0
            while True:
                await client.ask(requests[number % len(requests)], PRODUCE)
                number += 1

        tasks = [world.cluster.loop.create_task(produce_on(client)) for client in clients]
        await asyncio.sleep(22)
        route = next(each for each in world.broker.server.dispatcher.routes.values() if each.api.key == 0)
        before = route.request_bytes
        await asyncio.sleep(440)
        sent_bytes = route.request_bytes - before
        for task in tasks:
            task.cancel()
        assert 0.95 <= sent_bytes / 440 / limit <= 1.05

    World().run(story)


async def session_of(world: World, client: VirtualClient) -> int:
    await world.cluster.create(world.node, "t", factor=1)
    answer = await client.ask(fetch("t", session_epoch=0), FETCH)
    assert answer.session_id
    return int(answer.session_id)


@pytest.mark.parametrize(
    ("quota", "limit", "budgets", "used"),
    [("request_percentage", 0.0001, "request", 100), ("consumer_byte_rate", 100, "consumer", 100_000)],
)
def test_a_throttled_fetch_of_another_epoch_is_refused(quota: str, limit: float, budgets: str, used: int) -> None:
    """§64.14: what is wrong with its session is said all the same, and it has to rest as others."""

    async def story(world: World) -> None:
        client = await world.client()
        session_id = await session_of(world, client)
        await world.set_quota(APP, **{quota: limit})
        managers = world.broker.parts.quotas.enforcer.managers
        getattr(managers, budgets).record_unchecked("ANONYMOUS", "app", used, world.clock.now_ms())
        refused = await client.ask(fetch("t", session_id=session_id, session_epoch=9), FETCH)
        assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert refused.throttle_time_ms > 0
        assert (refused.session_id, refused.responses) == (0, [])

    World().run(story)


def test_a_throttled_fetch_that_was_overtaken_is_refused() -> None:
    """Another request of its session has come while it waited."""

    async def story(world: World) -> None:
        waiting, other = await world.client(), await world.client()
        session_id = await session_of(world, waiting)
        await world.set_quota(APP, consumer_byte_rate=100)
        request = fetch("t", session_epoch=1, session_id=session_id, min_bytes=1)
        request.max_wait_ms = 2_000
        first = waiting.send(request, FETCH)
        await asyncio.sleep(0.1)
        assert (await other.ask(fetch("t", session_epoch=2, session_id=session_id), FETCH)).error_code == 0
        await (await world.client("producer")).ask(produce("t", records=batch(bytes(5_000))), PRODUCE)
        refused = await first
        assert refused.throttle_time_ms > 0
        assert (refused.error_code, refused.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)
        third = await other.ask(fetch("t", session_epoch=3, session_id=session_id), FETCH)
        assert (third.error_code, third.session_id) == (0, session_id)

    World().run(story)
