"""Client quotas as administrators alter and list them (§65), and as they come from the metadata store that keeps them.

A broker without quotas starts without what decides about them: that is imported with the first request, or quota.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.runtime import in_slices
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import QUOTAS
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.quotas.client_quotas import ClientQuotaEnforcer
    from ottla.cluster.client_quotas import EntityFilter, QuotaAlteration
    from ottla.security.quotas import EntityQuotas, QuotaEntity


class ClientQuotaAdminManager:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def alter(self, alterations: "Sequence[QuotaAlteration]", *, validate_only: bool) -> list[KafkaError | None]:
        """Returns when this broker's image shows all that was altered, with why each of the others was not. Raises the
        KafkaError of all, of which none is altered then."""
        from ottla.cluster.client_quotas import alter_quotas, check_alterations

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

    async def find(self, wanted: "EntityFilter") -> "list[tuple[QuotaEntity, EntityQuotas]]":
        quotas: Mapping[QuotaEntity, EntityQuotas] = self._metadata.image.client_quotas
        found = await in_slices(lambda each: each if wanted.matches(each[0]) else None, quotas.items())
        return [each for each in found if each is not None]


class ClientQuotaPublisher:
    """Gives quotas to what enforces them, which is made with the first of them."""

    def __init__(self, make: "Callable[[], ClientQuotaEnforcer]") -> None:
        self.enforcer: ClientQuotaEnforcer | None = None
        """None: there has been no quota yet."""
        self._make = make

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        quotas = update.image.quota_index
        if quotas is before.quota_index:
            return
        if quotas is None:
            from ottla.security.quotas import ClientQuotas

            quotas = ClientQuotas()
        if self.enforcer is None:
            self.enforcer = self._make()
        self.enforcer.take(quotas)

    def stop(self) -> None:
        if self.enforcer is not None:
            self.enforcer.stop()
