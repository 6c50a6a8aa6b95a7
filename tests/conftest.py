import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

from tests.served import ServedBroker

# Rebalances start at once unless a test wants to see the delay.
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0"}

# The same examples in every run, and no failure for being slow: what a test finds depends on the code alone.
# `pytest --hypothesis-profile default` looks for new ones.
hypothesis.settings.load_profile("ci")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker process with an empty data directory of its own."""
    with ServedBroker(tmp_path / "data", QUICK_GROUPS) as served:
        yield served


@pytest.fixture
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of every disk is free, for the brokers of this process: on one that is nearly full they are degraded."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(total=100, free=50))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--show-timeline", action="store_true", help="print the timeline of states of group scenarios")
