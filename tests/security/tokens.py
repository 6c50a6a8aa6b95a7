"""Access tokens for tests, and the keys that they are signed with."""

import base64
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "ottla"
NOW_MS = 1_700_000_000_000


@cache
def private_key(kind: str) -> Any:
    match kind:
        case "RSA":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "short":
            return rsa.generate_private_key(public_exponent=65537, key_size=1024)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def public_jwk(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    """`name` is the kind where none is given."""
    public = private_key(kind).public_key()
    made = {"RSA": RSAAlgorithm, "short": RSAAlgorithm, "EC": ECAlgorithm}.get(kind, OKPAlgorithm)
    return json.loads(made.to_jwk(public)) | {"kid": name or kind} | more


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """None takes a claim away."""
    said = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": NOW_MS // 1000,
        "exp": NOW_MS // 1000 + 300,
    } | changed
    return {name: value for name, value in said.items() if value is not None}


def token(
    said: dict[str, Any], *, kind: str = "RSA", algorithm: str = "RS256", name: str | None = None, **header: Any
) -> str:
    headers = {"kid": kind if name is None else name} | header
    return jwt.PyJWS().encode(json.dumps(said).encode(), private_key(kind), algorithm=algorithm, headers=headers)


def unsigned(said: dict[str, Any], algorithm: str = "none", signature: str = "") -> str:
    header = {"alg": algorithm, "kid": "RSA"}
    return ".".join([*(_encoded(json.dumps(part).encode()) for part in (header, said)), signature])


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
