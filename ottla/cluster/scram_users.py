"""Users' SCRAM credentials: how they are written into the metadata store, and what a request of an administrator
changes of them (§80). Pure.

A user's name is data: escaped, it is one part of a key, whatever is in it. Errors name the key and nothing of the
value, and have no cause that holds it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ottla.cluster.encoding import ENTRIES_PER_SLICE
from ottla.cluster.image import MetadataImage, ScramUser
from ottla.cluster.store import SCRAM, Change, Delete, Entry, Expect, Put, StoreError, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError, PolicyViolation, error_for
from ottla.security.authentication import ANONYMOUS
from ottla.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramHash,
    credential_of,
)

SALT_BYTES_MIN, SALT_BYTES_MAX = 8, 1024
USER_BYTES_MAX = 1024
# Of one request, which is one transaction of the store.
ALTERATIONS_MAX = 1000


class ScramDeletion(NamedTuple):
    user: str
    mechanism: int
    """The number on the wire, which may be no `ScramHash`."""


class ScramUpsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, mechanism={self.mechanism}, iterations={self.iterations}, [hidden])"


ScramAlteration = ScramDeletion | ScramUpsertion


# In the store.


def scram_key(owner: ScramUser) -> str:
    scram, user = owner
    return f"{SCRAM}{scram.mechanism}/{quote(user, safe='')}"


def scram_user(key: str) -> ScramUser:
    """Whose credential is under a key. Raises StoreError."""
    mechanism, _, escaped = key.removeprefix(SCRAM).partition("/")
    try:
        owner = SCRAM_MECHANISMS[mechanism], unquote_to_bytes(escaped).decode()
    except (KeyError, ValueError):
        owner = None
    if owner is None or not owner[1] or scram_key(owner) != key:
        raise StoreError(f"the key {key} of the metadata is damaged")
    return owner


def scram_value(credential: ScramCredential) -> bytes:
    value = {
        "salt": b64encode(credential.salt).decode(),
        "stored_key": b64encode(credential.stored_key).decode(),
        "server_key": b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def scram_credential_of(entry: Entry) -> tuple[ScramUser, ScramCredential]:
    """Raises StoreError."""
    owner = scram_user(entry.key)
    credential = _credential(entry)
    if credential is None or not _is_whole(credential, owner[0]):
        raise StoreError(f"the metadata under {entry.key} is damaged")
    return owner, credential


def _credential(entry: Entry) -> ScramCredential | None:
    try:
        value = json.loads(entry.value)
        salt, stored_key, server_key = (
            b64decode(value[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, value["iterations"], entry.revision)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _is_whole(credential: ScramCredential, scram: ScramHash) -> bool:
    return (
        type(credential.iterations) is int
        and ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX
        and bool(credential.salt)
        and len(credential.stored_key) == len(credential.server_key) == scram.size_bytes
    )


def scram_credentials_in_slices(entries: Sequence[Entry]) -> Iterator[dict[ScramUser, ScramCredential]]:
    """Those in what was read from a store, a few at a time. Raises StoreError."""
    stored = (entry for entry in entries if entry.key.startswith(SCRAM))
    while some := dict(map(scram_credential_of, islice(stored, ENTRIES_PER_SLICE))):
        yield some


# What an administrator asks for.


def check_count(alterations: Sequence[ScramAlteration]) -> None:
    """Raises POLICY_VIOLATION."""
    if len(alterations) > ALTERATIONS_MAX:
        raise PolicyViolation(f"{len(alterations)} alterations in one request, at most {ALTERATIONS_MAX} are allowed")


def check_alterations(image: MetadataImage, alterations: Sequence[ScramAlteration]) -> dict[str, KafkaError]:
    """Why users are refused: of each, what is wrong first. Nothing of a refused user is changed. `alterations` has the
    deletions first."""
    seen: set[tuple[str, int]] = set()
    refused: dict[str, KafkaError] = {}
    for each in alterations:
        if each.user in refused:
            continue
        is_first = (each.user, each.mechanism) not in seen
        seen.add((each.user, each.mechanism))
        error = _wrong_name_or_mechanism(each) or _wrong(image, each) if is_first else _twice()
        if error is not None:
            refused[each.user] = error
    return refused


def alter_scram_users(
    image: MetadataImage,
    alterations: Sequence[ScramAlteration],
    refused: Container[str],
    puts: Mapping[ScramUpsertion, Put],
) -> Transaction:
    """All alterations of users that are not refused, at once; `puts` are those of `derived_put`. A deletion holds only
    as long as the credential is the one in the image."""
    expected: list[Expect] = []
    changes: list[Change] = []
    for each in alterations:
        if each.user in refused:
            continue
        if isinstance(each, ScramUpsertion):
            changes.append(puts[each])
            continue
        owner = ScramHash(each.mechanism), each.user
        expected.append(Expect(scram_key(owner), image.scram_credentials[owner].revision))
        changes.append(Delete(scram_key(owner)))
    return Transaction(tuple(expected), tuple(changes))


def derived_put(wanted: ScramUpsertion) -> Put | None:
    """What the store keeps of it; None where it is refused in any case. Takes some 10 µs."""
    if _wrong_name_or_mechanism(wanted) is not None or why_unacceptable(wanted) is not None:
        return None
    scram = ScramHash(wanted.mechanism)
    credential = credential_of(scram, wanted.salt, wanted.salted_password, wanted.iterations)
    return Put(scram_key((scram, wanted.user)), scram_value(credential))


def _twice() -> KafkaError:
    return error_for(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def _wrong_name_or_mechanism(alteration: ScramAlteration) -> KafkaError | None:
    if not alteration.user:
        return _unacceptable("Username must not be empty")
    if alteration.mechanism not in {*ScramHash}:
        return error_for(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _wrong(image: MetadataImage, alteration: ScramAlteration) -> KafkaError | None:
    if isinstance(alteration, ScramUpsertion):
        why = why_unacceptable(alteration)
        return None if why is None else _unacceptable(why)
    if (ScramHash(alteration.mechanism), alteration.user) in image.scram_credentials:
        return None
    return error_for(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def why_unacceptable(wanted: ScramUpsertion) -> str | None:
    """Its mechanism is one of `ScramHash`. Kafka refuses less: see §80.3."""
    if wanted.iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if wanted.iterations > ITERATIONS_MAX:
        return "Too many iterations"
    if wanted.user == ANONYMOUS.name:
        return f"{ANONYMOUS.name} is the name of those who have not logged in"
    if len(wanted.user.encode()) > USER_BYTES_MAX:
        return f"A username has at most {USER_BYTES_MAX} bytes"
    if not SALT_BYTES_MIN <= len(wanted.salt) <= SALT_BYTES_MAX:
        return f"A salt has {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes"
    scram = ScramHash(wanted.mechanism)
    if len(wanted.salted_password) != scram.size_bytes:
        return f"A salted password of {scram.mechanism} has {scram.size_bytes} bytes"
    return None


def _unacceptable(why: str) -> KafkaError:
    return error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
