"""A client's login on a connection, as requests and their answers (KIP-43, KIP-152, KIP-368), without I/O.

    request = login.begin()
    while request is not None:
        request = login.respond(answer to request)

A server says which mechanisms it has only to a client that has named another one, so a client begins with its own. A
session that has a lifetime is renewed by another login on the same connection, before it ends and between two requests.
"""

from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.authentication import AuthenticationError
from ottla.security.client import LoginCredentials, client_mechanism

LOGIN_VERSIONS: Final = {SaslHandshakeRequest: 1, SaslAuthenticateRequest: 2}
"""The newest of each; the handshake in this one alone, for after version 0 the tokens have no headers."""

# The clients of a broker that was restarted would otherwise all come back at once (KIP-368, as Java's client).
RENEWAL_EARLIEST: Final = 0.85
RENEWAL_LATEST: Final = 0.95
# Of what a server says about a failure.
SHOWN_MAX: Final = 256

NO_SASL: Final = "the listener has no SASL, and wants no login"


class ClientLogin:
    """One login. Every AuthenticationError is a sentence for the user, without the password."""

    def __init__(self, credentials: LoginCredentials, nonce: str) -> None:
        """As `client_mechanism`."""
        self._mechanism = client_mechanism(credentials, nonce)
        self._name, self._user = credentials.mechanism, credentials.user
        self.lifetime_ms = 0
        """Of the session, once `respond` has given None; 0: it does not end."""

    def begin(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self._name)

    def respond(self, answer: SaslHandshakeResponse | SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The next request; None: the login has succeeded. May take milliseconds. Raises AuthenticationError, after
        which the connection is of no use."""
        if isinstance(answer, SaslHandshakeResponse):
            self._check_handshake(answer)
            return SaslAuthenticateRequest(auth_bytes=self._mechanism.first())
        self._check_answer(answer)
        token = self._mechanism.respond(bytes(answer.auth_bytes))
        if token is not None:
            return SaslAuthenticateRequest(auth_bytes=token)
        self.lifetime_ms = max(answer.session_lifetime_ms, 0)
        return None

    def _check_handshake(self, answer: SaslHandshakeResponse) -> None:
        match answer.error_code:
            case ErrorCode.NONE:
                return
            case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(map(_shown, answer.mechanisms)) or "none at all"
                why = f"the listener does not offer the SASL mechanism {self._name}, but {offered}"
            case ErrorCode.ILLEGAL_SASL_STATE:
                why = NO_SASL
            case code:
                why = f"the SASL handshake was answered with {_name_of(code)}"
        raise AuthenticationError(why, user=self._user)

    def _check_answer(self, answer: SaslAuthenticateResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            return
        message = _shown(answer.error_message or "").rstrip(".")
        if answer.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            message = f"{_name_of(answer.error_code)}{': ' if message else ''}{message}"
        raise AuthenticationError(message or "the user or the password is wrong", user=self._user)


def renewal_ms(lifetime_ms: int, draw: float) -> int | None:
    """After how many milliseconds to log in again; None: never. `draw` is random, from 0 to 1."""
    if lifetime_ms <= 0:
        return None
    return int(lifetime_ms * (RENEWAL_EARLIEST + draw * (RENEWAL_LATEST - RENEWAL_EARLIEST)))


def _shown(text: str) -> str:
    """What a server says goes to terminals and logs."""
    return "".join(each if each.isprintable() else "?" for each in text[:SHOWN_MAX])


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
