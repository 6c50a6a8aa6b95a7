"""Who a client is, and how it shows that: principals, SASL mechanisms as the server sees them, and the simplest, PLAIN.

A mechanism takes tokens of the client and gives tokens for it, until the client is known or is not. One object serves
one authentication of one connection. Sources: RFC 4422, KIP-43. PLAIN, by which the client sends its name and its
password as they are (RFC 4616), is for listeners with TLS.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple, Protocol

PLAIN = "PLAIN"
PART_BYTES_MAX = 1024
"""Of a token of PLAIN: each of its three parts."""
USER = "User"


class Principal(NamedTuple):
    """Equal to another with the same type and name; both are case-sensitive, as in Kafka."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who came by a listener without a login."""


def parse_principal(text: str) -> Principal:
    """Of `Type:Name`; the name may have colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is no principal: one is written Type:Name, as in User:alice")
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Of `super.users`: separated by semicolons, since the names of certificates have commas. Raises ValueError."""
    return frozenset(parse_principal(entry.strip()) for entry in text.split(";") if entry.strip())


class Challenge(NamedTuple):
    """The exchange goes on: the client answers this token with one of its own."""

    token: bytes


class Authenticated(NamedTuple):
    """The client is who it says it is. It gets the token."""

    principal: Principal
    token: bytes = b""
    expires_wall_ms: int | None = None
    """When what it has shown ends to count; None: never."""


class AuthenticationError(Exception):
    """The client has not proved who it is.

    `str()` is for the log, and says why. `for_client` says no more than everybody may know: None stands for one and the
    same sentence about all that would show whether a user exists. `user` is the name that was claimed, unproved.
    """

    def __init__(self, why: str, *, for_client: str | None = None, user: str = "") -> None:
        super().__init__(why)
        self.for_client = for_client
        self.user = user


class Mechanism(Protocol):
    """The server's side of one exchange."""

    def respond(self, token: bytes, now_wall_ms: int) -> Challenge | Authenticated:
        """Raises AuthenticationError; the object is of no use then."""
        ...


def text_of(token: bytes, mechanism: str) -> str:
    """Raises AuthenticationError for what is no UTF-8."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationError(f"a token of {mechanism} is not UTF-8") from None


class PlainMechanism:
    def __init__(self, passwords: Mapping[str, bytes]) -> None:
        """`passwords`: of each user, as UTF-8."""
        self._passwords = passwords

    def respond(self, token: bytes, now_wall_ms: int) -> Authenticated:  # noqa: ARG002 - a password does not end
        if len(token) > 3 * PART_BYTES_MAX + 2:
            raise AuthenticationError("the token is too long")
        parts = text_of(token, PLAIN).split("\0")
        if len(parts) != 3:
            raise AuthenticationError(
                f"the token has {len(parts)} parts", for_client="Invalid SASL/PLAIN response: expected 3 tokens"
            )
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationError("no user name", for_client="Authentication failed: username not specified")
        if not password:
            why = "Authentication failed: password not specified"
            raise AuthenticationError("no password", for_client=why, user=user)
        self._check_password(user, password.encode())
        # After the password: before it, the answer would show a stranger which names exist (CVE-2017-12610).
        if authorization_id not in ("", user):
            why = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationError(f"claims the authorization id {authorization_id!r}", for_client=why, user=user)
        return Authenticated(Principal(USER, user))

    def _check_password(self, user: str, password: bytes) -> None:
        """As long for a user who does not exist as for a wrong password, however long it is (CVE-2021-38153)."""
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest(_digest(expected or b""), _digest(password))
        if expected is None or not is_equal or user == ANONYMOUS.name:
            why = "wrong password" if expected is not None and not is_equal else "there is no such user"
            raise AuthenticationError(why, for_client="Authentication failed: Invalid username or password", user=user)


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()
