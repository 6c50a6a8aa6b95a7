"""InitProducerId: an identity for an idempotent producer.

v2 is flexible, v3 gives the producer's earlier id and epoch back, v4 knows PRODUCER_FENCED. A transactional id is
refused with the one code that every client takes as final; `docs/decisions/0005-transactional-ids.md` says why.
"""

from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, error_for
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle(
    producer_ids: ProducerIds,
    context: RequestContext,  # noqa: ARG001
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    try:
        _check(producer_ids, request)
        producer_id = await producer_ids.take()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=int(error.code), producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(producer_ids: ProducerIds, request: InitProducerIdRequest) -> None:
    if request.transactional_id == "":
        raise InvalidRequest("the transactional id is empty")
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequest("a producer id and an epoch come together")
    if request.transactional_id is not None:
        producer_ids.transaction_refused(request.transactional_id)
        raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions")
