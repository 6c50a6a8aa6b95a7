"""UnregisterBroker: a broker that will not come back is forgotten (KIP-631)."""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.registration import unregister
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    metadata: ClusterMetadata,
    context: RequestContext,  # noqa: ARG001
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse:
    await metadata.commit_planned(lambda: unregister(metadata.image, request.broker_id), not_committed)
    return UnregisterBrokerResponse()
