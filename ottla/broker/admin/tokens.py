"""Tokens of the admin listener: who may see which of its pages (docs/operators.md §2.7).

The file has their hashes alone: tokens are random, so a plain hash of one says nothing of it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.config.security import read_secret
from ottla.broker.config.server_admin import AdminOptions
from ottla.broker.config.tls import LOOK_EVERY_MS, signature
from ottla.broker.logging import ADMIN_LOGGER
from ottla.broker.runtime import Runtime

PROPERTY = AdminOptions.ottla_admin_tokens_file.name
_HASH_CHARACTERS = 64


class AdminRole(IntEnum):
    """Each may see what those before it see."""

    METRICS = 1
    """Metrics."""
    VIEWER = 2
    """Also pages that name clients."""
    OPERATOR = 3
    """Also pages that change something, of which there are none yet."""


class Token(NamedTuple):
    name: str
    role: AdminRole


class AdminTokens:
    """Of one file, which is read again when it has changed."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        """Raises ConfigError where the file cannot be used."""
        self._runtime = runtime
        self._path = path
        self._seen = signature(path)
        self._looked_ms = runtime.clock.now_ms()
        self._tokens = read_tokens(path)

    def of(self, headers: Mapping[str, str]) -> Token | None:
        """That of a request, by its header Authorization; None for none that is known."""
        self._look()
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        shown = hashlib.sha256(text.strip().encode("latin-1")).digest()
        found = None
        for digest, token in self._tokens.items():
            if hmac.compare_digest(digest, shown):
                found = token
        return found

    def _look(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        if now_ms - self._looked_ms < LOOK_EVERY_MS:
            return
        self._looked_ms = now_ms
        seen = signature(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        log = self._runtime.log.logger(ADMIN_LOGGER)
        try:
            self._tokens = read_tokens(self._path)
        except ConfigError as error:
            log.error("tokens of the admin listener are not replaced", reason=str(error))
        else:
            log.info("tokens of the admin listener replaced", tokens=len(self._tokens))


def read_tokens(path: Path) -> dict[bytes, Token]:
    """By their hashes. Raises ConfigError, which shows nothing of the file."""
    found: dict[bytes, Token] = {}
    for number, line in enumerate(read_secret(path, PROPERTY).splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{PROPERTY}: line {number} of {path}"
        if len(words) != 3 or words[1].upper() not in AdminRole.__members__:
            roles = ", ".join(each.name.lower() for each in AdminRole)
            raise ConfigError(f"{where} is not NAME ROLE SHA256, with one of the roles {roles}")
        digest = _digest(words[2])
        if digest is None:
            raise ConfigError(f"{where} does not end in a SHA-256 of {_HASH_CHARACTERS} hexadecimal digits")
        if digest in found or any(each.name == words[0] for each in found.values()):
            raise ConfigError(f"{where} has the name or the token of an earlier line")
        found[digest] = Token(words[0], AdminRole[words[1].upper()])
    if not found:
        raise ConfigError(f"{PROPERTY}: there is no token in {path}")
    return found


def _digest(text: str) -> bytes | None:
    if len(text) != _HASH_CHARACTERS:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None
