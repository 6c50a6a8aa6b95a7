"""UnregisterBroker: a broker that will not come back is forgotten (KIP-631)."""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.registration import unregister
from ottla.cluster.store import CommitResult, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    metadata: ClusterMetadata,
    context: RequestContext,  # noqa: ARG001
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse:
    await metadata.commit_planned(lambda: unregister(metadata.image, request.broker_id), _refusal)
    return UnregisterBrokerResponse()


def _refusal(result: CommitResult) -> KafkaError:
    why = f"the metadata store does not answer: {result.reason}" if isinstance(result, Unavailable) else "try again"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, why)
