"""OAUTHBEARER: the client shows an access token that somebody else has issued (RFC 7628, KIP-255, KIP-768).

A token that is refused is answered in two steps: with a reason as JSON, and when the client has acknowledged that with
a single byte, with the failure itself.
"""

import json
import re
from collections.abc import Callable

from ottla.security.access_token import AccessToken, TokenRefused
from ottla.security.authentication import (
    ANONYMOUS,
    USER,
    Authenticated,
    AuthenticationError,
    Challenge,
    Principal,
    text_of,
)

OAUTHBEARER = "OAUTHBEARER"
TOKEN_BYTES_MAX = 64 * 1024
_ACKNOWLEDGEMENT = b"\x01"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_CLIENT_FIRST = re.compile(rf"n,(?:a=(?P<id>(?:[^=,\0]|=2C|=3D)+))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_BEARER = re.compile(r"bearer +(?P<token>[-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)


class OAuthBearerMechanism:
    def __init__(self, validate: Callable[[str, int], AccessToken]) -> None:
        """`validate` takes a token and the time in ms of the wall clock. Raises TokenRefused."""
        self._validate = validate
        self._refused: AuthenticationError | None = None
        self._is_over = False

    def respond(self, token: bytes, now_wall_ms: int) -> Challenge | Authenticated:
        if self._refused is not None:
            raise self._refused if token == _ACKNOWLEDGEMENT else AuthenticationError("goes on after a refusal")
        if self._is_over:
            raise AuthenticationError("a token behind the end of the exchange")
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationError("the token is too long")
        self._is_over = True
        authorization_id, bearer = _parse(text_of(token, OAUTHBEARER))
        try:
            accepted = self._validate(bearer, now_wall_ms)
        except TokenRefused as refusal:
            return self._refuse(refusal)
        user = accepted.subject
        if user == ANONYMOUS.name:
            raise AuthenticationError("claims the name of those without a login", user=user)
        if authorization_id not in (None, user):
            why = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationError("claims another authorization id", for_client=why, user=user)
        return Authenticated(Principal(USER, user), expires_wall_ms=accepted.expires_wall_ms)

    def _refuse(self, refusal: TokenRefused) -> Challenge:
        answer = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
        self._refused = AuthenticationError(str(refusal), for_client=answer, user=refusal.subject)
        return Challenge(answer.encode())


def _parse(text: str) -> tuple[str | None, str]:
    """Authorization id and token of the client's first message; other pairs are extensions, and count for nothing."""
    match = _CLIENT_FIRST.fullmatch(text)
    if match is None:
        raise AuthenticationError("the first message of the client is malformed")
    found = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(found.get("auth", ""))
    if bearer is None or match["pairs"].count("\x01") != len(found):
        raise AuthenticationError("the first message of the client has no token, or a key twice")
    name = match["id"]
    return None if name is None else name.replace("=2C", ",").replace("=3D", "="), bearer["token"]
