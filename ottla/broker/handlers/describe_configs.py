"""DescribeConfigs: what topics and brokers are configured with, and where each value comes from."""

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from ottla.broker.config.alter import ConfigResourceType
from ottla.broker.config.describe import (
    BrokerIdentity,
    ConfigEntry,
    broker_entries,
    cluster_default_entries,
    logger_entries,
    testing_entries,
    topic_entries,
)
from ottla.broker.config.options import Kind
from ottla.broker.handlers.config_resources import (
    ALL_BROKERS,
    WITHOUT_CONFIGS,
    check_broker_name,
    check_resource_type,
)
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.broker.server.listeners import Listeners
from ottla.broker.server.request_context import RequestContext
from ottla.broker.upkeep.log_levels import BrokerLoggers
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.storage.log_directory import LogDirectory


class _Described(NamedTuple):
    """What resources are described from."""

    runtime: Runtime
    metadata: ClusterMetadata
    listeners: Listeners
    log_directory: LogDirectory
    loggers: BrokerLoggers


def handle(
    runtime: Runtime,
    metadata: ClusterMetadata,
    listeners: Listeners,
    log_directory: LogDirectory,
    loggers: BrokerLoggers,
    context: RequestContext,  # noqa: ARG001
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    parts = _Described(runtime, metadata, listeners, log_directory, loggers)
    return DescribeConfigsResponse(results=[_result(parts, request, resource) for resource in request.resources])


def _result(
    parts: _Described, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = _entries(parts, resource)
    except KafkaError as error:
        result.error_code = int(error.code)
        result.error_message = str(error)
        return result
    # All of them for null, and in Kafka for an empty list too, which some clients send.
    keys = resource.configuration_keys
    result.configs = [_config(entry, request) for entry in entries if not keys or entry.name in keys]
    return result


def _entries(parts: _Described, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    config, node_id = parts.runtime.config, parts.runtime.node_id
    name = resource.resource_name
    kind = check_resource_type(resource.resource_type)
    if kind is ConfigResourceType.BROKER_LOGGER:
        check_broker_name(name, node_id, may_be_all=False)
        return logger_entries(parts.loggers.levels())
    if kind in WITHOUT_CONFIGS:
        if not name:
            raise InvalidRequest("the resource has no name")
        return ()
    if kind is ConfigResourceType.TOPIC:
        check_topic_name(name)
        topic = parts.metadata.image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
        return topic_entries(topic.configs, config)
    check_broker_name(name, node_id)
    if name == ALL_BROKERS:
        return cluster_default_entries(config)
    listeners = parts.listeners
    identity = BrokerIdentity(node_id, listeners.opened, listeners.endpoints, str(parts.log_directory.path))
    return chain(identity.entries(), testing_entries(config), broker_entries(config))


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.kind is Kind.PASSWORD,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in synonyms
        ],
        config_type=int(entry.kind),
        documentation=entry.documentation if request.include_documentation else None,
    )
