"""Secrets do not show themselves."""

from ottla.security.client import Secret


def test_a_secret_is_shown_to_who_asks_for_it_alone() -> None:
    secret = Secret("pencil")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r}", "%s" % secret, repr([secret])]  # noqa: UP031
    assert secret.reveal() == "pencil"
    assert not any("pencil" in text for text in shown)


def test_secrets_are_compared() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
