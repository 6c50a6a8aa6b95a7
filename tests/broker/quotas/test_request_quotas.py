"""request_percentage and controller_mutation_rate (§64.9–64.11, §64.17)."""

import asyncio
from typing import Any

import pytest

from ottla.broker.quotas.request_quotas import NS_PER_PERCENT
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.security.quotas import QuotaEntity
from tests.broker.quotas.world import World
from tests.broker.requests import produce, topic

APP = QuotaEntity(None, "app")
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def slow_clock(world: World, request_ns: int) -> None:
    """Each look at the clock by what measures requests takes so long; nothing else sees it."""
    managers = world.broker.parts.quotas.enforcer.managers
    passed = [0]

    def now_ns() -> int:
        passed[0] += request_ns
        return passed[0]

    managers.now_ns = world.broker.parts.quotas.enforcer._now_ns = now_ns


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
REQUESTS: list[tuple[Any, int]] = [
    (HEARTBEAT, 4),
    (MetadataRequest(topics=None), 12),
    (MetadataRequest(topics=None), 3),
    (ListGroupsRequest(), 4),
    (produce("t"), 9),
    (CreateTopicsRequest(topics=[topic("t")], timeout_ms=1000), 7),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda each: type(each).__name__)
def test_time_is_counted_and_its_throttle_at_most_a_sample(request_: Any, version: int) -> None:
    """SEC25: whether it is answered at once, from prepared bytes, or by a coroutine."""

    async def story(world: World) -> None:
        await world.cluster.create(world.node, "t", factor=1)
        await world.client("watcher")
        client = await world.client()
        first = await client.ask(request_, version)
        await world.set_quota(APP, request_percentage=1)
        slow_clock(world, 200 * NS_PER_PERCENT)
        throttles = []
        for _ in range(3):
            answer = await client.ask(request_, version)
            throttles.append(answer.throttle_time_ms)
        assert first.throttle_time_ms == 0
        # The steps of a coroutine after its answer count with the next one.
        assert throttles[-1] == 1000
        other = await (await world.client("other")).ask(request_, version)
        assert other.throttle_time_ms == 0

    World().run(story)


def test_an_old_answer_without_a_throttle_time_is_as_it_was() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        before = await client.ask(MetadataRequest(topics=[]), 1)
        await world.set_quota(APP, request_percentage=1)
        slow_clock(world, 200 * NS_PER_PERCENT)
        assert await client.ask(MetadataRequest(topics=[]), 1) == before
        with world.takes(500, 1500):
            await client.ask(HEARTBEAT, 4)

    World().run(story)


def test_what_brokers_alone_send_is_exempt() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        await world.set_quota(APP, request_percentage=1)
        slow_clock(world, 500 * NS_PER_PERCENT)
        for _ in range(3):
            with world.takes(0, 400):
                await client.ask(WriteTxnMarkersRequest(markers=[]), 1)
        assert world.broker.parts.quotas.enforcer.managers.request.throttles.count == 0

    World().run(story)


def creating(*counts: int, prefix: str = "t", validate_only: bool = False) -> CreateTopicsRequest:
    topics = [topic(f"{prefix}{number}", count) for number, count in enumerate(counts)]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only)


def test_a_strict_request_is_refused_topic_by_topic() -> None:
    """SEC24, ST-26: the bucket of 11 may be overdrawn once."""

    async def story(world: World) -> None:
        await world.set_quota(APP, controller_mutation_rate=1)
        client = await world.client()
        answer = await client.ask(creating(8, 8, 1), 7)
        codes = {each.name: each.error_code for each in answer.topics}
        assert codes == {"t0": 0, "t1": 0, "t2": THROTTLED}
        assert 4_500 < answer.throttle_time_ms <= 5_000
        with world.takes(4_500, 6_000):
            again = await client.ask(creating(1, prefix="u"), 7)
        assert [each.error_code for each in again.topics] == [0]
        assert (await (await world.client("other")).ask(creating(20, prefix="v"), 7)).throttle_time_ms == 0

    World().run(story)


@pytest.mark.parametrize("version", [5, 7])
def test_a_quota_of_next_to_nothing_is_answered_too(version: int) -> None:
    async def story(world: World) -> None:
        await world.set_quota(APP, controller_mutation_rate=1e-9)
        client = await world.client()
        answer = await client.ask(creating(8, 8), version)
        assert [each.error_code for each in answer.topics] == [0, THROTTLED if version == 7 else 0]
        assert 2**31 - 5_000 < answer.throttle_time_ms < 2**31

    World().run(story)


def test_an_old_request_is_served_and_throttled() -> None:
    async def story(world: World) -> None:
        await world.set_quota(APP, controller_mutation_rate=1)
        client = await world.client()
        answer = await client.ask(creating(8, 8, 1), 5)
        assert [each.error_code for each in answer.topics] == [0, 0, 0]
        assert 5_500 < answer.throttle_time_ms <= 6_000

    World().run(story)


def test_growing_and_deleting_count_the_partitions_that_change() -> None:
    async def story(world: World) -> None:
        client = await world.client()
        await client.ask(creating(2, 2), 7)
        await world.set_quota(APP, controller_mutation_rate=1)
        more = CreatePartitionsTopic(name="t0", count=14, assignments=None)
        grown = await client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
        assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 0)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t1")], timeout_ms=5000)
        deleted = await client.ask(gone, 6)
        assert deleted.responses[0].error_code == THROTTLED
        assert 0 < deleted.throttle_time_ms <= 1_000
        await asyncio.sleep(1)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0

    World().run(story)


def test_what_is_only_validated_or_refused_does_not_count() -> None:
    async def story(world: World) -> None:
        await world.set_quota(APP, controller_mutation_rate=1)
        client = await world.client()
        assert (await client.ask(creating(100, validate_only=True), 7)).topics[0].error_code == 0
        refused = await client.ask(creating(0), 7)
        assert refused.topics[0].error_code == ErrorCode.INVALID_PARTITIONS
        mutation = world.broker.parts.quotas.enforcer.managers.mutation
        assert len(mutation.budgets) == 0
        assert (await client.ask(creating(3), 7)).throttle_time_ms == 0
        assert len(mutation.budgets) == 1

    World().run(story)


def asking_for(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"auto{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def test_topics_that_are_created_unasked_count() -> None:
    """As at Kafka's controller: one by one, strictly, and the answer of Metadata says nothing of it."""

    async def story(world: World) -> None:
        def made() -> int:
            return sum(name.startswith("auto") for name in world.broker.image.topics)

        await world.set_quota(APP, controller_mutation_rate=0.5)
        client = await world.client()
        answer = await client.ask(asking_for(10), 12)
        assert answer.throttle_time_ms == 0
        await asyncio.sleep(0.5)
        assert made() == 6
        again = await client.ask(asking_for(10), 12)
        missing = {each.error_code for each in again.topics if not each.partitions}
        assert missing <= {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.LEADER_NOT_AVAILABLE)}
        assert made() == 6
        await asyncio.sleep(1)
        await (await world.client()).ask(asking_for(10), 12)
        await asyncio.sleep(0.5)
        assert made() == 7
        await (await world.client("other")).ask(asking_for(10), 12)
        await asyncio.sleep(0.5)
        assert made() == 10

    World().run(story)
