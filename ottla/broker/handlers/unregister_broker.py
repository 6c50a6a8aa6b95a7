"""UnregisterBroker: a broker that will not come back is forgotten (KIP-631)."""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.request_context import DeferredResponse, RequestContext
from ottla.cluster.registration import unregister
from ottla.cluster.store import CommitResult, Committed, Conflict, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

# The broker may register again so many times during the attempts.
TRIES_MAX = 10


def handle(
    metadata: ClusterMetadata, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | None:
    deferred = DeferredResponse(context)
    _Unregistration(metadata, request.broker_id, deferred).attempt(TRIES_MAX)
    return deferred.result_or_park()


class _Unregistration:
    def __init__(self, metadata: ClusterMetadata, node_id: int, deferred: DeferredResponse) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._deferred = deferred

    def attempt(self, tries_left: int) -> None:
        image = self._metadata.image
        try:
            transaction = unregister(image, self._node_id)
        except KafkaError as error:
            self._give(error)
            return

        def answered(result: CommitResult) -> None:
            if isinstance(result, Committed):
                self._metadata.when_applied(result.revision, lambda: self._give(None))
            elif isinstance(result, Conflict) and tries_left > 1:
                self._metadata.when_applied(image.revision + 1, lambda: self.attempt(tries_left - 1))
            else:
                self._give(_refusal(result))

        self._metadata.commit(transaction, answered)

    def _give(self, error: KafkaError | None) -> None:
        if error is None:
            self._deferred.complete(UnregisterBrokerResponse())
        else:
            self._deferred.complete(UnregisterBrokerResponse(error_code=int(error.code), error_message=str(error)))


def _refusal(result: CommitResult) -> KafkaError:
    why = f"the metadata store does not answer: {result.reason}" if isinstance(result, Unavailable) else "try again"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, why)
