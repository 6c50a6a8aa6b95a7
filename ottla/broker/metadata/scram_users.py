"""Users' SCRAM credentials as administrators alter and list them (§80); the metadata store keeps them."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.runtime import in_slices
from ottla.cluster.scram_users import (
    ScramAlteration,
    ScramDeletion,
    ScramUpsertion,
    alter_scram_users,
    check_alterations,
    check_count,
    derived_put,
    scram_key,
)
from ottla.cluster.store import SCRAM, Put, Transaction
from ottla.protocol.errors import KafkaError
from ottla.security.scram_credential import ScramHash


class ScramMechanismInfo(NamedTuple):
    """What may be shown of a credential."""

    scram: ScramHash
    iterations: int


class ScramUserManager:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def alter(self, alterations: Sequence[ScramAlteration]) -> dict[str, KafkaError]:
        """Deletions come first. Returns when this broker's image shows all that was altered, with why users are
        refused; raises the KafkaError of all users, of whom none is altered then."""
        check_count(alterations)
        upsertions = [each for each in alterations if isinstance(each, ScramUpsertion)]
        derived = await in_slices(derived_put, upsertions)
        puts = {each: put for each, put in zip(upsertions, derived, strict=True) if put is not None}
        await self._know_those_deleted(alterations)
        change = _Change(self._metadata, alterations, puts)
        await self._metadata.commit_planned(
            change.plan, partial(not_committed, fewer="alter fewer users in one request")
        )
        return change.refused

    async def mechanisms_of(self, users: Sequence[str]) -> list[list[ScramMechanismInfo]]:
        """Of each user; of one who has no credential, nothing."""
        return await in_slices(self._of_user, users)

    async def all_mechanisms(self) -> dict[str, list[ScramMechanismInfo]]:
        """Of everybody who has a credential, in order of their names."""
        users = sorted({user for _, user in self._metadata.image.scram_credentials})
        found = zip(users, await self.mechanisms_of(users), strict=True)
        # Between two steps the last credential of a user may have gone.
        return {user: mechanisms for user, mechanisms in found if mechanisms}

    def _of_user(self, user: str) -> list[ScramMechanismInfo]:
        credentials = self._metadata.image.scram_credentials
        found = ((scram, credentials.get((scram, user))) for scram in ScramHash)
        return [ScramMechanismInfo(scram, each.iterations) for scram, each in found if each is not None]

    async def _know_those_deleted(self, alterations: Sequence[ScramAlteration]) -> None:
        """Only what comes later than this may be a reason to find no credential."""
        keys = [_key(each) for each in alterations if isinstance(each, ScramDeletion)]
        if keys:
            await self._metadata.catch_up(keys[0] if len(keys) == 1 else SCRAM)


def _key(deletion: ScramDeletion) -> str:
    """A prefix of its key where the mechanism is not known."""
    known = deletion.mechanism in {*ScramHash}
    return scram_key((ScramHash(deletion.mechanism), deletion.user)) if known else SCRAM


class _Change:
    """Planned again on every image until the store takes it."""

    def __init__(
        self, metadata: ClusterMetadata, alterations: Sequence[ScramAlteration], puts: dict[ScramUpsertion, Put]
    ) -> None:
        self.refused: dict[str, KafkaError] = {}
        self._metadata = metadata
        self._alterations = alterations
        self._puts = puts

    def plan(self) -> Transaction:
        image = self._metadata.image
        self.refused = check_alterations(image, self._alterations)
        return alter_scram_users(image, self._alterations, self.refused, self._puts)
