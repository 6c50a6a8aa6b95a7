"""ACLs in the metadata store, and what requests of administrators change of them (§61). Pure.

Each ACL has a key of its own, made from a hash of its fields: to create it twice is to write the same again, and names
are data, never syntax of a key.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping

from ottla.cluster.image import MetadataImage
from ottla.cluster.store import ACLS, Delete, Entry, Put, StoreError, Transaction
from ottla.protocol.errors import InvalidRequest, KafkaError
from ottla.security.acl import (
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    why_not_created,
)

ACLS_PER_REQUEST_MAX = 10_000
"""Kafka's bound: new ones in a request that creates, and those that a request deletes."""
ACLS_MAX = 100_000
"""Of a cluster: every broker has all of them in memory, about 1 KB each."""
_DIGEST_CHARACTERS = 40


def acl_key(acl: AclBinding) -> str:
    return ACLS + hashlib.sha256(acl_value(acl)).hexdigest()[:_DIGEST_CHARACTERS]


def acl_value(acl: AclBinding) -> bytes:
    value = {
        "resource_type": acl.resource_type.name,
        "name": acl.name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def acl_of(entry: Entry) -> AclBinding:
    """Raises StoreError."""
    acl = _parsed(entry)
    if acl is None or acl_key(acl) != entry.key:
        raise StoreError(f"the metadata under {entry.key} is damaged")
    return acl


def _parsed(entry: Entry) -> AclBinding | None:
    try:
        value = json.loads(entry.value)
        acl = AclBinding(
            ResourceType[value["resource_type"]],
            value["name"],
            PatternType[value["pattern_type"]],
            value["principal"],
            value["host"],
            AclOperation[value["operation"]],
            Permission[value["permission"]],
        )
        return acl if why_not_created(acl) is None else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


# What an administrator asks for.


def refusal_of(acl: AclBinding) -> KafkaError | None:
    """Why it cannot be created; None: it can."""
    why = why_not_created(acl)
    return None if why is None else InvalidRequest(why)


def check_creations(image: MetadataImage, keys: Iterable[str]) -> None:
    """Raises InvalidRequest for too many new ones, of a request or of the cluster."""
    new = sum(key not in image.acls for key in keys)
    if new > ACLS_PER_REQUEST_MAX:
        raise InvalidRequest(f"{new} new ACLs in one request, at most {ACLS_PER_REQUEST_MAX} are allowed")
    if len(image.acls) + new > ACLS_MAX:
        raise InvalidRequest(f"a cluster has at most {ACLS_MAX} ACLs")


def create_acls(image: MetadataImage, wanted: Mapping[str, AclBinding]) -> Transaction:
    """Those that do not exist yet. Raises as `check_creations`."""
    check_creations(image, wanted)
    new = {key: acl for key, acl in wanted.items() if key not in image.acls}
    return Transaction((), tuple(Put(key, acl_value(acl)) for key, acl in new.items()))


def delete_acls(image: MetadataImage, keys: Collection[str]) -> Transaction:
    """All that the filters of a request have found, at once, but those that are gone by now. Raises InvalidRequest for
    too many."""
    if len(keys) > ACLS_PER_REQUEST_MAX:
        raise InvalidRequest(f"{len(keys)} ACLs would be deleted by one request, at most {ACLS_PER_REQUEST_MAX} can be")
    return Transaction((), tuple(Delete(key) for key in keys if key in image.acls))
