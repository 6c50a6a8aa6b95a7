"""IncrementalAlterConfigs: single configs are set, removed, or, where they are lists, added to (KIP-339)."""

from collections.abc import Mapping

from ottla.broker.config.alter import Alteration, altered
from ottla.broker.config.definitions import SERVER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.config.options import Option
from ottla.broker.config.topic import shown_value
from ottla.broker.handlers.config_resources import ALL_BROKERS, Answers, ResourceType, alter_resources
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.topic_commands import TopicService
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ANSWERS = Answers(IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)


def handle(
    topics: TopicService,
    metadata: ClusterMetadata,
    runtime: Runtime,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse | None:
    def new_configs(resource: AlterConfigsResource) -> dict[str, str]:
        return _new_configs(metadata, runtime, resource)

    return alter_resources(topics, runtime.node_id, context, request, new_configs, ANSWERS)


def _new_configs(metadata: ClusterMetadata, runtime: Runtime, resource: AlterConfigsResource) -> dict[str, str]:
    alterations = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
    if resource.resource_type == ResourceType.TOPIC:
        return _of_topic(metadata, runtime, resource.resource_name, alterations)
    config = runtime.config
    current = config.dynamic(of_all_brokers=resource.resource_name == ALL_BROKERS)

    def in_effect(option: Option[object]) -> str | None:
        return current.get(option.name, option.show(config.value_of(option)))

    return altered(current, alterations, SERVER_OPTIONS, in_effect)


def _of_topic(metadata: ClusterMetadata, runtime: Runtime, name: str, alterations: list[Alteration]) -> dict[str, str]:
    topic = metadata.image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
    current: Mapping[str, str] = topic.configs

    def in_effect(option: Option[object]) -> str | None:
        return shown_value(option, current, runtime.config)

    return altered(current, alterations, TOPIC_OPTIONS, in_effect)
