"""DescribeClientQuotas: the quotas of the entities that a filter matches (KIP-546, §65.4)."""

from ottla.broker.metadata.client_quotas import ClientQuotaAdminManager
from ottla.broker.runtime import in_slices
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.client_quotas import entity_filter, names_of
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.security.quotas import EntityQuotas, QuotaEntity


async def handle(
    client_quotas: ClientQuotaAdminManager,
    context: RequestContext,  # noqa: ARG001
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse:
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = entity_filter(components, is_strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=int(error.code), error_message=str(error), entries=None)
    found = await client_quotas.find(wanted)
    return DescribeClientQuotasResponse(entries=await in_slices(_entry, found))


def _entry(found: tuple[QuotaEntity, EntityQuotas]) -> EntryData:
    entity, quotas = found
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names_of(entity)],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
