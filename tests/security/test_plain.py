"""PLAIN (RFC 4616)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.authentication import USER, Authenticated, AuthenticationError, PlainMechanism, Principal

PASSWORDS = {"alice": b"wonder", "bob": "grün".encode(), "ANONYMOUS": b"anybody"}


def login(token: bytes) -> Authenticated:
    return PlainMechanism(PASSWORDS).respond(token, 0)


@pytest.mark.parametrize("token", [b"\0alice\0wonder", b"alice\0alice\0wonder"])
def test_the_right_password_logs_in(token: bytes) -> None:
    assert login(token) == Authenticated(Principal(USER, "alice"))


def test_passwords_are_utf_8() -> None:
    assert login("\0bob\0grün".encode()).principal.name == "bob"


@pytest.mark.parametrize("token", [b"\0alice\0Wonder", b"\0carol\0wonder", b"\0ANONYMOUS\0anybody", b"\0alice\0wonde"])
def test_what_shows_whether_a_user_exists_is_one_sentence(token: bytes) -> None:
    with pytest.raises(AuthenticationError) as refused:
        login(token)
    assert refused.value.for_client == "Authentication failed: Invalid username or password"
    assert refused.value.user


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (b"", "expected 3 tokens"),
        (b"alice\0wonder", "expected 3 tokens"),
        (b"\0alice\0wonder\0", "expected 3 tokens"),
        (b"\0\0wonder", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"root\0alice\0wonder", "authorization id"),
    ],
)
def test_other_mistakes_are_named(token: bytes, sentence: str) -> None:
    with pytest.raises(AuthenticationError) as refused:
        login(token)
    assert sentence in (refused.value.for_client or "")


def test_a_wrong_password_comes_before_another_authorization_id() -> None:
    """CVE-2017-12610: who has no password learns nothing."""
    with pytest.raises(AuthenticationError) as refused:
        login(b"root\0alice\0wrong")
    assert "Invalid username or password" in (refused.value.for_client or "")


@given(st.binary(max_size=4000))
def test_any_bytes_are_refused_and_raise_nothing_else(token: bytes) -> None:
    with pytest.raises(AuthenticationError):
        login(b"x" + token)
