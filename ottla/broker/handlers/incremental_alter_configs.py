"""IncrementalAlterConfigs: single configs are set, removed, or, where they are lists, added to (KIP-339)."""

from collections.abc import Mapping
from functools import partial

from ottla.broker.config.alter import Alteration, ConfigResourceType, altered
from ottla.broker.config.definitions import ALL_TOPIC_OPTIONS, SERVER_OPTIONS
from ottla.broker.config.options import Option
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.topic import shown_value
from ottla.broker.handlers.config_resources import ALL_BROKERS, alter_resources
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.broker.upkeep.log_levels import BrokerLoggers
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    config_admin: ConfigAdminManager,
    metadata: ClusterMetadata,
    loggers: BrokerLoggers,
    runtime: Runtime,
    context: RequestContext,  # noqa: ARG001
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    new_configs = partial(_new_configs, metadata, runtime)
    results = await alter_resources(
        config_admin,
        runtime,
        request,
        new_configs,
        AlterConfigsResourceResponse,
        alter_loggers=partial(_alter_loggers, loggers),
    )
    return IncrementalAlterConfigsResponse(responses=results)


def _alter_loggers(loggers: BrokerLoggers, resource: AlterConfigsResource, validate_only: bool) -> None:
    loggers.alter(_alterations(resource), validate_only=validate_only)


def _alterations(resource: AlterConfigsResource) -> list[Alteration]:
    return [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]


def _new_configs(metadata: ClusterMetadata, runtime: Runtime, resource: AlterConfigsResource) -> dict[str, str]:
    alterations = _alterations(resource)
    if resource.resource_type == ConfigResourceType.TOPIC:
        return _of_topic(metadata, runtime, resource.resource_name, alterations)
    config = runtime.config
    current = config.dynamic(of_all_brokers=resource.resource_name == ALL_BROKERS)
    return altered(current, alterations, SERVER_OPTIONS, partial(_broker_value, config, current))


def _broker_value(config: ServerConfig, current: Mapping[str, str], option: Option[object]) -> str | None:
    return current[option.name] if option.name in current else option.show(config.value_of(option))


def _of_topic(metadata: ClusterMetadata, runtime: Runtime, name: str, alterations: list[Alteration]) -> dict[str, str]:
    topic = metadata.image.topic(name)
    current: Mapping[str, str] = {} if topic is None else topic.configs
    return altered(current, alterations, ALL_TOPIC_OPTIONS, partial(_topic_value, runtime.config, current))


def _topic_value(config: ServerConfig, current: Mapping[str, str], option: Option[object]) -> str | None:
    return shown_value(option, current, config)
