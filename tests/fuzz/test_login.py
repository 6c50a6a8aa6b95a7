"""Hostile logins; `make fuzz N=…` for more."""

from tests.fuzz import login


def test_hostile_logins_get_nowhere() -> None:
    assert login.run(seed=3, inputs=3_000) > 1_000
