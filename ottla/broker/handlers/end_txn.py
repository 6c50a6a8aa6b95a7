"""EndTxn: a producer commits or aborts its transaction (§13.5).

v2 knows PRODUCER_FENCED, v3 is flexible, v4 knows another error, v5 raises the producer's epoch (KIP-890).
"""

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.transactions.events import EndTransaction, ProducerResult
from ottla.protocol.errors import producer_error
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
"""Of AddPartitionsToTxn and AddOffsetsToTxn too."""
_RAISES_EPOCH_SINCE = 5


def handle(
    transactions: TransactionCoordinator, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | None:
    version = context.api_version
    event = EndTransaction(
        transactions.new_token(),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        raises_epoch=version >= _RAISES_EPOCH_SINCE,
    )
    return transactions.ask(context, event, lambda result: _response(result, version))


def _response(result: ProducerResult, version: int) -> EndTxnResponse:
    code = producer_error(result.error, knows_fenced=version >= FENCED_SINCE)
    return EndTxnResponse(error_code=int(code), producer_id=result.producer_id, producer_epoch=result.producer_epoch)
