"""A request of which very much is denied: decided in one step of the loop, and refused in others. And responses about
everything, of which much is left out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from ottla.broker.authorization.access import DECISIONS_MAX, Access
from ottla.broker.authorization.decision_log import REFUSALS_PER_SECOND
from ottla.broker.loop_wheel import SystemClock
from ottla.protocol.messages import alter_configs, describe_producers, incremental_alter_configs
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.authorization.world import PREFIXED, TOPIC, Secured, acl, secured
from tests.broker.requests import topic
from tests.broker.wire import RecordingLog, batch

DENIED = 29
ALLOWED = "orders"
NAMES = [f"denied-{number}" for number in range(DECISIONS_MAX + 200)]
TYPE_OF_TOPICS = 2
NOT_ASKED, READ_AND_DESCRIBE = -(2**31), 1 << 3 | 1 << 8
Results = Callable[[Any], list[tuple[str, int]]]


class Asked(NamedTuple):
    request: Callable[[list[str]], Any]
    version: int
    results: Results
    """(name, error code) of each result."""


def of_topics(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def of_partitions(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, each.error_code) for topic in response.topics for each in topic.partitions]


def of_records(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, each.error_code) for topic in response.responses for each in topic.partition_responses]


def of_configs(field: str) -> Results:
    return lambda response: [(each.resource_name, each.error_code) for each in getattr(response, field)]


def produce(names: list[str]) -> Any:
    data = [PartitionProduceData(index=0, records=batch(b"x"))]
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=data) for name in names]
    )


def list_offsets(names: list[str]) -> Any:
    latest = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=latest) for name in names])


def delete_records(names: list[str]) -> Any:
    none = [DeleteRecordsPartition(partition_index=0, offset=0)]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=none) for name in names], timeout_ms=99
    )


def describe_all_producers(names: list[str]) -> Any:
    asked = [describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in names]
    return describe_producers.DescribeProducersRequest(topics=asked)


def create(names: list[str]) -> Any:
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=new, validate_only=True, timeout_ms=1000)


def describe(names: list[str]) -> Any:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TYPE_OF_TOPICS, resource_name=name) for name in names]
    )


def alter(messages: Any, name: str) -> Callable[[list[str]], Any]:
    def request(names: list[str]) -> Any:
        resources = [messages.AlterConfigsResource(resource_type=TYPE_OF_TOPICS, resource_name=each) for each in names]
        return getattr(messages, name)(resources=resources, validate_only=True)

    return request


APIS = {
    "Produce": Asked(produce, 9, of_records),
    "ListOffsets": Asked(list_offsets, 5, of_partitions),
    "DeleteRecords": Asked(delete_records, 2, of_partitions),
    "DescribeProducers": Asked(describe_all_producers, 0, of_partitions),
    "CreateTopics": Asked(create, 7, of_topics),
    "DescribeConfigs": Asked(describe, 4, of_configs("results")),
    "AlterConfigs": Asked(alter(alter_configs, "AlterConfigsRequest"), 2, of_configs("responses")),
    "IncrementalAlterConfigs": Asked(
        alter(incremental_alter_configs, "IncrementalAlterConfigsRequest"), 1, of_configs("responses")
    ),
}


@pytest_asyncio.fixture
async def world(tmp_path: Path, log: RecordingLog) -> AsyncIterator[Secured]:
    async with secured(tmp_path, log=log) as made:
        admin = await made.client("admin")
        await admin.ask(CreateTopicsRequest(topics=[topic(ALLOWED)], timeout_ms=5000), 7)
        await made.set_acls([acl("ALL", TOPIC, ALLOWED)])
        yield made


class StepsOf:
    """In which steps of the loop methods of `Access` were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
        self.steps: dict[str, list[int]] = {method: [] for method in methods}
        self._step, run = 0, asyncio.Handle._run

        def counting(handle: asyncio.Handle) -> None:
            self._step += 1
            run(handle)

        monkeypatch.setattr(asyncio.Handle, "_run", counting)
        for method in methods:
            monkeypatch.setattr(Access, method, self._noted(method, getattr(Access, method)))

    def _noted(self, method: str, called: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            self.steps[method].append(self._step)
            return called(*arguments, **named)

        return noted


@pytest.mark.parametrize("api", APIS)
async def test_refusals_are_made_in_another_step_than_decisions(
    world: Secured, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = APIS[api]
    alice = await world.client("alice")
    calls = StepsOf(monkeypatch, "denied_names", "amending")

    # What is appended is written before it is answered, with all refusals.
    allowed = [] if api == "Produce" else [ALLOWED]
    response = await alice.ask(asked.request([*allowed, *NAMES]), asked.version)

    codes = dict(asked.results(response))
    assert len(asked.results(response)) == len(codes) == len(NAMES) + len(allowed)
    assert all(codes.pop(name) != DENIED for name in allowed)
    assert set(codes) == set(NAMES)
    assert set(codes.values()) == {DENIED}
    decided, refused = calls.steps["denied_names"][0], calls.steps["amending"]
    assert refused
    assert decided < min(refused)


async def test_all_refusals_of_a_request_are_counted_in_the_log(
    world: Secured, log: RecordingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await world.client("alice")

    await alice.ask(list_offsets(NAMES), 5)
    lines = [fields for event, fields in log.events if event == "authorization"]
    assert [line["resource"] for line in lines] == [f"TOPIC:LITERAL:{name}" for name in NAMES[:REFUSALS_PER_SECOND]]

    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + 1000)
    await alice.ask(list_offsets(NAMES[:1]), 5)
    (left_out,) = [fields["denied"] for event, fields in log.events if event == "authorizations not logged"]
    assert left_out == len(NAMES) - REFUSALS_PER_SECOND


@pytest.mark.parametrize("wants_operations", [False, True])
async def test_what_may_be_seen_of_all_topics_is_decided_in_steps(
    world: Secured, wants_operations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of a few bytes asks for that, whatever its sender may do."""
    admin, alice = await world.client("admin"), await world.client("alice")
    count, at_once = 300, 16
    await admin.ask(CreateTopicsRequest(topics=[topic(f"t-{n}") for n in range(count)], timeout_ms=5000), 7)
    await world.set_acls([acl("READ", TOPIC, "t-2", pattern_type=PREFIXED)])
    monkeypatch.setattr("ottla.broker.authorization.access.DECISIONS_PER_STEP", at_once)
    monkeypatch.setattr("ottla.broker.authorization.topic_guards.TOPICS_PER_STEP", 2)
    calls = StepsOf(monkeypatch, "allows")
    asked = MetadataRequest(topics=None, include_topic_authorized_operations=wants_operations)
    shown = (await alice.ask(asked, 12)).topics

    assert len(shown) == 111
    assert {each.topic_authorized_operations for each in shown} == {
        READ_AND_DESCRIBE if wants_operations else NOT_ASKED
    }
    assert len(calls.steps["allows"]) == count + 1 + (8 * len(shown) if wants_operations else 0)
    # In one step the first part ends and the second begins.
    assert max(Counter(calls.steps["allows"]).values()) <= 2 * at_once
