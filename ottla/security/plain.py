"""PLAIN: the client sends its name and its password as they are (RFC 4616). For listeners with TLS."""

import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.mechanism import Authenticated, AuthenticationError, text_of
from ottla.security.principal import ANONYMOUS, USER, Principal

PLAIN = "PLAIN"
PART_BYTES_MAX = 1024


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
