"""Authentication of one connection by SASL: what comes when, before anything else is served (KIP-43, KIP-152, KIP-368).

ApiVersions may come first, once it is answered with what is served; then SaslHandshake names a mechanism, and the
client's tokens follow: as SaslAuthenticate requests after a handshake of version 1, as bare frames after one of
version 0. A connection whose session has a lifetime authenticates again in the same way, with the same mechanism, as
the same principal.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.security.authentication import Authenticated, AuthenticationError, Challenge, Mechanism, Principal

REAUTHENTICATION_PAUSE_MS = 1_000
NO_LIFETIME = 0


class SaslState(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    """After a handshake of version 0: frames are tokens and nothing else, both ways."""
    COMPLETE = auto()
    FAILED = auto()


class Handshake(NamedTuple):
    """The answer to SaslHandshake."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


class SaslSession(NamedTuple):
    """What an authentication has brought."""

    principal: Principal
    mechanism: str
    expires_ms: int | None
    """On the monotonic clock of logins; None: it does not end."""


class SaslReply(NamedTuple):
    """To a token. `session` is there once the client is known."""

    token: bytes
    session: SaslSession | None = None
    lifetime_ms: int = NO_LIFETIME


class SaslExchange:
    """Of one connection. After an AuthenticationError its state is FAILED, and the connection is to be closed."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], Mechanism]], reauthentication_ms: Callable[[str], int]
    ) -> None:
        """`mechanisms`: those enabled on the listener, in order, each with what makes the object for an exchange.
        `reauthentication_ms`: after how long a session of a mechanism ends; 0: never."""
        self._mechanisms = mechanisms
        self._reauthentication_ms = reauthentication_ms
        self._mechanism: Mechanism | None = None
        self.mechanism_name = ""
        """What the client has named last, enabled or not."""
        self._before: SaslSession | None = None
        self._began_ms: int | None = None
        self.state = SaslState.VERSIONS_OR_HANDSHAKE

    def versions_answered(self) -> None:
        """ApiVersions got its full answer, and not an error."""
        self.state = SaslState.HANDSHAKE

    def handshake(self, mechanism: str, version: int, now_ms: int) -> Handshake:
        """The client names its mechanism; in the state COMPLETE it begins to authenticate again.

        Another mechanism than the first time is found out by the token that follows, as in Kafka."""
        if self.state is SaslState.COMPLETE and not self._may_begin_again(now_ms):
            return Handshake(ErrorCode.ILLEGAL_SASL_STATE, ())
        self.mechanism_name = mechanism
        make = self._mechanisms.get(mechanism)
        if make is None:
            self.state = SaslState.FAILED
            return Handshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, tuple(self._mechanisms))
        self._mechanism, self._began_ms = make(), now_ms
        self.state = SaslState.RAW_TOKENS if version == 0 else SaslState.TOKENS
        return Handshake(ErrorCode.NONE, tuple(self._mechanisms))

    def _may_begin_again(self, now_ms: int) -> bool:
        if self._before is None or self._before.expires_ms is None:
            return False
        return self._began_ms is None or now_ms - self._began_ms >= REAUTHENTICATION_PAUSE_MS

    def respond(self, token: bytes, now_ms: int, now_wall_ms: int) -> SaslReply:
        """Raises AuthenticationError. Sessions are measured on the monotonic clock, expiry in tokens by the wall."""
        assert self._mechanism is not None, "a handshake comes first"
        try:
            return self._respond(self._mechanism, token, now_ms, now_wall_ms)
        except AuthenticationError:
            self.state = SaslState.FAILED
            self._mechanism = None
            raise

    def _respond(self, mechanism: Mechanism, token: bytes, now_ms: int, now_wall_ms: int) -> SaslReply:
        before = self._before
        if before is not None and before.mechanism != self.mechanism_name:
            why = f"SASL mechanism '{self.mechanism_name}' does not match the one of the session, {before.mechanism}"
            raise AuthenticationError(why, for_client=why, user=before.principal.name)
        result = mechanism.respond(token, now_wall_ms)
        if isinstance(result, Challenge):
            return SaslReply(result.token)
        if before is not None and before.principal != result.principal:
            why = "Cannot change principals during re-authentication"
            raise AuthenticationError(why, for_client=why, user=result.principal.name)
        return self._complete(result, now_ms, now_wall_ms)

    def _complete(self, known: Authenticated, now_ms: int, now_wall_ms: int) -> SaslReply:
        lifetimes: list[int] = []
        if known.expires_wall_ms is not None:
            lifetimes.append(max(known.expires_wall_ms - now_wall_ms, 0))
        longest = self._reauthentication_ms(self.mechanism_name)
        if longest > 0:
            lifetimes.append(longest)
        lifetime_ms = min(lifetimes, default=None)
        expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self._before = SaslSession(known.principal, self.mechanism_name, expires_ms)
        self._mechanism = None
        self.state = SaslState.COMPLETE
        return SaslReply(known.token, self._before, lifetime_ms or NO_LIFETIME)


def sentence_for_client(error: AuthenticationError, mechanism: str) -> str:
    """What SaslAuthenticate says about a failure, in Kafka's words."""
    if error.for_client is not None:
        return error.for_client
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
