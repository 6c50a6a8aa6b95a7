"""The client's side of a SASL mechanism: tokens for the server out, tokens of the server in, until it is done.

One object serves one authentication of one connection. It is for a broker that logs in to another, and for the command
line.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.security.authentication import PLAIN, AuthenticationError
from ottla.security.scram_credential import SCRAM_MECHANISMS

if TYPE_CHECKING:
    from ottla.security.scram import ScramClient

CLIENT_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
"""By which a client can log in."""
NONCE_BYTES: Final = 16


class Secret:
    """`str`, `repr` and formatting hide it; `reveal` is the only way to it, so that a search finds who uses it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class LoginCredentials(NamedTuple):
    """Who logs in, and by which mechanism."""

    mechanism: str
    user: str
    password: Secret


class ClientMechanism(Protocol):
    """`first`, then `respond` with each token of the server until that gives None."""

    def first(self) -> bytes:
        """The token that begins."""
        ...

    def respond(self, token: bytes) -> bytes | None:
        """The answer to a server's token; None: it was the last one, and the server has proved what it has to prove.

        May take milliseconds, see `salted_password`. Raises AuthenticationError; the object is of no use then."""
        ...


def client_mechanism(credentials: LoginCredentials, nonce: str) -> ClientMechanism:
    """`nonce`: fresh, at least 128 random bits, printable ASCII without a comma. Raises AuthenticationError for a
    mechanism that is none of CLIENT_MECHANISMS, and for credentials that it cannot carry."""
    mechanism, user, password = credentials
    for what, text in (("the user name", user), ("the password", password.reveal())):
        if not text or "\0" in text:
            raise AuthenticationError(f"{what} is empty, or has a NUL", user=user)
    if mechanism == PLAIN:
        return _PlainClient(user, password)
    scram = SCRAM_MECHANISMS.get(mechanism)
    if scram is None:
        served = ", ".join(CLIENT_MECHANISMS)
        raise AuthenticationError(f"the SASL mechanism {mechanism} is not supported, but {served} are", user=user)
    # Imported here: most commands and brokers log in to nothing.
    from ottla.security.scram import ScramClient

    return _ScramLogin(ScramClient(scram, user, password.reveal(), nonce))


class _PlainClient:
    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password.reveal()}".encode()

    def respond(self, token: bytes) -> bytes | None:
        if token:
            raise AuthenticationError("the server has answered PLAIN with a token")
        return None


class _ScramLogin:
    def __init__(self, scram: "ScramClient") -> None:
        self._scram = scram
        self._has_proved = False

    def first(self) -> bytes:
        return self._scram.first()

    def respond(self, token: bytes) -> bytes | None:
        if self._has_proved:
            self._scram.check(token)
            return None
        self._has_proved = True
        return self._scram.final(token)
