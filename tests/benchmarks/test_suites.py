"""Every suite that `make bench` names can be imported and measures something."""

import importlib

import pytest

from benchmarks.__main__ import SUITES


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_can_be_run(suite: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{suite}").figures)
