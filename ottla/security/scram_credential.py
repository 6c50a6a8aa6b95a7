"""What a broker keeps of a user's password for SCRAM: two keys derived from it (RFC 5802, KIP-84)."""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
# Of users that Ottla makes, and of those who do not exist: what logs in sees it.
SALT_BYTES: Final = 16


class ScramHash(IntEnum):
    """The numbers are those of AlterUserScramCredentials."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def mechanism(self) -> str:
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def algorithm(self) -> str:
        return "sha256" if self is ScramHash.SHA_256 else "sha512"

    @property
    def size_bytes(self) -> int:
        return 32 if self is ScramHash.SHA_256 else 64

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.algorithm, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.algorithm)


SCRAM_MECHANISMS: Final = {each.mechanism: each for each in ScramHash}


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What a broker keeps of one user and one mechanism: nothing of it is ever shown.

    `revision` is that of the metadata store which wrote it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    revision: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"ScramCredential([hidden], iterations={self.iterations})"


def salted_password(scram: ScramHash, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: `iterations` hashes, one after another."""
    return hashlib.pbkdf2_hmac(scram.algorithm, password, salt, iterations)


def credential_of(scram: ScramHash, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    """`salted` is the salted password, which is all that AlterUserScramCredentials brings."""
    stored_key = scram.digest(scram.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, scram.hmac(salted, b"Server Key"), iterations)


def decoy(scram: ScramHash, secret: bytes, user: str) -> ScramCredential:
    """For a user who does not exist, always the same: who tries names cannot see which there are. No proof fits it."""

    def drawn(what: bytes) -> bytes:
        return scram.hmac(secret, b"%b\0%b\0%b" % (what, scram.mechanism.encode(), user.encode()))

    return ScramCredential(drawn(b"salt")[:SALT_BYTES], drawn(b"stored key"), drawn(b"server key"), ITERATIONS_MIN)
