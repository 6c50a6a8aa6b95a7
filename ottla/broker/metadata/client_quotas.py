"""Client quotas as administrators alter and list them (§65); the metadata store keeps them."""

from collections.abc import Mapping, Sequence
from functools import partial

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.runtime import in_slices
from ottla.cluster.client_quotas import EntityFilter, QuotaAlteration, alter_quotas, check_alterations
from ottla.cluster.store import QUOTAS
from ottla.protocol.errors import KafkaError
from ottla.security.quotas import EntityQuotas, QuotaEntity

Described = tuple[QuotaEntity, EntityQuotas]


class ClientQuotaAdminManager:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def alter(self, alterations: Sequence[QuotaAlteration], *, validate_only: bool) -> list[KafkaError | None]:
        """Returns when this broker's image shows all that was altered, with why each of the others was not. Raises the
        KafkaError of all, of which none is altered then."""
        outcomes = check_alterations(alterations)
        if validate_only:
            return outcomes
        refused = {index for index, error in enumerate(outcomes) if error is not None}
        if any(op.is_removal for each in alterations for op in each.ops):
            # Only what comes later than this may be a reason to find nothing to remove.
            await self._metadata.catch_up(QUOTAS)
        await self._metadata.commit_planned(
            lambda: alter_quotas(self._metadata.image, alterations, refused),
            partial(not_committed, fewer="alter fewer entities in one request"),
        )
        return outcomes

    async def find(self, wanted: EntityFilter) -> list[Described]:
        quotas: Mapping[QuotaEntity, EntityQuotas] = self._metadata.image.client_quotas
        found = await in_slices(lambda each: each if wanted.matches(each[0]) else None, quotas.items())
        return [each for each in found if each is not None]
