"""DescribeCluster: the brokers and the controller."""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.current_leader import nodes_for
from ottla.broker.server.request_context import CLUSTER_OPERATIONS, NOT_ASKED, RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(
    metadata: ClusterMetadata, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = metadata.image
    if request.endpoint_type != BROKERS:
        return _refusal(request.endpoint_type)
    asked = request.include_cluster_authorized_operations
    live = image.live_brokers
    included = image.brokers if request.include_fenced_brokers else live
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=each.node_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=each.node_id not in live,
            )
            for each in nodes_for(context.connection.listener_name, included).values()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def _refusal(endpoint_type: int) -> DescribeClusterResponse:
    """Clients that look for the controllers' own endpoints learn that this is a broker's (KIP-919)."""
    known = endpoint_type == CONTROLLERS
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"this is an endpoint of brokers (type {BROKERS}), not of type {endpoint_type}",
        endpoint_type=BROKERS,
    )
