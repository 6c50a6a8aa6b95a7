"""Hostile logins; `make fuzz N=…` for more."""

from tests.fuzz import exchanges, login, tls


def test_hostile_logins_get_nowhere() -> None:
    assert login.run(seed=3, inputs=3_000) > 1_000


def test_hostile_tokens_get_nowhere() -> None:
    assert exchanges.run(seed=3, inputs=3_000) > 2_500


def test_hostile_bytes_through_tls_get_nowhere() -> None:
    assert tls.run(seed=3, inputs=600) > 100
