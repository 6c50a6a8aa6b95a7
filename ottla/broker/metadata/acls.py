"""ACLs as administrators create, list and delete them (§61); the metadata store keeps them."""

from collections.abc import Sequence
from functools import partial

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import in_slices
from ottla.cluster.acls import acl_key, create_acls, delete_acls, refusals_of
from ottla.cluster.store import ACLS, CommitResult, TooLarge, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, PolicyViolation, error_for
from ottla.security.acl import AclBinding, AclFilter

# In one transaction of the store. Every broker applies one in a step of its loop, at some 10 µs for each ACL.
_CREATED_AT_ONCE = 500


class AclManager:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def create(self, wanted: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Returns when this broker's image shows all that was created, with why each of the others was not. Raises the
        KafkaError of all, of which none is created then."""
        outcomes = refusals_of(wanted)
        accepted = {acl_key(acl): acl for acl, why in zip(wanted, outcomes, strict=True) if why is None}
        create_acls(self._metadata.image, accepted)  # Refuses too many before the first is created.
        keys = list(accepted)
        failed: dict[AclBinding, KafkaError] = {}
        for start in range(0, len(keys), _CREATED_AT_ONCE):
            some = {key: accepted[key] for key in keys[start : start + _CREATED_AT_ONCE]}
            try:
                await self._metadata.commit_planned(partial(self._creation, some), _refusal)
            except KafkaError as error:
                failed |= dict.fromkeys(some.values(), error)
        return [why or failed.get(acl) for acl, why in zip(wanted, outcomes, strict=True)]

    async def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Raises InvalidRequest."""
        _check(wanted)
        image = self._metadata.image
        found = await in_slices(partial(_if_matched, wanted), image.acls.values())
        return [acl for acl in found if acl is not None]

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | KafkaError]:
        """What each filter has found, which is deleted, all of it at once. Raises the KafkaError of all, for which
        nothing is deleted then."""
        await self._know_all()
        found: list[list[AclBinding] | KafkaError] = []
        for each in filters:
            try:
                found.append(await self.find(each))
            except KafkaError as error:
                found.append(error)
        matched = [each for each in found if not isinstance(each, KafkaError)]
        await self._metadata.commit_planned(lambda: self._deletion(matched), _refusal)
        return found

    def _creation(self, wanted: dict[str, AclBinding]) -> Transaction:
        return create_acls(self._metadata.image, wanted)

    def _deletion(self, found: list[list[AclBinding]]) -> Transaction:
        """Without those that are gone by now."""
        known = self._metadata.image.acls
        transaction = delete_acls(found)
        return Transaction((), tuple(change for change in transaction.changes if change.key in known))

    async def _know_all(self) -> None:
        """Returns once the image has what the store has by now: another broker may have acknowledged what this one has
        not heard of."""
        stored = await self._metadata.read(ACLS)
        if isinstance(stored, Unavailable):
            raise _refusal(stored)
        await self._metadata.applied(max((entry.revision for entry in stored.entries), default=0))


def _if_matched(wanted: AclFilter, acl: AclBinding) -> AclBinding | None:
    return acl if wanted.matches(acl) else None


def _check(wanted: AclFilter) -> None:
    if not wanted.is_known:
        raise InvalidRequest("the filter has a type, an operation or a permission that there is not")


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, TooLarge):
        return PolicyViolation(f"{result.reason}: name fewer ACLs in one request")
    why = f"the metadata store does not answer: {result.reason}" if isinstance(result, Unavailable) else "try again"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, why)
