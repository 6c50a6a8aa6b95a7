"""A suite of real clients gives the same results whatever the isolation, the order of its tests and the workers are.

`tests/kit/suite` has 220 tests; here are thirty of them in each mode, and `make nightly` runs all, in each mode twice.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.suite.bugs import BUGS
from tests.kit.suite.running import SuiteRun, run_suite

IS_WHOLE = "OTTLA_SUITE" in os.environ
TESTS = 220 if IS_WHOLE else 30
SAMPLE = () if IS_WHOLE else ("--sample", str(TESTS))
MODES = ("reset", "snapshot", "fresh")
# Each has another order; what is compared with is in the order of the files.
RUNS = [(mode, order) for order in range(2 if IS_WHOLE else 1) for mode in MODES]
AT_ONCE = 4
"""Clients wait most of their time."""

pytestmark = pytest.mark.timeout(3600)


def run_in(mode: str, seed: int) -> SuiteRun:
    return run_suite("--ottla-isolation", mode, "--order", str(seed), *SAMPLE)


@pytest.fixture(scope="module")
def runs() -> list[SuiteRun]:
    """The first is in the order of the files."""
    with ThreadPoolExecutor(AT_ONCE) as executor:
        first = executor.submit(run_suite, "--ottla-isolation", "reset", *SAMPLE)
        others = [executor.submit(run_in, mode, seed) for seed, (mode, _) in enumerate(RUNS)]
        return [each.result() for each in (first, *others)]


def check(run: SuiteRun, first: SuiteRun) -> None:
    """All has passed, each test has seen something, and that is what it saw in the first run."""
    assert run.failed == [], run.output[-6000:]
    assert len(run.results) == TESTS
    assert all(each["seen"] for each in run.results.values())
    different = [name for name, result in run.results.items() if result != first.results[name]]
    assert different == []


def test_results_depend_on_no_mode_and_no_order(runs: list[SuiteRun]) -> None:
    orders = [tuple(each.results) for each in runs]
    assert len(set(orders)) == len(orders) == len(RUNS) + 1

    for each in runs:
        check(each, runs[0])


@pytest.mark.parametrize("mode", MODES if IS_WHOLE else ("reset",))
def test_four_workers_have_the_results_of_one(runs: list[SuiteRun], mode: str) -> None:
    """TK05, with real clients."""
    options = ("--ottla-isolation", mode, "--order", "5", "-n", "4", *SAMPLE)

    check(run_suite(*options, plugins=("pytest_ottla", "xdist.plugin")), runs[0])


@pytest.mark.parametrize("bug", BUGS)
def test_a_world_that_is_not_emptied_is_found(bug: str) -> None:
    """Seeded: one test meets what another one has left."""
    mode = "reset" if bug.startswith("reset") else "snapshot"

    options = ("--ottla-isolation", mode, "--bug", bug, "-x", "-k", "not kafka-python")
    run = run_suite(*options, files=("seeded.py",), within_s=2)

    assert run.failed != []
