"""Access tokens: signed statements about who somebody is, of an issuer that this broker trusts (RFC 7515, 7517, 7519).

Only the signature is checked by a library, with a public key of ours and the algorithms which that key allows: nothing
in the token chooses either. Keys come from a JSON Web Key Set, and are found by the name that the token gives. Tokens
without a signature, and those signed with a shared secret, are never accepted.

PyJWT and cryptography come with the extra `oauth`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

Claims: TypeAlias = Mapping[str, Any]
"""What a JSON object says: of a token, of its header, of a key."""

_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS_MIN = 2048
KEYS_MAX = 1_000
KEY_ID_LENGTH_MAX = 1_000


class TokenRefused(Exception):
    """`str()` is for the log. `subject` is the name that was claimed, unproved; empty where none was read."""

    subject = ""


class KeySetError(ValueError):
    """One plain sentence."""


class VerificationKey(NamedTuple):
    key: Any
    """A public key of cryptography."""
    algorithms: tuple[str, ...]


class TokenRules(NamedTuple):
    """What a token has to say. None: any."""

    issuer: str | None
    audience: tuple[str, ...] | None
    skew_ms: int
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class AccessToken(NamedTuple):
    subject: str
    scopes: frozenset[str]
    expires_wall_ms: int


def parse_key_set(content: bytes) -> dict[str, VerificationKey]:
    """The public keys for signatures, by their names; others are passed over. Raises KeySetError."""
    found = _object_of(content)
    if found is None:
        raise KeySetError("it is no JSON Web Key Set")
    entries = _list_of(found.get("keys"))
    if entries is None or len(entries) > KEYS_MAX:
        raise KeySetError(f"it has no list of at most {KEYS_MAX:,} keys")
    keys: dict[str, VerificationKey] = {}
    for entry in entries:
        if isinstance(entry, dict) and _is_for_signatures(cast("Claims", entry)):
            key = _verification_key(cast("Claims", entry))
            if key is not None:
                keys[cast("Claims", entry)["kid"]] = key
    if not keys:
        raise KeySetError("it has no public key with a name (kid) that signatures could be checked with")
    return keys


def _object_of(content: bytes) -> Claims | None:
    """What the JSON says; None where it is no object."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return cast("Claims", found) if isinstance(found, dict) else None


def _list_of(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, list) else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _is_for_signatures(entry: Claims) -> bool:
    name, operations = entry.get("kid"), entry.get("key_ops")
    return (
        isinstance(name, str)
        and 0 < len(name) <= KEY_ID_LENGTH_MAX
        and entry.get("use", "sig") == "sig"
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
        # A private key has no place there, and is not used.
        and "d" not in entry
    )


def _verification_key(entry: Claims) -> VerificationKey | None:
    try:
        key, algorithms = _public_key(entry)
    except (jwt.InvalidKeyError, ValueError, TypeError, KeyError):
        return None
    wanted = entry.get("alg")
    allowed = algorithms if wanted is None else tuple(each for each in algorithms if each == wanted)
    return VerificationKey(key, allowed) if allowed else None


def _public_key(entry: Claims) -> tuple[Any, tuple[str, ...]]:
    """With the algorithms that it allows. Raises ValueError, and what PyJWT raises for a malformed one."""
    match entry.get("kty"):
        case "RSA":
            key: Any = RSAAlgorithm.from_jwk(dict(entry))
            if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _RSA_BITS_MIN:
                return key, _RSA_ALGORITHMS
        case "EC":
            key = ECAlgorithm.from_jwk(dict(entry))
            if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _EC_ALGORITHMS:
                return key, (_EC_ALGORITHMS[key.curve.name],)
        case "OKP":
            key = OKPAlgorithm.from_jwk(dict(entry))
            if isinstance(key, ed25519.Ed25519PublicKey):
                return key, ("EdDSA",)
        case _:
            pass
    raise ValueError("a key of no kind that signatures are checked with")


class AccessTokenValidator:
    def __init__(self, rules: TokenRules, find_key: Callable[[str], VerificationKey | None]) -> None:
        """`find_key` gives the key of a name; asked for one that is not known, it may look for newer keys later."""
        self._rules = rules
        self._find_key = find_key

    def validate(self, token: str, now_wall_ms: int) -> AccessToken:
        """Raises TokenRefused."""
        claims = self._verified_claims(token)
        try:
            return self._accepted(claims, now_wall_ms)
        except TokenRefused as refusal:
            subject = claims.get(self._rules.subject_claim)
            refusal.subject = subject if isinstance(subject, str) else ""
            raise

    def _verified_claims(self, token: str) -> Claims:
        header = _unverified_header(token)
        name = header.get("kid")
        if not isinstance(name, str) or not name:
            raise TokenRefused("the token does not say which key it is signed with (kid)")
        key = self._find_key(name)
        if key is None:
            raise TokenRefused(f"the token is signed with the key {name[:100]!r}, which is not in the key set")
        try:
            payload: bytes = jwt.PyJWS().decode(token, key.key, algorithms=list(key.algorithms))
        except jwt.InvalidTokenError as error:
            raise TokenRefused(f"the signature of the token is not valid: {error}") from None
        claims = _object_of(payload)
        if claims is None:
            raise TokenRefused("the token is signed, but is no JSON object")
        return claims

    def _accepted(self, claims: Claims, now_wall_ms: int) -> AccessToken:
        rules = self._rules
        expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
        if expires_ms is None or issued_ms is None:
            raise TokenRefused("the token lacks exp or iat")
        if expires_ms <= now_wall_ms - rules.skew_ms:
            raise TokenRefused("the token has expired")
        if max(issued_ms, _time_ms(claims, "nbf") or 0) > now_wall_ms + rules.skew_ms:
            raise TokenRefused("the token is not valid yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise TokenRefused("the token is of another issuer")
        if rules.audience is not None and not set(rules.audience).intersection(_texts(claims, "aud")):
            raise TokenRefused("the token is for another audience")
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"the token names no user ({rules.subject_claim})")
        return AccessToken(subject.strip(), _scopes(claims, rules.scope_claim), expires_ms)


def _unverified_header(token: str) -> Claims:
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("the token is not signed, or no JSON Web Token")
    try:
        return jwt.PyJWS().get_unverified_header(token)
    except jwt.InvalidTokenError as error:
        raise TokenRefused(f"the token cannot be read: {error}") from None
    except RecursionError:
        raise TokenRefused("the token cannot be read") from None


def _time_ms(claims: Claims, name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    # JSON's numbers reach beyond those of clocks, and Python's have NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRefused(f"{name} of the token is no time")
    return int(value * 1000)


def _texts(claims: Claims, name: str) -> list[str]:
    """Of a claim that is a text, or a list of texts."""
    value = claims.get(name)
    entries = _list_of(value)
    return [entry for entry in ([value] if entries is None else entries) if isinstance(entry, str)]


def _scopes(claims: Claims, name: str) -> frozenset[str]:
    value = claims.get(name)
    if value is None:
        return frozenset()
    entries = _list_of(value.split(" ") if isinstance(value, str) else value)
    scopes = [each.strip() for each in _texts({name: entries}, name)]
    if entries is None or len(scopes) < len(entries) or not all(scopes):
        raise TokenRefused(f"{name} of the token is no list of scopes")
    if len(set(scopes)) < len(scopes):
        raise TokenRefused(f"{name} of the token has a scope twice")
    return frozenset(scopes)
