"""OAUTHBEARER: the exchange (docs/semantics, §57)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.access_token import AccessToken, TokenRefused
from ottla.security.authentication import USER, Authenticated, AuthenticationError, Challenge, Principal
from ottla.security.oauthbearer import OAuthBearerMechanism

GOOD = "good.token-of_alice~1/+="
NOW_MS = 1_000


def validate(token: str, now_wall_ms: int) -> AccessToken:
    if token != GOOD:
        refusal = TokenRefused('a "reason"')
        refusal.subject = "mallory"
        raise refusal
    return AccessToken("alice", frozenset(), now_wall_ms + 60_000)


def first(*pairs: str, header: str = "n,,") -> bytes:
    return (header + "\x01" + "".join(f"{pair}\x01" for pair in pairs) + "\x01").encode()


@pytest.mark.parametrize(
    "token",
    [
        first(f"auth=Bearer {GOOD}"),
        first(f"auth=BEARER   {GOOD}"),
        first("key=some value", f"auth=bearer {GOOD}", "other=x\r\n\ty"),
        first(f"auth=Bearer {GOOD}", header="n,a=alice,"),
    ],
)
def test_token_that_counts_says_who_it_is(token: bytes) -> None:
    accepted = OAuthBearerMechanism(validate).respond(token, NOW_MS)

    assert accepted == Authenticated(Principal(USER, "alice"), b"", NOW_MS + 60_000)


def test_refused_token_is_answered_before_the_login_fails() -> None:
    mechanism = OAuthBearerMechanism(validate)

    answer = mechanism.respond(first("auth=Bearer wrong"), NOW_MS)

    assert isinstance(answer, Challenge)
    assert json.loads(answer.token) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationError) as failed:
        mechanism.respond(b"\x01", NOW_MS)
    assert (failed.value.for_client, failed.value.user) == (answer.token.decode(), "mallory")
    assert str(failed.value) == 'a "reason"'


def test_client_cannot_go_on_after_a_refusal() -> None:
    mechanism = OAuthBearerMechanism(validate)
    mechanism.respond(first("auth=Bearer wrong"), NOW_MS)

    with pytest.raises(AuthenticationError, match="goes on after a refusal"):
        mechanism.respond(first(f"auth=Bearer {GOOD}"), NOW_MS)


def test_exchange_ends_with_its_token() -> None:
    mechanism = OAuthBearerMechanism(validate)
    mechanism.respond(first(f"auth=Bearer {GOOD}"), NOW_MS)

    with pytest.raises(AuthenticationError, match="behind the end"):
        mechanism.respond(first(f"auth=Bearer {GOOD}"), NOW_MS)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x01",
        first(),
        first("key=value"),
        first(f"auth=Basic {GOOD}"),
        first(f"auth=Bearer{GOOD}"),
        first("auth=Bearer "),
        first("auth=Bearer a b"),
        first(f"auth=Bearer {GOOD}", f"auth=Bearer {GOOD}"),
        first(f"AUTH=Bearer {GOOD}"),
        first("1=x", f"auth=Bearer {GOOD}"),
        first(f"auth=Bearer {GOOD}", "empty="),
        first(f"auth=Bearer {GOOD}", header="y,,"),
        first(f"auth=Bearer {GOOD}", header="p=tls-unique,,"),
        first(f"auth=Bearer {GOOD}")[:-1],
        first(f"auth=Bearer {GOOD}") + b"x",
        first(f"auth=Bearer {GOOD}", "k=\x7f"),
        b"\xff" + first(f"auth=Bearer {GOOD}"),
        first(f"auth=Bearer {GOOD}", "k=" + "x" * 70_000),
    ],
)
def test_malformed_message_ends_the_login(token: bytes) -> None:
    with pytest.raises(AuthenticationError) as failed:
        OAuthBearerMechanism(validate).respond(token, NOW_MS)

    assert failed.value.for_client is None


def test_name_of_those_without_a_login_is_refused() -> None:
    """§59.2"""
    mechanism = OAuthBearerMechanism(lambda *_: AccessToken("ANONYMOUS", frozenset(), NOW_MS))

    with pytest.raises(AuthenticationError):
        mechanism.respond(first(f"auth=Bearer {GOOD}"), NOW_MS)


def test_no_user_acts_for_another() -> None:
    with pytest.raises(AuthenticationError, match="another authorization id"):
        OAuthBearerMechanism(validate).respond(first(f"auth=Bearer {GOOD}", header="n,a=bob,"), NOW_MS)


@given(st.binary(max_size=300))
def test_any_bytes_end_the_login(token: bytes) -> None:
    with pytest.raises(AuthenticationError):
        OAuthBearerMechanism(validate).respond(token, NOW_MS)
