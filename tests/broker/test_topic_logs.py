"""Logs of topics with many partitions, and of the topic of the groups, whose coordinator is imported when needed."""

import asyncio
from contextlib import suppress
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.metadata.topic_plans import NewTopic, Outcome
from ottla.broker.replicas.topic_logs import LOGS_AT_ONCE
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.cluster.topics import TopicSpec
from ottla.protocol.errors import ErrorCode, NotLeaderOrFollower
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.wire import client_of, running_broker, until

MANY = 3 * LOGS_AT_ONCE


def creation(broker: Broker) -> "asyncio.Task[list[Outcome]]":
    return broker.runtime.spawn(broker.topics.create([NewTopic(TopicSpec("t", MANY), {})]), "test")


async def test_many_logs_are_made_a_few_at_a_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        made_by_step: list[int] = []
        found_after: list[int] = []
        make_some = broker.topic_logs._make_some

        def counted() -> None:
            before = len(broker.log_directory.logs)
            make_some()
            made_by_step.append(len(broker.log_directory.logs) - before)
            with suppress(NotLeaderOrFollower):
                broker.replicas.partition("t", MANY - 1)
                found_after.append(len(broker.log_directory.logs))

        broker.topic_logs._make_some = counted  # type: ignore[method-assign]
        (topic,) = await creation(broker)
        assert max(made_by_step) <= LOGS_AT_ONCE
        assert set(found_after) == {MANY}
        assert topic is broker.image.topic("t")
        assert all(broker.replicas.partition("t", index).is_leader for index in range(MANY))


async def test_topic_deleted_during_creation_gets_no_more_logs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = creation(broker)
        await until(broker, lambda: "t" in broker.image.topics)
        await broker.topics.delete([broker.image.topic("t")])

        await created
        await until(broker, lambda: not broker.topic_logs._is_making)
        assert not broker.log_directory.logs
        assert not list(broker.replicas)


async def test_logs_missing_after_a_stop_are_created_at_next_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = creation(broker)
        broker.topic_logs.stop()
        await until(broker, lambda: "t" in broker.image.topics)
    async with running_broker(tmp_path) as broker:
        assert created.cancelled()
        assert all(broker.replicas.partition("t", index).is_leader for index in range(MANY))


async def test_coordinator_lookup_waits_until_its_topic_exists(tmp_path: Path) -> None:
    request = FindCoordinatorRequest(key="g")
    async with running_broker(tmp_path, offsets_topic_num_partitions=2) as broker, client_of(broker) as client:
        first = await client.call(request, FindCoordinatorResponse, 3)

        assert (first.error_code, first.node_id) == (ErrorCode.NONE, broker.node_id)
        assert len(broker.image.topics[CONSUMER_OFFSETS].partitions) == 2
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        assert (await client.call(request, FindCoordinatorResponse, 3)).error_code == ErrorCode.NONE
