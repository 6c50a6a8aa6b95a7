"""Which quota counts for a client, and with whom it shares it (KIP-55, KIP-124, KIP-257, KIP-546).

A quota stands at an entity: a user, a client id, a pair of both, or an address; each also as the default for those that
have none of their own. Keys are looked up one by one: an entity may limit bytes and leave requests to another.
"""

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
WHOLE_KEYS = {PRODUCER_BYTE_RATE: 2**63 - 1, CONSUMER_BYTE_RATE: 2**63 - 1, CONNECTION_CREATION_RATE: 2**31 - 1}
"""Keys whose values have no fraction, with the largest."""
FRACTION_MAX = 1e-6


class Default(Enum):
    """Stands for the name of one who has none of its own."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT
Name = str | Default


class QuotaEntity(NamedTuple):
    """Where a quota stands. None: this part does not matter."""

    user: Name | None = None
    client_id: Name | None = None
    ip: Name | None = None


class Quota(NamedTuple):
    limit: float
    shared_by: QuotaEntity
    """Clients with an equal value here have one budget together."""


class ClientQuotas:
    """All quotas, never changed."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._quotas = quotas
        self.limited_keys = frozenset(key for values in quotas.values() for key in values)
        """Where a key is not among these, nothing needs to be measured for it."""

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota of the first entity that has one for this key: pairs before users, users before client ids."""
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
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                return Quota(limit, shared_by)
        return None

    def find_for_address(self, ip: str) -> float | None:
        """New connections per second from this address."""
        for entity in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT)):
            limit = self._quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                return limit
        return None


def why_no_quota(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Why this value cannot be set, as a sentence; None: it can."""
    if entity.ip is not None and key != CONNECTION_CREATION_RATE:
        return f"{key} cannot be set for an address, but {CONNECTION_CREATION_RATE} can"
    if entity.ip is None and key not in CLIENT_KEYS:
        return f"{key} cannot be set for a user or a client id, but {', '.join(CLIENT_KEYS)} can"
    if not math.isfinite(value) or value <= 0:
        return f"{key} is greater than 0"
    largest = WHOLE_KEYS.get(key)
    if largest is not None and value > largest:
        return f"{key} is at most {largest}"
    if largest is not None and abs(value - round(value)) > FRACTION_MAX:
        return f"{key} is a whole number"
    return None
