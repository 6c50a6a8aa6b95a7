"""Client quotas: how they are written into the metadata store, and what requests of administrators change of them and
ask for (KIP-546, §65). Pure.

Each entity has a key of its own: types and names, which are data, and so escaped; an empty name stands for the default.
Its value has all its quotas, and with the last of them the key goes.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ottla.cluster.image import MetadataImage
from ottla.cluster.store import ABSENT, QUOTAS, Change, Delete, Entry, Expect, Put, StoreError, Transaction
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, PolicyViolation, error_for
from ottla.security.quotas import (
    DEFAULT,
    ENTITY_TYPES,
    IP,
    EntityQuotas,
    Name,
    QuotaEntity,
    why_no_entity,
    why_no_quota,
)

ALTERATIONS_MAX = 1000
"""Of one request, which is one transaction of the store."""
ENTITIES_MAX = 100_000
"""Of a cluster: every broker has all of them in memory."""
NAME_BYTES_MAX = 1024
EXACT, DEFAULT_NAME, ANY_NAME = range(3)
"""The numbers of `match_type`."""


class QuotaOp(NamedTuple):
    key: str
    value: float
    is_removal: bool


class QuotaAlteration(NamedTuple):
    """What a request asks of one entity. `named` are the parts of it as they were written, None for the default."""

    named: tuple[tuple[str, str | None], ...]
    ops: tuple[QuotaOp, ...]

    @property
    def entity(self) -> QuotaEntity:
        """Raises InvalidRequest."""
        return entity_of(self.named)


class EntityFilter(NamedTuple):
    """What a description is about: of each type that counts, a name, or None for any; the others do not matter, or,
    where `is_strict`, must not be there."""

    types: Mapping[str, Name | None]
    is_strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        named = {kind: name for kind, name in zip(ENTITY_TYPES, entity, strict=True) if name is not None}
        if self.is_strict and len(named) != len(self.types):
            return False
        return all(kind in named and name in (None, named[kind]) for kind, name in self.types.items())


# In the store.


def quota_key(entity: QuotaEntity) -> str:
    return QUOTAS + "/".join(f"{kind}/{quote(name or '', safe='')}" for kind, name in names_of(entity))


def quota_entity(key: str) -> QuotaEntity:
    """Whose quotas are under a key. Raises StoreError."""
    words = key.removeprefix(QUOTAS).split("/")
    try:
        names = [unquote_to_bytes(word).decode() or None for word in words[1::2]]
        entity = entity_of(tuple(zip(words[::2], names, strict=True)))
    except (ValueError, KafkaError):
        entity = QuotaEntity()
    if quota_key(entity) != key:
        raise StoreError(f"the key {key} of the metadata is damaged")
    return entity


def quota_value(quotas: Mapping[str, float]) -> bytes:
    return json.dumps(dict(quotas), separators=(",", ":"), sort_keys=True).encode()


def quotas_of(entry: Entry) -> tuple[QuotaEntity, EntityQuotas]:
    """Raises StoreError."""
    entity = quota_entity(entry.key)
    try:
        found = EntityQuotas({key: float(limit) for key, limit in json.loads(entry.value).items()}, entry.revision)
    except (AttributeError, TypeError, ValueError):
        found = EntityQuotas({}, entry.revision)
    if not found or any(why_no_quota(entity, key, limit) is not None for key, limit in found.items()):
        raise StoreError(f"the metadata under {entry.key} is damaged")
    return entity, found


def names_of(entity: QuotaEntity) -> Iterator[tuple[str, str | None]]:
    """Types and names; None is the default."""
    for kind, name in zip(ENTITY_TYPES, entity, strict=True):
        if name is not None:
            yield kind, name if isinstance(name, str) else None


def entity_of(named: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Raises InvalidRequest for parts that are no entity."""
    if not named:
        raise InvalidRequest("Invalid empty client quota entity")
    parts: dict[str, Name] = {}
    for kind, name in named:
        if kind in parts:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"A name of the type {kind} has at most {NAME_BYTES_MAX} bytes")
        parts[kind] = DEFAULT if name is None else name
    entity = QuotaEntity(*(parts.get(kind) for kind in ENTITY_TYPES))
    why = why_no_entity(entity)
    if why is not None:
        raise InvalidRequest(why)
    return entity


