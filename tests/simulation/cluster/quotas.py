"""An operator who alters quotas at whatever broker. Most are of no client, the others too high to slow one."""

import random
from typing import TYPE_CHECKING, Any

from ottla.cluster.client_quotas import entity_of, names_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.security.quotas import CLIENT_KEYS, CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity
from tests.simulation.cluster.client import Client

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

NAMES_MAX = 3
LIMITS = (1e8, 1e9)
# Of all that have no other, so that everybody is measured for a while.
FOR_ALL = (QuotaEntity(user=DEFAULT), QuotaEntity(client_id=DEFAULT))
Kept = dict[str, float] | None


class QuotaAdmin:
    def __init__(self, world: "ClusterWorld") -> None:
        self._rng: random.Random = world.make_rng("altered quotas")
        self.client = Client(world, self._rng, "quota-admin")
        self._world = world
        self._book = world.quotas

    async def alter(self) -> None:
        for _ in range(self._rng.randint(2, 8)):
            await self._alter_some()
            await self._world.sleep_ms(self._rng.randint(1, 300))

    async def _alter_some(self) -> None:
        """One request about one to three entities."""
        drawn = {self._draw_entity() for _ in range(self._rng.randint(1, 3))} - self._book.busy
        # A set of them has an order that is none of the seed's.
        owners = sorted(drawn, key=repr)
        wanted = {owner: self._wanted(owner) for owner in owners}
        if not wanted:
            return
        before = self._book.asked(wanted)
        response = await self.client.ask(_request(before, wanted), self._rng.randint(0, 1))
        if response is None:
            return
        errors = {_entity_of(each.entity): ErrorCode(each.error_code) for each in response.entries}
        for owner, kept in wanted.items():
            self._took(owner, kept, errors[owner])

    def _took(self, owner: QuotaEntity, wanted: Kept, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return
        if error is not ErrorCode.NONE:
            self._world.judge.violated("answers", f"quotas of {owner} were altered to {wanted} with {error.name}")
        self._world.judge.counts["quotas altered"] += 1
        self._book.answered(owner, wanted)

    def _draw_entity(self) -> QuotaEntity:
        """One of a few that nothing is unknown about, so that most requests are about one that has quotas."""
        unsure = len(self._book.busy)
        number = self._rng.randrange(unsure, unsure + NAMES_MAX)
        user, client_id = f"user {number}", f"client/{number}"
        return self._rng.choice(
            [
                QuotaEntity(user=user),
                QuotaEntity(user, client_id),
                QuotaEntity(client_id=client_id),
                QuotaEntity(ip=f"192.0.2.{number % 256}"),
                *FOR_ALL,
            ]
        )

    def _wanted(self, owner: QuotaEntity) -> Kept:
        """None of all, one key more, another limit of it, or one less."""
        if self._rng.random() < 0.3:
            return None
        after = dict(self._book.known(owner) or {})
        key = self._rng.choice(CLIENT_KEYS) if owner.ip is None else CONNECTION_CREATION_RATE
        if self._rng.random() < 0.3:
            after.pop(key, None)
        else:
            after[key] = self._rng.choice(LIMITS)
        return after or None


def _request(before: dict[QuotaEntity, Kept], wanted: dict[QuotaEntity, Kept]) -> Any:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names_of(owner)],
                ops=_ops(before[owner] or {}, kept or {}),
            )
            for owner, kept in wanted.items()
        ]
    )


def _ops(before: dict[str, float], after: dict[str, float]) -> list[Any]:
    """Also where nothing is to be removed, or nothing changes."""
    gone = [key for key in (*CLIENT_KEYS, CONNECTION_CREATION_RATE) if key in before and key not in after]
    return [OpData(key=key, value=value, remove=False) for key, value in after.items()] + [
        OpData(key=key, value=0.0, remove=True) for key in gone
    ]


def _entity_of(parts: list[Any]) -> QuotaEntity:
    return entity_of([(part.entity_type, part.entity_name) for part in parts])
