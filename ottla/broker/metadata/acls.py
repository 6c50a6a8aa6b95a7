"""ACLs as administrators create, list and delete them (§61); the metadata store keeps them."""

from collections.abc import Callable, Sequence
from functools import partial

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.runtime import in_slices
from ottla.cluster.acls import acl_key, check_creations, create_acls, delete_acls, refusal_of
from ottla.cluster.store import ACLS, Transaction
from ottla.protocol.errors import InvalidRequest, KafkaError
from ottla.security.acl import AclBinding, AclFilter

# In one transaction of the store. Every broker applies one in a step of its loop, at some 10 µs for each ACL.
_CREATED_AT_ONCE = 500
_Keyed = tuple[str, AclBinding]
"""An ACL with its key in the store."""


class AclManager:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def create(self, wanted: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Returns when this broker's image shows all that was created, with why each of the others was not. Raises the
        KafkaError of all, of which none is created then."""
        outcomes = await in_slices(refusal_of, wanted)
        fit = [acl for acl, why in zip(wanted, outcomes, strict=True) if why is None]
        accepted = dict(zip(await in_slices(acl_key, fit), fit, strict=True))
        check_creations(self._metadata.image, accepted)
        keys = list(accepted)
        failed: dict[AclBinding, KafkaError] = {}
        for start in range(0, len(keys), _CREATED_AT_ONCE):
            some = {key: accepted[key] for key in keys[start : start + _CREATED_AT_ONCE]}
            try:
                await self._commit(partial(self._creation, some))
            except KafkaError as error:
                failed |= dict.fromkeys(some.values(), error)
        return [why or failed.get(acl) for acl, why in zip(wanted, outcomes, strict=True)]

    async def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Raises InvalidRequest."""
        return [acl for _, acl in await self._find(wanted)]

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | KafkaError]:
        """What each filter has found, which is deleted, all of it at once. Raises the KafkaError of all, for which
        nothing is deleted then."""
        await self._metadata.catch_up(ACLS)
        results: list[list[AclBinding] | KafkaError] = []
        keys: dict[str, None] = {}
        for each in filters:
            try:
                found = await self._find(each)
            except KafkaError as error:
                results.append(error)
            else:
                results.append([acl for _, acl in found])
                keys |= dict.fromkeys(key for key, _ in found)
        await self._commit(lambda: delete_acls(self._metadata.image, keys))
        return results

    async def _find(self, wanted: AclFilter) -> list[_Keyed]:
        if not wanted.is_known:
            raise InvalidRequest("the filter has a type, an operation or a permission that there is not")
        found = await in_slices(partial(_if_matched, wanted), self._metadata.image.acls.items())
        return [each for each in found if each is not None]

    async def _commit(self, plan: Callable[[], Transaction]) -> None:
        await self._metadata.commit_planned(plan, partial(not_committed, fewer="name fewer ACLs in one request"))

    def _creation(self, wanted: dict[str, AclBinding]) -> Transaction:
        return create_acls(self._metadata.image, wanted)


def _if_matched(wanted: AclFilter, keyed: _Keyed) -> _Keyed | None:
    return keyed if wanted.matches(keyed[1]) else None
