"""What `ottla topics` does, as functions of a client."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.client import EARLIEST, LATEST, Client
from ottla.cli.failures import ClientError, Refused, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs as whole
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.metadata import MetadataResponseTopic

TOPIC_RESOURCE = 2
TOPIC_CONFIG_SOURCE = 1
SET, DELETE = 0, 1
# CreateTopics takes "as the broker is configured" for an answer since KIP-464.
BROKER_DEFAULT = -1
BROKER_DEFAULT_SINCE_VERSION = 4
# Kafka 4 answers that a topic does not exist while it creates it, which takes a moment. A broker that does not create
# topics gives the same answer every time; it is final after about a second and a half.
UNKNOWN_TOPIC_ANSWERS_MAX = 5


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    partitions: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    is_internal: bool
    replication_factor: int
    configs: Mapping[str, str | None]
    partitions: tuple[PartitionDescription, ...]


async def list_topics(client: Client) -> list[TopicListing]:
    topics = (await client.metadata(None)).topics
    return sorted((_listing(topic) for topic in topics), key=lambda topic: topic.name)


def _listing(topic: MetadataResponseTopic) -> TopicListing:
    return TopicListing(str(topic.name), len(topic.partitions), _replication_factor(topic), topic.is_internal)


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return len(topic.partitions[0].replica_nodes) if topic.partitions else 0


async def describe_topic(client: Client, name: str) -> TopicDescription:
    """Raises Refused when the topic does not exist. Offsets of partitions without a leader are None."""
    topic = await existing_topic(client, name)
    led = [(name, row.partition_index) for row in topic.partitions if row.leader_id in client.brokers]
    starts = await client.list_offsets(led, EARLIEST)
    ends = await client.list_offsets(led, LATEST)
    partitions = (
        PartitionDescription(
            partition=row.partition_index,
            leader=row.leader_id if row.leader_id >= 0 else None,
            leader_epoch=row.leader_epoch if row.leader_epoch >= 0 else None,
            replicas=tuple(row.replica_nodes),
            isr=tuple(row.isr_nodes),
            log_start_offset=starts.get((name, row.partition_index)),
            log_end_offset=ends.get((name, row.partition_index)),
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    )
    return TopicDescription(
        name=name,
        is_internal=topic.is_internal,
        replication_factor=_replication_factor(topic),
        configs=await topic_configs(client, name),
        partitions=tuple(partitions),
    )


async def existing_topic(client: Client, name: str, *, create_missing: bool = False) -> MetadataResponseTopic:
    """The topic's metadata, once it has leaders; raises Refused when it does not exist."""
    answers_left = UNKNOWN_TOPIC_ANSWERS_MAX if create_missing else 0

    async def attempt() -> MetadataResponseTopic:
        nonlocal answers_left
        topic = (await client.metadata([name], create_missing=create_missing)).topics[0]
        error_code = topic.error_code
        if error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and answers_left:
            answers_left -= 1
            error_code = ErrorCode.LEADER_NOT_AVAILABLE
        check(f"topic {name}", error_code)
        return topic

    return await client.retrying(attempt)


async def reachable_partitions(client: Client, name: str, *, create_missing: bool = False) -> list[int]:
    """The topic's partitions, once their leaders have answered."""
    topic = await existing_topic(client, name, create_missing=create_missing)
    partitions = sorted(row.partition_index for row in topic.partitions)
    await client.list_offsets([(name, index) for index in partitions], LATEST)
    return partitions


async def topic_configs(client: Client, name: str) -> dict[str, str | None]:
    """The configs that were set for this topic; those that hold its broker's values are left out."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
    response = await client.ask_any(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    result = response.results[0]
    check(f"cannot read the configs of topic {name}", result.error_code, result.error_message)
    return {
        config.name: config.value
        for config in sorted(result.configs, key=lambda config: config.name)
        if config.config_source == TOPIC_CONFIG_SOURCE
    }


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    assignment: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """None for a number means the broker's own default. With an `assignment`, replicas by partition, it says both."""

    async def attempt() -> None:
        version = await client.version_at_controller(CreateTopicsRequest)
        knows_default = version is None or version >= BROKER_DEFAULT_SINCE_VERSION
        default = BROKER_DEFAULT if knows_default or assignment else 1
        topic = CreatableTopic(
            name=name,
            num_partitions=default if partitions is None else partitions,
            replication_factor=default if replication_factor is None else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in sorted((assignment or {}).items())
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=client.timeout_ms)
        result = (await client.ask_controller(request, CreateTopicsResponse)).topics[0]
        check(f"cannot create topic {name}", result.error_code, result.error_message)

    await client.retrying(attempt)


async def delete_topic(client: Client, name: str) -> None:
    async def attempt() -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=client.timeout_ms
        )
        result = (await client.ask_controller(request, DeleteTopicsResponse)).responses[0]
        check(f"cannot delete topic {name}", result.error_code, result.error_message)

    await client.retrying(attempt)


async def add_partitions(client: Client, name: str, count: int) -> None:
    """Make it `count` partitions in all."""

    async def attempt() -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=client.timeout_ms)
        result = (await client.ask_controller(request, CreatePartitionsResponse)).results[0]
        check(f"cannot add partitions to topic {name}", result.error_code, result.error_message)

    await client.retrying(attempt)


async def alter_configs(client: Client, name: str, *, set_to: Mapping[str, str], unset: Sequence[str]) -> None:
    """Change some configs of a topic and leave the others as they are."""

    async def attempt() -> None:
        version = await client.version_at_controller(incremental.IncrementalAlterConfigsRequest)
        if version is None:
            response = await _replace_configs(client, name, set_to=set_to, unset=unset)
        else:
            response = await _change_configs(client, name, set_to=set_to, unset=unset)
        check(f"cannot alter topic {name}", response.error_code, response.error_message)

    await client.retrying(attempt)


async def _change_configs(client: Client, name: str, *, set_to: Mapping[str, str], unset: Iterable[str]) -> Any:
    changes = [incremental.AlterableConfig(name=key, config_operation=SET, value=set_to[key]) for key in set_to]
    changes += [incremental.AlterableConfig(name=key, config_operation=DELETE, value=None) for key in unset]
    resource = incremental.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    return (await client.ask_controller(request, incremental.IncrementalAlterConfigsResponse)).responses[0]


async def _replace_configs(client: Client, name: str, *, set_to: Mapping[str, str], unset: Iterable[str]) -> Any:
    """Brokers before Kafka 2.3 replace all configs: those that are set already must be sent again."""
    wanted = {**await topic_configs(client, name), **set_to}
    for key in unset:
        wanted.pop(key, None)
    configs = [whole.AlterableConfig(name=key, value=value) for key, value in wanted.items()]
    resource = whole.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = whole.AlterConfigsRequest(resources=[resource])
    return (await client.ask_controller(request, whole.AlterConfigsResponse)).responses[0]


def exists_already(error: ClientError) -> bool:
    return isinstance(error, Refused) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
