"""InitProducerId: an identity for an idempotent or transactional producer (§13.3).

v2 is flexible, v3 gives the producer's earlier id and epoch back, v4 knows PRODUCER_FENCED. Only a transactional id has
a coordinator; any broker gives a producer id to a producer without one.
"""

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinator_loaders import TransactionCoordinatorLoader
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, KafkaError, producer_error
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.coordinator.transactions.events import ProducerResult

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
_FENCED_SINCE = 4


def handle(
    producer_ids: ProducerIds,
    transaction_loader: TransactionCoordinatorLoader,
    runtime: Runtime,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse | None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        context.respond_later(runtime, _idempotent(producer_ids))
        return None
    return _transactional(transaction_loader, context, request, request.transactional_id)


async def _idempotent(producer_ids: ProducerIds) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await producer_ids.take(), producer_epoch=0)
    except KafkaError as error:
        return _error(error.code)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_epoch=NO_PRODUCER_EPOCH)


def _transactional(
    transaction_loader: TransactionCoordinatorLoader,
    context: RequestContext,
    request: InitProducerIdRequest,
    transactional_id: str,
) -> InitProducerIdResponse | None:
    # Imported here: idempotent producers need none of it.
    from ottla.coordinator.transactions.events import InitializeProducer

    transactions = transaction_loader.coordinator
    event = InitializeProducer(
        transactions.new_token(),
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    return transactions.ask(context, event, partial(_response, knows_fenced=context.api_version >= _FENCED_SINCE))


def _response(result: "ProducerResult", *, knows_fenced: bool) -> InitProducerIdResponse:
    code = producer_error(result.error, knows_fenced=knows_fenced)
    return InitProducerIdResponse(
        error_code=int(code), producer_id=result.producer_id, producer_epoch=result.producer_epoch
    )
