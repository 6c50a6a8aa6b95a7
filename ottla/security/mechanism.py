"""A SASL mechanism as the server sees it: tokens of the client in, tokens for the client out, until it is known or not.

One object serves one authentication of one connection. Sources: RFC 4422, KIP-43.
"""

from typing import NamedTuple, Protocol

from ottla.security.principal import Principal


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
