"""Client quotas at any broker that speaks Kafka's protocol: set, taken away, and described."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cli.client import Client
from ottla.cli.failures import check
from ottla.protocol.messages import alter_client_quotas as alter
from ottla.protocol.messages import describe_client_quotas as describe
from ottla.security.quotas import ENTITY_TYPES

EXACT, DEFAULT_NAME = 0, 1

NamedEntity = tuple[tuple[str, str | None], ...]
"""Types and names; None is the default."""


class EntityWithQuotas(NamedTuple):
    entity: NamedEntity
    quotas: Mapping[str, float]

    @property
    def shown(self) -> str:
        return shown(self.entity)


def shown(entity: NamedEntity) -> str:
    """As it is written on the command line."""
    return " ".join(kind if name is None else f"{kind}={name}" for kind, name in entity)


async def find(client: Client, named: NamedEntity) -> list[EntityWithQuotas]:
    """All entities that have these parts, in order; with none, all that there are. Raises Refused."""
    components = [
        describe.ComponentData(entity_type=kind, match_type=DEFAULT_NAME if name is None else EXACT, match=name)
        for kind, name in named
    ]
    request = describe.DescribeClientQuotasRequest(components=components, strict=False)
    response = await client.ask_any(request, describe.DescribeClientQuotasResponse)
    check("cannot describe quotas", response.error_code, response.error_message)
    found = [
        EntityWithQuotas(
            _in_order((each.entity_type, each.entity_name) for each in entry.entity),
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity])


async def change(
    client: Client,
    entity: NamedEntity,
    values: Mapping[str, float],
    removed: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """All at once. Raises Refused."""
    ops = [alter.OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [alter.OpData(key=key, value=0.0, remove=True) for key in removed]
    parts = [alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = alter.AlterClientQuotasRequest(
        entries=[alter.EntryData(entity=parts, ops=ops)], validate_only=validate_only
    )
    response = await client.ask_controller(request, alter.AlterClientQuotasResponse)
    for result in response.entries:
        check(f"cannot alter the quotas of {shown(entity)}", result.error_code, result.error_message)


def _in_order(parts: Iterable[tuple[str, str | None]]) -> NamedEntity:
    """Users first, as they are looked up."""
    return tuple(sorted(parts, key=lambda part: ENTITY_TYPES.index(part[0]) if part[0] in ENTITY_TYPES else -1))
