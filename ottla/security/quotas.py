"""Which quota counts for a client, and with whom it shares it (KIP-55, KIP-124, KIP-257, KIP-546, KIP-599, KIP-612).

A quota stands at an entity: a user, a client id, a pair of both, or an address; each also as the default for those that
have none of their own. Keys are looked up one by one: an entity may limit bytes and leave requests to another.
"""

import math
from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from types import MappingProxyType
from typing import NamedTuple

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
QUOTA_KEYS = (*CLIENT_KEYS, CONNECTION_CREATION_RATE)
USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
"""By Kafka's names, in the order of the fields of `QuotaEntity`."""
_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_LARGEST = {
    PRODUCER_BYTE_RATE: (_LONG_MAX, "LONG"),
    CONSUMER_BYTE_RATE: (_LONG_MAX, "LONG"),
    CONNECTION_CREATION_RATE: (_INT_MAX, "INT"),
}
# Of the keys without a fraction.
_FRACTION_MAX = 1e-6


class Default(Enum):
    """Stands for the name of those that have none of their own."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT
Name = str | Default


class QuotaEntity(NamedTuple):
    """Where a quota stands. None: this part does not matter."""

    user: Name | None = None
    client_id: Name | None = None
    ip: Name | None = None


class EntityQuotas(dict[str, float]):
    """Of one entity the limits, by key. `revision`: where they were read in the metadata store; not compared."""

    __slots__ = ("revision",)

    def __init__(self, limits: Mapping[str, float], revision: int) -> None:
        super().__init__(limits)
        self.revision = revision


Quotas = Mapping[QuotaEntity, Mapping[str, float]]
_NONE: Quotas = MappingProxyType({})


class Quota(NamedTuple):
    limit: float
    shared_by: QuotaEntity
    """Clients with an equal value here have one budget together."""


class ClientQuotas:
    """All quotas of a cluster, never changed."""

    def __init__(self, quotas: Quotas = _NONE, counts: Mapping[str, int] | None = None) -> None:
        """`counts`: how many entities have each key, where that is known."""
        self.quotas = quotas
        if counts is None:
            counts = {key: sum(key in values for values in quotas.values()) for key in QUOTA_KEYS}
        self.counts = counts
        self.limited_keys = frozenset(key for key, count in counts.items() if count)
        """Where a key is not among these, nothing needs to be measured for it."""

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota of the first entity that has one for this key: pairs before users, users before client ids."""
        if key not in self.limited_keys:
            return None
        pair, of_user, of_client = QuotaEntity(user, client_id), QuotaEntity(user), QuotaEntity(None, client_id)
        for entity, shared_by in (
            (pair, pair),
            (QuotaEntity(user, DEFAULT), pair),
            (of_user, of_user),
            (QuotaEntity(DEFAULT, client_id), pair),
            (QuotaEntity(DEFAULT, DEFAULT), pair),
            (QuotaEntity(DEFAULT), of_user),
            (of_client, of_client),
            (QuotaEntity(None, DEFAULT), of_client),
        ):
            limit = self.quotas.get(entity, {}).get(key)
            if limit is not None:
                return Quota(limit, shared_by)
        return None

    def find_for_address(self, ip: str) -> float | None:
        """New connections per second from this address; None: without a limit."""
        for name in (ip, DEFAULT):
            limit = self.quotas.get(QuotaEntity(ip=name), {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                return limit if limit < _INT_MAX else None
        return None


def why_no_entity(entity: QuotaEntity) -> str | None:
    """Why no quota can stand there, as a sentence; None: one can."""
    if entity == QuotaEntity():
        return "Invalid empty client quota entity"
    for kind, name in zip(ENTITY_TYPES, entity, strict=True):
        if name == "":
            return f"Empty {kind} not supported"
    if entity.ip is None:
        return None
    if entity.user is not None or entity.client_id is not None:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    return None if isinstance(entity.ip, Default) else _why_no_address(entity.ip)


def why_no_quota(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Why this value cannot be set, as a sentence; None: it can."""
    if key not in ((CONNECTION_CREATION_RATE,) if entity.ip is not None else CLIENT_KEYS):
        return f"Invalid configuration key {key}"
    if not math.isfinite(value) or value <= 0:
        return f"Quota {key} must be greater than 0"
    if key not in _LARGEST:
        return None
    largest, kind = _LARGEST[key]
    if value > float(largest):
        return f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
    if abs(value - round(value)) > _FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def _why_no_address(text: str) -> str | None:
    try:
        canonical = str(ip_address(text))
    except ValueError:
        return f"{text} is not a valid IP address"
    return None if canonical == text else f"{text} is written {canonical}"
