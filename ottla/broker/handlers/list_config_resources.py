"""ListConfigResources: the names of what can have configs (KIP-1142).

Groups are listed where they have configs of their own, and here none has; nor are there subscriptions to clients'
metrics, the only type that version 0 is about.
"""

from collections.abc import Collection, Iterable

from ottla.broker.config.alter import ConfigResourceType
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.current_leader import nodes_for
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ALL_TYPES_SINCE = 1


def handle(
    metadata: ClusterMetadata, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = (
        tuple(ConfigResourceType) if context.api_version >= ALL_TYPES_SINCE else (ConfigResourceType.CLIENT_METRICS,)
    )
    asked: Collection[int] = request.resource_types or known
    if not set(asked).issubset(known):
        return ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=int(kind))
            for kind in known
            if kind in asked
            for name in _names(kind, metadata, context)
        ]
    )


def _names(kind: ConfigResourceType, metadata: ClusterMetadata, context: RequestContext) -> Iterable[str]:
    image = metadata.image
    if kind is ConfigResourceType.TOPIC:
        return image.topics
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return map(str, nodes_for(context.connection.listener_name, image.live_brokers))
    return ()
