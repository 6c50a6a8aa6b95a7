"""SCRAM: the client proves that it knows its password, and the server that it knows the user (RFC 5802, KIP-84).

The server keeps no password, but two keys that were derived from it. Names and passwords are taken as they are given,
without SASLprep, as in Kafka.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.security.authentication import (
    ANONYMOUS,
    USER,
    Authenticated,
    AuthenticationError,
    Challenge,
    Principal,
    text_of,
)
from ottla.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramHash,
    decoy,
    salted_password,
)

TOKEN_BYTES_MAX = 16 * 1024


class _ClientFirst(NamedTuple):
    header: str
    """As sent: the channel binding flag and the authorization id."""
    bare: str
    user: str
    nonce: str


# No `m=`: by the RFC an extension that must be understood ends the exchange.
_NAME = "(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS = "(?:,[A-Za-z]+=[^,\0]+)*"
_CLIENT_FIRST = re.compile(
    f"(?P<header>n,(?:a=(?P<id>{_NAME}))?,)(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[!-+\\--~]+){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    f"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\\--~]+){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST = re.compile(r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?")

# Until the first message has come.
_NOBODYS = ScramCredential(b"", b"", b"", 0)


class ScramMechanism:
    def __init__(
        self, scram: ScramHash, find: Callable[[str], ScramCredential | None], nonce: str, secret: bytes
    ) -> None:
        """`find` gives the credential of a user. `nonce`: fresh, of at least 128 random bits, printable ASCII without a
        comma. `secret` is the cluster's, for the decoys."""
        self._scram = scram
        self._find = find
        self._nonce = nonce
        self._secret = secret
        self._first: _ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._shown = _NOBODYS
        self._is_over = False

    def respond(self, token: bytes, now_wall_ms: int) -> Challenge | Authenticated:  # noqa: ARG002 - no password ends
        if self._is_over:
            raise AuthenticationError("a token behind the end of the exchange")
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationError("the token is too long")
        text = text_of(token, self._scram.mechanism)
        if self._first is None:
            return self._challenge(text)
        self._is_over = True
        return self._authenticate(self._first, text)

    def _challenge(self, text: str) -> Challenge:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationError("the first message of the client is malformed")
        user = _unescaped(match["user"])
        if match["id"] is not None and _unescaped(match["id"]) != user:
            why = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationError("claims another authorization id", for_client=why, user=user)
        self._first = _ClientFirst(match["header"], match["bare"], user, match["nonce"])
        # Step by step the same for those who do not exist: what takes longer shows.
        self._credential = None if user == ANONYMOUS.name else self._find(user)
        substitute = decoy(self._scram, self._secret, user)
        shown = self._shown = self._credential or substitute
        if shown.iterations < ITERATIONS_MIN:
            raise AuthenticationError(f"the credential has {shown.iterations} iterations", user=user)
        salt = base64.b64encode(shown.salt).decode()
        self._server_first = f"r={match['nonce']}{self._nonce},s={salt},i={shown.iterations}"
        return Challenge(self._server_first.encode())

    def _authenticate(self, first: _ClientFirst, text: str) -> Authenticated:
        user = first.user
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationError("the final message of the client is malformed", user=user)
        # Whole and equal: an end or a beginning of it can be had from another exchange (CVE-2024-56128).
        if not hmac.compare_digest(match["nonce"], first.nonce + self._nonce):
            raise AuthenticationError("the nonce is not the one of this exchange", user=user)
        if _decoded(match["binding"]) != first.header.encode():
            raise AuthenticationError("the channel binding is not the one that was announced", user=user)
        proof = _decoded(match["proof"])
        if proof is None or len(proof) != self._scram.size_bytes:
            raise AuthenticationError("the proof is malformed", user=user)
        shown = self._shown
        message = f"{first.bare},{self._server_first},{match['without_proof']}".encode()
        client_key = _xor(self._scram.hmac(shown.stored_key, message), proof)
        is_proved = hmac.compare_digest(self._scram.digest(client_key), shown.stored_key)
        if not is_proved or self._credential is None:
            raise AuthenticationError(
                "there is no such user" if self._credential is None else "wrong password", user=user
            )
        signature = self._scram.hmac(shown.server_key, message)
        return Authenticated(Principal(USER, user), b"v=" + base64.b64encode(signature))


class ScramClient:
    """The client's side: a broker that logs in to another, and the command line."""

    def __init__(self, scram: ScramHash, user: str, password: str, nonce: str) -> None:
        """`nonce`: fresh, at least 128 random bits, printable ASCII without a comma."""
        self._scram = scram
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Takes milliseconds, see `salted_password`. Raises AuthenticationError for a server that breaks the rules."""
        text = text_of(server_first, self._scram.mechanism)
        match = _SERVER_FIRST.fullmatch(text)
        salt = None if match is None else _decoded(match["salt"])
        if match is None or salt is None:
            raise AuthenticationError("the first message of the server is malformed")
        iterations = int(match["iterations"])
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise AuthenticationError("the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= iterations <= 100 * ITERATIONS_MAX:
            raise AuthenticationError(f"the server asks for {iterations} iterations")
        salted = salted_password(self._scram, self._password, salt, iterations)
        client_key = self._scram.hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={match['nonce']}"
        message = f"{self._bare},{text},{without_proof}".encode()
        proof = _xor(client_key, self._scram.hmac(self._scram.digest(client_key), message))
        self._signature = self._scram.hmac(self._scram.hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Whether the server knows the user. Raises AuthenticationError."""
        signature = _decoded(server_final[2:].decode("ascii", "replace")) if server_final.startswith(b"v=") else None
        if signature is None or not self._signature or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationError("the server has not proved that it knows the user")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes | None:
    """Of base64 with all its padding; None for anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
