"""franz-go, where Go and the module can be had."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.served import ServedBroker

SOURCES = Path(__file__).parent / "go"
BUILD_WITHIN_S = 120
SCENARIO_WITHIN_S = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the built scenarios; skips where there is no Go, or the module cannot be had."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    directory = tmp_path_factory.mktemp("go")
    build = ["go", "build", "-o", str(directory), "./..."]
    try:
        done = subprocess.run(build, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"go did not build the scenario within {BUILD_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"go cannot build the scenarios: {done.stderr[-300:]}")
    return directory


def said(broker: ServedBroker, program: Path) -> Any:
    command = [str(program), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_WITHIN_S)
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{broker.stderr[-3000:]}"
    return json.loads(done.stdout)


def test_franz_go_rebalances_cooperatively_and_reads_all_once(broker: ServedBroker, programs: Path) -> None:
    assert said(broker, programs / "franzgo") == {
        "distinct": 6000,
        "repeated": 0,
        "out_of_order": 0,
        "committed": 6000,
        "members_at_work": 3,
    }


def test_franz_go_copies_in_transactions_of_a_group(broker: ServedBroker, programs: Path) -> None:
    """Every third transaction is aborted, and its records come again; each is copied once, in order."""
    found = said(broker, programs / "transact")

    assert found.pop("aborted") > 1
    assert found == {"copied": list(range(120)), "uncommitted": 120}
