import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

from tests.served import ServedBroker

# Rebalances start at once unless a test wants to see the delay.
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0"}

# Files that take longest, by waiting or by computing, come first: begun last, one would keep a single process busy
# when the others have nothing left to do (`pytest --durations=60` shows what takes long).
LONG_FILES_FIRST = (
    "docker/test_mini_cluster.py",
    "simulation/cluster/test_worlds.py",
    "docker/test_image.py",
    "simulation/cluster/test_seeded_bugs.py",
    "docs/test_pasted.py",
    "docs/test_cookbook.py",
    "shared/test_shared_broker.py",
    "siege/test_siege.py",
    "clients/test_franz_go.py",
    "kit/test_suite_isolation.py",
    "simulation/cluster/test_widened.py",
    "storm/test_storm.py",
    "cli/doctor/test_clusters.py",
    "cli/test_end_to_end.py",
    "clients/test_transactions.py",
    "clients/test_confluent_kafka.py",
    "clients/test_java_transactions.py",
    "clients/test_kill.py",
    "clients/test_java.py",
    "clients/test_transactional_offsets.py",
    "clients/test_kafka_streams.py",
    "simulation/test_worlds.py",
    "storage/test_leader_epoch_checkpoint.py",
    "structure/test_structure.py",
)

# The same examples in every run, and no failure for being slow: what a test finds depends on the code alone.
# `pytest --hypothesis-profile default` looks for new ones.
hypothesis.settings.load_profile("ci")


# Most tests leave little garbage, and all of it together fits well into memory.
GARBAGE_THRESHOLDS = (5_000, 10, 50)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker process with an empty data directory of its own."""
    with ServedBroker(tmp_path / "data", QUICK_GROUPS) as served:
        yield served


@pytest.fixture
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of every disk is free, for the brokers of this process: on one that is nearly full they are degraded."""
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_frsize=1, f_blocks=100, f_bavail=50))


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Its suites print the same wherever they run: pytest's summary repeats whole messages where `CI` is set.

    They go without the plugin that imports all of Hypothesis at the end of a session: half the time of a short suite.
    """
    for variable in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    turns = {here / name: turn for turn, name in enumerate(LONG_FILES_FIRST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What was imported and collected is there until the end. Python's collector would look through it again and again,
    for a tenth of the time that the tests take."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(*GARBAGE_THRESHOLDS)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A file leaves no garbage to the next one. A future whose exception was not retrieved logs a traceback when it is
    collected; where a library parses source at that moment, Python 3.11 fails with SystemError (tests/syntax.py). What
    is left is in use, and the collections after the next files need not look through it again."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--show-timeline", action="store_true", help="print the timeline of states of group scenarios")
