"""Hostile tokens for the two exchanges that have secrets to prove: SCRAM, and OAUTHBEARER with signed access tokens.

Clients of SCRAM have the wrong password, and what they send is damaged on the way; of access tokens, what they say is
changed and the signature kept, or any part is damaged. A login that none of that touched succeeds, so that what is
refused is refused for what was done to it.
"""

import base64
import functools
import json
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.security.access_token import AccessTokenValidator, TokenRules, parse_key_set
from ottla.security.authentication import USER, Authenticated, AuthenticationError, Challenge, Principal
from ottla.security.oauthbearer import OAuthBearerMechanism
from ottla.security.scram import ScramClient, ScramMechanism
from ottla.security.scram_credential import salted_password
from tests.broker.sasl_world import CREDENTIAL, SCRAM
from tests.protocol.fuzz_decoders import damage
from tests.security.tokens import AUDIENCE, ISSUER, NOW_MS, claims, key_set, public_jwk, token

ALICE = Principal(USER, "alice")
KIND, ALGORITHM = "Ed25519", "EdDSA"
KEYS = parse_key_set(key_set(public_jwk(KIND)))
VALIDATOR = AccessTokenValidator(TokenRules(ISSUER, (AUDIENCE,), 30_000), KEYS.get)
GOOD = token(claims(), kind=KIND, algorithm=ALGORITHM)
WORTHLESS: tuple[Any, ...] = (None, "", "none", 0, -1, 1e300, True, [], [[]], {}, {"a": 1}, "x" * 70_000, "\0", "HS256")

Mechanism = ScramMechanism | OAuthBearerMechanism


def run(seed: int, inputs: int) -> int:
    """Gives how many logins have failed. Raises AssertionError for one that has not, or that failed otherwise."""
    rng = random.Random(seed)
    kinds: tuple[Callable[[random.Random], bool], ...] = (_scram, _forged_token, _damaged_token, _noise)
    failed = 0
    # Thousands of hashes for what is mostly the same password and salt.
    with mock.patch("ottla.security.scram.salted_password", functools.cache(salted_password)):
        _check_that_right_ones_log_in()
        for number in range(inputs):
            try:
                failed += not rng.choice(kinds)(rng)
            except Exception as error:
                raise AssertionError(f"seed {seed}, input {number}: {error!r}") from error
    return failed


def _respond(mechanism: Mechanism, message: bytes) -> Challenge | Authenticated | None:
    """None: the login has failed, as it should."""
    try:
        return mechanism.respond(message, NOW_MS)
    except AuthenticationError as error:
        str(error).encode()
        return None


def _scram(rng: random.Random) -> bool:
    """Whether it has logged in."""
    mechanism = _scram_mechanism()
    client = ScramClient(SCRAM, "alice", "wrong" if rng.random() < 0.8 else "", "nonce-of-the-client")
    answer = _respond(mechanism, _perhaps_damaged(client.first(), rng, 0.3))
    if not isinstance(answer, Challenge):
        assert answer is None, "the first message alone has logged in"
        return False
    try:
        final = client.final(answer.token)
    except AuthenticationError:
        final = b"c=biws,r=" + rng.randbytes(20).hex().encode() + b",p=" + base64.b64encode(rng.randbytes(32))
    last = _respond(mechanism, _perhaps_damaged(final, rng, 0.7))
    assert last is None, f"a wrong password has logged in: {last}"
    assert _respond(mechanism, final) is None, "it goes on after the failure"
    return False


def _forged_token(rng: random.Random) -> bool:
    """What it says is changed; its signature is that of another token, or none."""
    header, said = {"alg": ALGORITHM, "kid": KIND}, claims(sub="mallory")
    changed = rng.choice((header, said))
    for _ in range(rng.randrange(3)):
        changed[rng.choice([*changed, "crit", "jwk", "jku", "b64", "nbf"])] = rng.choice(WORTHLESS)
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, said)]
    signature = rng.choice((GOOD.split(".")[2], "", "AAAA", base64.urlsafe_b64encode(rng.randbytes(64)).decode()))
    answer = _show_token(".".join((*parts, signature)).encode())
    assert not isinstance(answer, Authenticated), f"a forged token has logged in: {answer}"
    return False


def _damaged_token(rng: random.Random) -> bool:
    """Damage may leave it as it was, or change what counts for nothing, such as an extension: it is alice's all the
    same, and lasts no longer."""
    answer = (
        _show_token(damage(GOOD.encode(), rng))
        if rng.random() < 0.7
        else _show_message(damage(_first(GOOD.encode()), rng))
    )
    if isinstance(answer, Authenticated):
        assert (answer.principal, answer.expires_wall_ms) == (ALICE, claims()["exp"] * 1000), f"it is {answer}"
        return True
    return False


def _noise(rng: random.Random) -> bool:
    mechanism: Mechanism = _scram_mechanism() if rng.random() < 0.5 else OAuthBearerMechanism(VALIDATOR.validate)
    for _ in range(3):
        assert not isinstance(_respond(mechanism, rng.randbytes(rng.randrange(300))), Authenticated)
    return False


def _show_token(text: bytes) -> Challenge | Authenticated | None:
    return _show_message(_first(text))


def _show_message(message: bytes) -> Challenge | Authenticated | None:
    mechanism = OAuthBearerMechanism(VALIDATOR.validate)
    answer = _respond(mechanism, message)
    if isinstance(answer, Challenge):
        assert json.loads(answer.token)["status"] == "invalid_token"
        assert _respond(mechanism, b"\x01") is None, "it goes on after the refusal"
    return answer


def _first(text: bytes) -> bytes:
    return b"n,,\x01auth=Bearer " + text + b"\x01\x01"


def _scram_mechanism() -> ScramMechanism:
    return ScramMechanism(SCRAM, {"alice": CREDENTIAL}.get, "nonce-of-the-server", b"secret")


def _perhaps_damaged(data: bytes, rng: random.Random, chance: float) -> bytes:
    return damage(data, rng) if rng.random() < chance else data


def _check_that_right_ones_log_in() -> None:
    mechanism, client = _scram_mechanism(), ScramClient(SCRAM, "alice", "wonderland", "nonce-of-the-client")
    challenge = _respond(mechanism, client.first())
    assert isinstance(challenge, Challenge)
    assert isinstance(_respond(mechanism, client.final(challenge.token)), Authenticated)
    assert isinstance(_show_token(GOOD.encode()), Authenticated)
