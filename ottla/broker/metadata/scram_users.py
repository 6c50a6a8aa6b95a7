"""Users' SCRAM credentials as administrators alter and list them (§80); the metadata store keeps them."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
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
from ottla.cluster.store import SCRAM, CommitResult, Put, TooLarge, Transaction, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError, PolicyViolation, error_for
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
        await self._metadata.commit_planned(change.plan, _refusal)
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
        """Returns once the image has what the store has of them by now: another broker may have acknowledged what this
        one has not heard of, and only what comes later may be a reason to find no credential."""
        keys = [_key(each) for each in alterations if isinstance(each, ScramDeletion)]
        if not keys:
            return
        stored = await self._metadata.read(keys[0] if len(keys) == 1 else SCRAM)
        if isinstance(stored, Unavailable):
            raise _refusal(stored)
        await self._metadata.applied(max((entry.revision for entry in stored.entries), default=0))


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


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, TooLarge):
        return PolicyViolation(f"{result.reason}: alter fewer users in one request")
    why = f"the metadata store does not answer: {result.reason}" if isinstance(result, Unavailable) else "try again"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, why)
