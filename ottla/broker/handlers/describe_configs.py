"""DescribeConfigs: what topics and brokers are configured with, and where each value comes from.

A few bytes ask for some forty configs of a topic, or two hundred of a broker: they are made a few resources at a time,
and once for all topics that have the same configs of their own.
"""

from collections.abc import Hashable, Iterable
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
from ottla.broker.runtime import Runtime, in_slices
from ottla.broker.server.listeners import Listeners
from ottla.broker.server.request_context import RequestContext, check_repetitions
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

# One takes up to a millisecond.
RESOURCES_PER_STEP = 4


class _Parts(NamedTuple):
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
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse | None:
    resources = request.resources
    check_repetitions("resource", ((each.resource_type, each.resource_name) for each in resources), len(resources))
    description = _Description(_Parts(runtime, metadata, listeners, log_directory, loggers), request)
    if len(resources) > RESOURCES_PER_STEP:
        context.respond_later(runtime, _long_response(description, resources))
        return None
    return DescribeConfigsResponse(results=list(map(description.result, resources)))


async def _long_response(
    description: "_Description", resources: list[DescribeConfigsResource]
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=await in_slices(description.result, resources, at_once=RESOURCES_PER_STEP))


class _Description:
    """Of the resources of one request."""

    def __init__(self, parts: _Parts, request: DescribeConfigsRequest) -> None:
        self._parts = parts
        self._request = request
        # By the configs of topics and the keys that are asked for. Results are only written.
        self._of_topics: dict[Hashable, list[DescribeConfigsResourceResult]] = {}

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        # All of them for null, and in Kafka for an empty list too, which some clients send.
        keys = frozenset(resource.configuration_keys or ())
        try:
            if check_resource_type(resource.resource_type) is ConfigResourceType.TOPIC:
                result.configs = self._configs_of_topic(resource.resource_name, keys)
            else:
                result.configs = self._configs(_entries(self._parts, resource), keys)
        except KafkaError as error:
            result.error_code = int(error.code)
            result.error_message = str(error)
        return result

    def _configs_of_topic(self, name: str, keys: frozenset[str]) -> list[DescribeConfigsResourceResult]:
        check_topic_name(name)
        topic = self._parts.metadata.image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic '{name}' does not exist")
        own = frozenset(topic.configs.items()), keys
        known = self._of_topics.get(own)
        if known is None:
            known = self._of_topics[own] = self._configs(topic_entries(topic.configs, self._parts.runtime.config), keys)
        return known

    def _configs(self, entries: Iterable[ConfigEntry], keys: frozenset[str]) -> list[DescribeConfigsResourceResult]:
        return [_config(entry, self._request) for entry in entries if not keys or entry.name in keys]


def _entries(parts: _Parts, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    """Of what is no topic."""
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
