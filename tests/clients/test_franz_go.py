"""franz-go, where Go and the module can be had."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.served import ServedBroker

SOURCES = Path(__file__).parent / "go"
BUILD_WITHIN_S = 120
SCENARIO_WITHIN_S = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built scenario; skips where there is no Go, or the module cannot be had."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    binary = tmp_path_factory.mktemp("go") / "scenario"
    build = ["go", "build", "-o", str(binary), "."]
    try:
        done = subprocess.run(build, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"go did not build the scenario within {BUILD_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"go cannot build the scenario: {done.stderr[-300:]}")
    return binary


def test_franz_go_rebalances_cooperatively_and_reads_all_once(broker: ServedBroker, program: Path) -> None:
    command = [str(program), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_WITHIN_S)
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{broker.stderr[-3000:]}"

    assert json.loads(done.stdout) == {
        "distinct": 6000,
        "repeated": 0,
        "out_of_order": 0,
        "committed": 6000,
        "members_at_work": 3,
    }
