"""What a request names again and again is not answered as often: a name is short, what is said about it may be long."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import runtime
from ottla.broker.handlers import describe_configs as handler
from ottla.broker.server.request_context import REPETITIONS_MAX
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.broker.asking import running
from tests.broker.requests import commit, describe_configs, topic

TOPIC = 2
TOPICS = 30
RETENTION = "retention.ms"
Named = Callable[[int], Any]
"""How often to the request."""


def partitions_of_group(times: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0] * times)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="crew", topics=topics)])


def partitions_of_topics(times: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0]) for _ in range(times)]
    return OffsetFetchRequest(group_id="crew", topics=topics)


REQUESTS: dict[str, tuple[Named, int]] = {
    "configs": (lambda times: describe_configs(TOPIC, *["orders"] * times), 4),
    "groups": (lambda times: DescribeGroupsRequest(groups=["crew"] * times), 5),
    "transactions": (lambda times: DescribeTransactionsRequest(transactional_ids=["pay"] * times), 0),
    "producers": (
        lambda times: DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0] * times)]),
        0,
    ),
    "offsets of groups": (
        lambda times: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="crew", topics=None)] * times),
        8,
    ),
    "offsets": (partitions_of_group, 8),
    "offsets before v8": (partitions_of_topics, 7),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_is_named_too_often_is_refused(tmp_path: Path, name: str) -> None:
    request_of, version = REQUESTS[name]
    async with running(tmp_path) as broker:
        await broker.ask(CreateTopicsRequest(topics=[topic("orders")], timeout_ms=5000), 7)
        for _ in range(100):
            await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["crew"]), 4)
            if not (await broker.ask(commit("crew", "orders"), 8)).topics[0].partitions[0].error_code:
                break
        few = request_of(REPETITIONS_MAX)
        assert answered(await broker.ask(few, version)) == REPETITIONS_MAX
        try:
            many = answered(await broker.ask(request_of(REPETITIONS_MAX + 1), version))
        except EOFError:
            # The response has no place for an error.
            many = 0
    assert many == 0


def answered(response: Any) -> int:
    """How often it says something about what was named."""
    if isinstance(response, OffsetFetchResponse):
        topics = [*response.topics, *(each for group in response.groups for each in group.topics)]
        return sum(len(each.partitions) for each in topics) or len(response.groups)
    if isinstance(response, DescribeProducersResponse):
        return sum(len(each.partitions) for each in response.topics)
    if isinstance(response, DescribeConfigsResponse):
        return len(response.results)
    return len(response.groups if isinstance(response, DescribeGroupsResponse) else response.transaction_states)


async def test_configs_of_many_topics_are_described_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands, they would hold up all clients for seconds. Those of topics with the same configs are made once."""
    next_step, steps = runtime.next_step, []

    def counted() -> Any:
        steps.append(1)
        return next_step()

    names = [f"t{number}" for number in range(TOPICS)]
    async with running(tmp_path) as broker:
        made = [topic(name, configs={"retention.ms": "5"} if name == "t7" else None) for name in names]
        await broker.ask(CreateTopicsRequest(topics=made, timeout_ms=5000), 7)
        monkeypatch.setattr(runtime, "next_step", counted)
        answer = await broker.ask(describe_configs(TOPIC, *names, "nowhere"), 4)

    retention = {
        each.resource_name: one.value for each in answer.results for one in each.configs if one.name == RETENTION
    }
    assert [each.resource_name for each in answer.results] == [*names, "nowhere"]
    assert retention == dict.fromkeys(names, "604800000") | {"t7": "5"}
    assert answer.results[-1].error_code == 3
    assert len(steps) == TOPICS // handler.RESOURCES_PER_STEP
