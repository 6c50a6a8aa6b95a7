"""AlterClientQuotas: users, client ids and addresses get quotas, or lose them (KIP-546, §65.1)."""

from ottla.broker.metadata.client_quotas import ClientQuotaAdminManager
from ottla.broker.runtime import in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.client_quotas import QuotaAlteration, QuotaOp
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityResult,
    EntryData,
    EntryResult,
)


async def handle(
    client_quotas: ClientQuotaAdminManager,
    context: RequestContext,  # noqa: ARG001
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse:
    alterations = await in_slices(_alteration, request.entries)
    outcomes: list[KafkaError | None]
    try:
        outcomes = await client_quotas.alter(alterations, validate_only=request.validate_only)
    except KafkaError as error:
        outcomes = [error] * len(alterations)
    # An entity that is named twice is answered once.
    results = {frozenset(each.named): (each, error) for each, error in zip(alterations, outcomes, strict=True)}
    return AlterClientQuotasResponse(entries=await in_slices(_result, results.values()))


def _alteration(entry: EntryData) -> QuotaAlteration:
    return QuotaAlteration(
        tuple((each.entity_type, each.entity_name) for each in entry.entity),
        tuple(QuotaOp(op.key, op.value, op.remove) for op in entry.ops),
    )


def _result(outcome: tuple[QuotaAlteration, KafkaError | None]) -> EntryResult:
    alteration, error = outcome
    entity = [EntityResult(entity_type=kind, entity_name=name) for kind, name in alteration.named]
    if error is None:
        return EntryResult(error_message=None, entity=entity)
    return EntryResult(error_code=int(error.code), error_message=str(error), entity=entity)
