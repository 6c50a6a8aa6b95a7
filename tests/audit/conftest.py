"""Suites of users for tests of the plugin."""

import pytest

from tests.audit.suites import ini


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    ini(pytester)
    return pytester
