"""An operator who alters users' SCRAM credentials at whatever broker."""

import random
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import ScramUser
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security.scram_credential import ScramCredential, ScramHash, credential_of
from tests.simulation.cluster.client import Client

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

USERS_MAX = 4
Kept = ScramCredential | None


class UserAdmin:
    def __init__(self, world: "ClusterWorld") -> None:
        self._rng: random.Random = world.make_rng("altered users")
        self.client = Client(world, self._rng, "user-admin")
        self._world = world
        self._book = world.users
        self._drawn = 0

    async def alter(self) -> None:
        for _ in range(self._rng.randint(2, 8)):
            await self._alter_some()
            await self._world.sleep_ms(self._rng.randint(1, 300))

    async def _alter_some(self) -> None:
        """One request about one or two users."""
        drawn = [self._draw_user() for _ in range(self._rng.randint(1, 2))]
        # One user's mechanisms are altered by requests of their own: there is one result for a user.
        owners = {user: (scram, user) for scram, user in drawn if (scram, user) not in self._book.busy}
        wanted = {owner: self._wanted(owner) for owner in owners.values()}
        if not wanted:
            return
        before = self._book.asked(wanted)
        response = await self.client.ask(_request(wanted), 0)
        if response is None:
            return
        codes = {result.user: ErrorCode(result.error_code) for result in response.results}
        for (scram, user), kept in wanted.items():
            self._took((scram, user), before[scram, user], kept, codes[user])

    def _took(self, owner: ScramUser, before: Kept, wanted: Kept, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return
        expected = ErrorCode.RESOURCE_NOT_FOUND if before is None and wanted is None else ErrorCode.NONE
        if error is not expected:
            how = f"user {owner}, who was {before}, was altered to {wanted} with {error.name}"
            self._world.judge.violated("answers", how)
        self._world.judge.counts["users altered"] += error is ErrorCode.NONE
        self._book.answered(owner, wanted)

    def _draw_user(self) -> ScramUser:
        """One of a few that nothing is unknown about, so that most requests are about a user who is there."""
        unsure = len(self._book.busy)
        return self._rng.choice(list(ScramHash)), f"user-{self._rng.randrange(unsure, unsure + USERS_MAX)}"

    def _wanted(self, owner: ScramUser) -> Kept:
        if self._rng.random() < 0.4:
            return None
        self._drawn += 1
        salt = b"salt of %08d" % self._drawn
        return credential_of(owner[0], salt, owner[0].digest(salt), 4096)


def _request(wanted: dict[ScramUser, Kept]) -> Any:
    request = AlterUserScramCredentialsRequest()
    for (scram, user), kept in wanted.items():
        if kept is None:
            request.deletions.append(ScramCredentialDeletion(name=user, mechanism=int(scram)))
            continue
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=int(scram),
            iterations=kept.iterations,
            salt=kept.salt,
            salted_password=scram.digest(kept.salt),
        )
        request.upsertions.append(upsertion)
    return request
