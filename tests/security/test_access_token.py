"""Which access tokens count (docs/semantics, §57)."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.access_token import (
    AccessTokenValidator,
    KeySetError,
    TokenRefused,
    TokenRules,
    VerificationKey,
    parse_key_set,
)
from tests.security.tokens import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    claims,
    key_set,
    private_key,
    public_jwk,
    token,
    unsigned,
)

KEYS = parse_key_set(key_set(*(public_jwk(kind) for kind in ("RSA", "EC", "Ed25519"))))
RULES = TokenRules(ISSUER, (AUDIENCE, "another"), 30_000)
EXPIRES = claims()["exp"]


def validator(rules: TokenRules = RULES, keys: dict[str, VerificationKey] = KEYS) -> AccessTokenValidator:
    return AccessTokenValidator(rules, keys.get)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("RSA", "RS256"), ("RSA", "RS512"), ("RSA", "PS384"), ("EC", "ES256"), ("Ed25519", "EdDSA")],
)
def test_signed_token_says_who_it_is(kind: str, algorithm: str) -> None:
    accepted = validator().validate(token(claims(scope="read write"), kind=kind, algorithm=algorithm), NOW_MS)

    assert accepted == ("alice", {"read", "write"}, EXPIRES * 1000)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": None}, "lacks exp or iat"),
        ({"iat": None}, "lacks exp or iat"),
        ({"exp": NOW_MS // 1000 - 30}, "has expired"),
        ({"iat": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"nbf": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"exp": "soon"}, "exp of the token is no time"),
        ({"exp": -1}, "exp of the token is no time"),
        ({"exp": True}, "exp of the token is no time"),
        ({"exp": 1e300}, "exp of the token is no time"),
        ({"exp": float("nan")}, "exp of the token is no time"),
        ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "ottl"}, "another audience"),
        ({"aud": ["x", 7]}, "another audience"),
        ({"sub": None}, "names no user"),
        ({"sub": "  "}, "names no user"),
        ({"sub": 7}, "names no user"),
        ({"scope": 7}, "no list of scopes"),
        ({"scope": ["a", " "]}, "no list of scopes"),
        ({"scope": ["a", 7]}, "no list of scopes"),
        ({"scope": ["a", "a"]}, "has a scope twice"),
    ],
)
def test_token_that_says_something_else_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        validator().validate(token(claims(**changed)), NOW_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": NOW_MS // 1000 - 29},
        {"iat": NOW_MS // 1000 + 30},
        {"nbf": NOW_MS // 1000 + 30},
        {"aud": ["x", "another"]},
        {"sub": " alice "},
        {"scope": ["a", "b"]},
    ],
)
def test_token_within_the_rules_counts(changed: dict[str, Any]) -> None:
    assert validator().validate(token(claims(**changed)), NOW_MS).subject == "alice"


def test_other_claims_may_name_user_and_scopes() -> None:
    rules = TokenRules(None, None, 0, "client_id", "scp")

    accepted = validator(rules).validate(token(claims(client_id="app", scp=["x"], iss=None, aud=None)), NOW_MS)

    assert accepted[:2] == ("app", {"x"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (unsigned(claims()), "not signed"),
        (unsigned(claims(), signature="AAAA"), "signature of the token is not valid"),
        (token(claims(), name="RSA", kind="EC", algorithm="ES256"), "signature of the token is not valid"),
        (token(claims(), name="EC"), "signature of the token is not valid"),
        (token(claims(), name="unknown"), "'unknown', which is not in the key set"),
        (token(claims(), name=""), "does not say which key"),
        (token(claims(), crit=["exp"]), "critical extension"),
        ("a.b.c", "cannot be read"),
        ("", "no JSON Web Token"),
        ("a..c", "no JSON Web Token"),
    ],
)
def test_token_without_a_signature_of_the_key_is_refused(text: str, why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        validator().validate(text, NOW_MS)


def test_public_key_is_no_shared_secret() -> None:
    """The old attack: what everybody knows, as the secret of an HMAC."""
    pem = private_key("RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = unsigned(claims(), "HS256")[:-1]
    digest = hmac.new(pem, text.encode(), hashlib.sha256).digest()
    forged = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    with pytest.raises(TokenRefused, match="signature of the token is not valid"):
        validator().validate(f"{text}.{forged}", NOW_MS)


def test_key_that_says_its_algorithm_allows_no_other() -> None:
    keys = parse_key_set(key_set(public_jwk("RSA", alg="RS512")))

    assert validator(keys=keys).validate(token(claims(), algorithm="RS512"), NOW_MS).subject == "alice"
    with pytest.raises(TokenRefused):
        validator(keys=keys).validate(token(claims()), NOW_MS)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        "text",
        public_jwk("RSA", use="enc"),
        public_jwk("RSA", key_ops=["sign"]),
        public_jwk("RSA", alg="HS256"),
        public_jwk("RSA", d="AQAB"),
        public_jwk("short"),
        public_jwk("RSA", "x" * 1001),
        {"kty": "oct", "kid": "secret", "k": "AAAA"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": ["RSA"], "kid": "broken"},
    ],
)
def test_what_is_no_public_key_for_signatures_is_passed_over(entry: Any) -> None:
    assert list(parse_key_set(key_set(public_jwk("EC"), entry))) == ["EC"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON Web Key Set"),
        (b"[]", "no JSON Web Key Set"),
        (b"[" * 100_000, "no JSON Web Key Set"),
        (b'{"keys": {}}', "no list of at most 1,000 keys"),
        (json.dumps({"keys": [{}] * 1001}).encode(), "no list of at most 1,000 keys"),
        (b'{"keys": []}', "no public key with a name"),
    ],
)
def test_what_is_no_key_set_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(KeySetError, match=why):
        parse_key_set(content)


@given(st.text(max_size=200) | st.builds(".".join, st.lists(st.text(max_size=30), min_size=3, max_size=3)))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(text, NOW_MS)


@given(
    st.dictionaries(st.sampled_from([*claims(), "nbf", "scope"]), st.none() | st.booleans() | st.integers() | st.text())
)
def test_any_claims_are_accepted_or_refused(changed: dict[str, Any]) -> None:
    try:
        accepted = validator().validate(token({**claims(), **changed}), NOW_MS)
    except TokenRefused:
        return
    assert accepted.subject
    assert accepted.expires_wall_ms > NOW_MS - RULES.skew_ms
