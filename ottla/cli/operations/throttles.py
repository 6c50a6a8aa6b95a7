"""Throttles of a reassignment, set and removed as `kafka-reassign-partitions` does (KIP-73).

The brokers that send or get replicas have a rate, of bytes per second for each direction; the topics say for which
replicas it holds: as leaders the present ones, as followers those that are added.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ottla.cli.client import Client, TopicPartition
from ottla.cli.failures import check
from ottla.cli.operations.partitions import list_moves, replicas_of
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

Targets = Mapping[TopicPartition, Sequence[int]]
Configs = dict[str, str | None]


async def throttle(client: Client, targets: Targets, bytes_per_s: int) -> None:
    """To be called before the partitions begin to move to their targets. Raises ClientError."""
    moves = await list_moves(client, targets)
    # Those that a move under way adds are no sources.
    sources = {
        key: tuple(node_id for node_id in replicas if key not in moves or node_id not in moves[key].adding)
        for key, replicas in (await replicas_of(client, targets)).items()
    }
    for node_id in sorted({*chain(*sources.values(), *targets.values())}):
        await _alter_broker(client, node_id, dict.fromkeys(RATES, str(bytes_per_s)))
    for topic in sorted({name for name, _ in targets}):
        await _alter_topic(client, topic, _replicas(topic, targets, sources))


def _replicas(topic: str, targets: Targets, sources: Targets) -> Configs:
    leaders: list[str] = []
    followers: list[str] = []
    for (name, index), target in sorted(targets.items()):
        if name == topic:
            present = sources.get((name, index), ())
            leaders += [f"{index}:{node_id}" for node_id in present]
            followers += [f"{index}:{node_id}" for node_id in target if node_id not in present]
    return {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(followers)}


async def remove_throttles(client: Client, topics: Iterable[str]) -> bool:
    """Of all brokers and of these topics, unless a partition is still being moved. Returns whether they are removed."""
    if await list_moves(client):
        return False
    await client.metadata([])
    for node_id in sorted(client.brokers):
        await _alter_broker(client, node_id, dict.fromkeys(RATES))
    for topic in sorted(set(topics)):
        await _alter_topic(client, topic, dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS)))
    return True


async def _alter_broker(client: Client, node_id: int, configs: Configs) -> None:
    """At the broker itself: others refuse it."""
    address = client.brokers.get(node_id)
    if address is not None:
        request = _request(BROKER_RESOURCE, str(node_id), configs)
        _check(f"broker {node_id}", await client.ask_at(address, request, IncrementalAlterConfigsResponse))


async def _alter_topic(client: Client, topic: str, configs: Configs) -> None:
    request = _request(TOPIC_RESOURCE, topic, configs)
    _check(f"topic {topic}", await client.ask_controller(request, IncrementalAlterConfigsResponse))


def _request(kind: int, name: str, configs: Configs) -> IncrementalAlterConfigsRequest:
    """None takes a config back."""
    altered = [
        AlterableConfig(name=config, config_operation=DELETE if value is None else SET, value=value)
        for config, value in configs.items()
    ]
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)]
    )


def _check(what: str, response: IncrementalAlterConfigsResponse) -> None:
    for result in response.responses:
        check(f"cannot throttle {what}", result.error_code, result.error_message)