# What an administrator asks for.


def check_alterations(alterations: Sequence[QuotaAlteration]) -> list[KafkaError | None]:
    """Why each of them is refused; None: it is not. Raises POLICY_VIOLATION for too many."""
    if len(alterations) > ALTERATIONS_MAX:
        raise PolicyViolation(f"{len(alterations)} entities in one request, at most {ALTERATIONS_MAX} are allowed")
    times: dict[frozenset[tuple[str, str | None]], int] = {}
    for each in alterations:
        parts = frozenset(each.named)
        times[parts] = times.get(parts, 0) + 1
    return [_refusal(each, times[frozenset(each.named)] > 1) for each in alterations]


def _refusal(alteration: QuotaAlteration, is_named_twice: bool) -> KafkaError | None:
    """Kafka applies the first of two alterations of an entity and reports an error of it; here neither is made."""
    try:
        entity = alteration.entity
    except KafkaError as error:
        return error
    if is_named_twice:
        return InvalidRequest("the entity is altered twice in one request")
    seen: set[str] = set()
    for op in alteration.ops:
        if op.key in seen:
            return InvalidRequest(f"the quota {op.key} is altered twice for one entity")
        seen.add(op.key)
    for op in alteration.ops:
        why = None if op.is_removal else why_no_quota(entity, op.key, op.value)
        if why is not None:
            return InvalidRequest(why)
    return None


def alter_quotas(image: MetadataImage, alterations: Sequence[QuotaAlteration], refused: Container[int]) -> Transaction:
    """All alterations whose index is not refused, at once. Holds only as long as the entities are as in the image.
    Raises POLICY_VIOLATION for too many entities."""
    expected: list[Expect] = []
    changes: list[Change] = []
    entities = len(image.client_quotas)
    for index, each in enumerate(alterations):
        if index in refused:
            continue
        entity = each.entity
        stored = image.client_quotas.get(entity)
        before: Mapping[str, float] = {} if stored is None else stored
        after = {**before, **{op.key: op.value for op in each.ops if not op.is_removal}}
        for op in each.ops:
            if op.is_removal:
                after.pop(op.key, None)
        if after == before:
            continue
        key = quota_key(entity)
        expected.append(Expect(key, ABSENT if stored is None else stored.revision))
        changes.append(Put(key, quota_value(after)) if after else Delete(key))
        entities += bool(after) - bool(before)
    if entities > max(ENTITIES_MAX, len(image.client_quotas)):
        raise PolicyViolation(f"at most {ENTITIES_MAX} entities of a cluster have quotas")
    return Transaction(tuple(expected), tuple(changes))


def entity_filter(components: Sequence[tuple[str, int, str | None]], *, is_strict: bool) -> EntityFilter:
    """Of types, match types and names. Raises InvalidRequest, and UNSUPPORTED_VERSION for an unknown type."""
    types: dict[str, Name | None] = {}
    for kind, match_type, match in components:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in types:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        types[kind] = _matched_name(match_type, match)
    if IP in types and len(types) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return EntityFilter(types, is_strict)


def _matched_name(match_type: int, match: str | None) -> Name | None:
    if match_type == EXACT:
        if match is None:
            raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return match
    if match_type not in (DEFAULT_NAME, ANY_NAME):
        raise InvalidRequest(f"Unknown match type {match_type}")
    if match is not None:
        named = "MATCH_TYPE_DEFAULT" if match_type == DEFAULT_NAME else "MATCH_TYPE_SPECIFIED"
        raise InvalidRequest(f"Request specified {named}, but also specified a match string.")
    return DEFAULT if match_type == DEFAULT_NAME else None
