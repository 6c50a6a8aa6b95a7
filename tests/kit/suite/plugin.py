"""The plugin that runs the suite: its fixtures, the order of its tests, and the results that are compared.

    python -m pytest -c tests/kit/suite/suite.ini -p tests.kit.suite.plugin --results FILE tests/kit/suite/producing.py

`tests.kit.suite.running` does that.
"""

import gc
import json
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.kit.suite.bugs import BUGS
from tests.kit.suite.cases import CASES, LIBRARIES, Case
from tests.kit.suite.library import Library
from tests.kit.suite.place import Place, Seen, comparable

SAMPLE_SEED = 14
_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--results", help="the file for what each test has seen")
    group.addoption("--order", type=int, help="the seed of the order of the tests")
    group.addoption("--sample", type=int, help="how many tests are run, the same ones each time")
    group.addoption("--at", help="HOST:PORT of a broker that runs already, which nothing empties")
    group.addoption("--bug", choices=tuple(BUGS), help="one that is seeded")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("bug") is not None:
        BUGS[config.getoption("bug")]()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Results(config), "suite-results")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("case", CASES, ids=str)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    size, order = config.getoption("sample"), config.getoption("order")
    if size is not None:
        items[:] = random.Random(SAMPLE_SEED).sample(items, size)
    if order is not None:
        random.Random(order).shuffle(items)


@pytest.fixture(scope="session")
def admin(pytestconfig: pytest.Config) -> AdminClient:
    return AdminClient({"bootstrap.servers": pytestconfig.getoption("at"), "log_level": 0})


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    bootstrap = request.config.getoption("at")
    if bootstrap is not None:
        number = next(_numbers)
        return Place(bootstrap, f"orders-{number}", f"shop-{number}", None, request.getfixturevalue("admin"))
    kafka = request.getfixturevalue("kafka")
    return Place(kafka.bootstrap, "orders", "shop", kafka, None)


@pytest.fixture
def library(place: Place, case: Case) -> Iterator[Library]:
    yield LIBRARIES[case.library](place.bootstrap)
    # kafka-python 3.0.12 leaves a socket that has bytes to send to the garbage collector, one in some hundred.
    if case.library == "kafka-python" and place.kafka is not None and place.kafka.connections:
        gc.collect()


@pytest.fixture
def seen(record_property: Any) -> Iterator[Seen]:
    """Without it a test would have shown nothing."""
    noted: list[Any] = []
    yield lambda value: noted.append(comparable(value))
    record_property("seen", noted)


class _Results:
    """Of the process that hears of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._path = config.getoption("results")
        self._results: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = self._results.setdefault(report.nodeid, {"outcome": "passed", "seen": []})
        if report.outcome != "passed":
            result["outcome"] = f"{report.outcome} in {report.when}"
        if report.when == "teardown":
            result["seen"] = dict(report.user_properties).get("seen", [])

    def pytest_sessionfinish(self) -> None:
        if self._path is not None:
            Path(self._path).write_text(json.dumps(self._results))
