"""Suites of users, which pytest's own pytester runs."""

import pytest


def ini(suite: pytest.Pytester, *lines: str) -> None:
    suite.makeini("\n".join(["[pytest]", "asyncio_default_fixture_loop_scope = function", *lines]))


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)
