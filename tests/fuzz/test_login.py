"""200,000 hostile inputs before a login; `make fuzz N=…` for more."""

import pytest

from tests.fuzz import exchanges, login, tls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_hostile_logins_get_nowhere() -> None:
    assert login.run(seed=3, inputs=90_000) > 30_000


def test_hostile_tokens_get_nowhere() -> None:
    assert exchanges.run(seed=3, inputs=90_000) > 75_000


def test_hostile_bytes_through_tls_get_nowhere() -> None:
    assert tls.run(seed=3, inputs=20_000) > 3_000
