"""Metadata over the wire."""

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.runtime import next_step
from ottla.broker.server.request_context import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.cluster.metadata_file import MetadataFile
from ottla.cluster.topic_changes import TOPICS_PER_TRANSACTION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.wire import client_of, create_topic, running_broker


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", range(14))
async def test_every_version_names_the_broker_and_the_leaders(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)

        response = await client.call(named("t"), MetadataResponse, version)

    host, port = broker.bootstrap.rsplit(":", 1)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(0, host, int(port))]
    topic = response.topics[0]
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 0, [0], [0]),
        (1, 0, [0], [0]),
    ]
    assert response.cluster_id == (broker.cluster_id if version >= 2 else None)
    assert response.controller_id == (0 if version >= 1 else -1)


@pytest.mark.parametrize(
    ("version", "topics", "count"), [(0, [], 2), (1, None, 2), (1, [], 0), (12, None, 2), (13, [], 0)]
)
async def test_all_topics_are_null_or_an_empty_list_in_version_0(
    tmp_path: Path, version: int, topics: list[Any] | None, count: int
) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "a")
        await create_topic(client, "b")

        response = await client.call(MetadataRequest(topics=topics), MetadataResponse, version)

    assert len(response.topics) == count


async def test_an_unknown_topic_comes_into_being_if_the_client_lets_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=3) as broker, client_of(broker) as client:
        refused = await client.call(named("t", allow_auto_topic_creation=False), MetadataResponse, 4)
        created = await client.call(named("t"), MetadataResponse, 4)

    assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (created.topics[0].error_code, len(created.topics[0].partitions)) == (0, 3)


async def test_no_topic_comes_into_being_where_that_is_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics_enable="false") as broker, client_of(broker) as client:
        response = await client.call(named("t"), MetadataResponse, 4)

    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_no_topic_is_called_as_the_log_of_controllers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        request = named("__cluster_metadata")
        responses = [await client.call(request, MetadataResponse, version) for version in (4, 12)]

    assert [each.topics[0].error_code for each in responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@pytest.mark.parametrize("may_create", [True, False])
@pytest.mark.parametrize("name", ["a b", "..", "", "x" * 250])
async def test_an_impossible_name_is_an_invalid_topic(tmp_path: Path, name: str, may_create: bool) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        response = await client.call(named(name, allow_auto_topic_creation=may_create), MetadataResponse, 9)

    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_are_found_by_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        topic_id = broker.image.topics["t"].topic_id
        by_id = MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=topic_id, name=None),
                MetadataRequestTopic(topic_id=b"\1" * 16, name=None),
            ]
        )

        response = await client.call(by_id, MetadataResponse, 12)
        too_early = await client.call(by_id, MetadataResponse, 10)

    assert [(t.error_code, t.name) for t in response.topics] == [(0, "t"), (ErrorCode.UNKNOWN_TOPIC_ID, None)]
    assert [t.error_code for t in too_early.topics] == [ErrorCode.INVALID_REQUEST] * 2


async def test_one_topic_id_has_names_beside_it_ignored(tmp_path: Path) -> None:
    """As Kafka does: nothing is looked up by name then, and nothing created."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        for name in ("t", "u"):
            await create_topic(client, name)
        topic_id = broker.image.topics["t"].topic_id
        asked = MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=topic_id, name="u"),
                MetadataRequestTopic(name="u"),
                MetadataRequestTopic(name="new"),
                MetadataRequestTopic(name=""),
            ],
            allow_auto_topic_creation=True,
        )
        response = await client.call(asked, MetadataResponse, 12)
        too_early = await client.call(asked, MetadataResponse, 11)

        assert [(t.error_code, t.name) for t in response.topics] == [(0, "t")]
        assert [(t.error_code, t.name, t.topic_id) for t in too_early.topics] == [
            (ErrorCode.INVALID_REQUEST, "u", topic_id),
            *((ErrorCode.INVALID_REQUEST, name, bytes(16)) for name in ("u", "new", "")),
        ]
        assert set(broker.image.topics) == {"t", "u"}


async def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

        silent = await client.call(named("t"), MetadataResponse, 8)
        asked = await client.call(
            named("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True),
            MetadataResponse,
            8,
        )

    assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (
        NOT_ASKED,
        NOT_ASKED,
    )
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


async def test_a_kept_answer_is_forgotten_when_the_image_changes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        everything = MetadataRequest(topics=None)
        await create_topic(client, "a")

        before = [await client.call(everything, MetadataResponse, 9) for _ in range(2)]
        await create_topic(client, "b")
        after = await client.call(everything, MetadataResponse, 9)

    assert [[t.name for t in response.topics] for response in before] == [["a"], ["a"]]
    assert [t.name for t in after.topics] == ["a", "b"]


async def test_unknown_topics_are_created_in_few_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(3 * TOPICS_PER_TRANSACTION)]
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        writes: list[int] = []
        write = MetadataFile.write
        monkeypatch.setattr(MetadataFile, "write", lambda file, some: (writes.append(len(some)), write(file, some))[1])
        response = await client.call(named(*names), MetadataResponse, 4)

    assert [(topic.name, topic.error_code) for topic in response.topics] == [(name, 0) for name in names]
    assert len(writes) == 3


async def test_topics_beyond_the_creation_limit_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.metadata.auto_topic_creation.IN_FLIGHT_MAX", 2)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        first = await client.call(named("a", "b", "c"), MetadataResponse, 4)
        again = await client.call(named("a", "b", "c"), MetadataResponse, 4)

    assert [topic.error_code for topic in first.topics] == [0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert [topic.error_code for topic in again.topics] == [0, 0, 0]


async def test_auto_creation_respects_the_partition_limit(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=4000) as broker:
        broker.runtime.spawn(broker.auto_topic_creation.create(["a", "b", "c"]), "test")
        await next_step()

        assert broker.auto_topic_creation._in_flight == {"a", "b"}
