"""Logs of topics with many partitions, and of the topic of the groups, whose coordinator is imported when needed."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.metadata.topic_commands import NewTopic, Outcome
from ottla.broker.replicas.topic_logs import LOGS_AT_ONCE
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.cluster.topics import TopicSpec
from ottla.protocol.errors import ErrorCode, NotLeaderOrFollower
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.wire import client_of, running_broker

MANY = 3 * LOGS_AT_ONCE


def creation(broker: Broker) -> "asyncio.Future[list[Outcome]]":
    created = broker.loop.create_future()
    broker.topics.create([NewTopic(TopicSpec("t", MANY), {})], validate_only=False, done=created.set_result)
    return created


async def test_many_logs_are_made_a_few_at_a_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = creation(broker)

        assert broker.replicas.partition("t", LOGS_AT_ONCE - 1).is_leader
        with pytest.raises(NotLeaderOrFollower):
            broker.replicas.partition("t", LOGS_AT_ONCE)
        (topic,) = await created
        assert topic is broker.image.topic("t")
        assert all(broker.replicas.partition("t", index).is_leader for index in range(MANY))


async def test_a_topic_deleted_meanwhile_gets_no_more_logs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = creation(broker)
        broker.topics.delete([broker.image.topic("t")], says_disabled=True, done=lambda outcomes: None)

        await created
        assert not broker.log_directory.logs
        assert not list(broker.replicas)


async def test_logs_that_a_stop_has_left_out_are_made_at_the_next_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = creation(broker)
    async with running_broker(tmp_path) as broker:
        assert not created.done()
        assert all(broker.replicas.partition("t", index).is_leader for index in range(MANY))


async def test_the_first_who_looks_for_a_coordinator_asks_again_while_it_is_imported(tmp_path: Path) -> None:
    request = FindCoordinatorRequest(key="g")
    async with running_broker(tmp_path, offsets_topic_num_partitions=2) as broker, client_of(broker) as client:
        first = await client.call(request, FindCoordinatorResponse, 3)
        await broker._work_done()
        second = await client.call(request, FindCoordinatorResponse, 3)

        assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (second.error_code, second.node_id) == (ErrorCode.NONE, broker.node_id)
        assert len(broker.image.topics[CONSUMER_OFFSETS].partitions) == 2
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await broker._work_done()
        assert (await client.call(request, FindCoordinatorResponse, 3)).error_code == ErrorCode.NONE
