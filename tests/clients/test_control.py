"""The examples of control over HTTP, in JavaScript, Java and Go, run by `ottla run` with the clients of kafkajs, Kafka
and franz-go (TK25)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.go_programs import built_test
from tests.java_tools import OPTIONS, classpath

EXAMPLES = Path(__file__).parents[2] / "examples" / "control"
NODE = Path(__file__).parent / "node"
GO = Path(__file__).parent / "go"
INSTALL_WITHIN_S = 60
ENDED_WITHIN_S = 120
OTTLA_RUN = (sys.executable, "-m", "ottla", "run", "--")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The JavaScript examples beside kafkajs; skips where there is no Node or no package."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    directory = tmp_path / "control"
    shutil.copytree(EXAMPLES, directory)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE / name, directory)
    install = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(install, cwd=directory, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install kafkajs within {INSTALL_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install kafkajs: {done.stderr[-300:]}")
    return directory


def test_the_example_in_javascript_passes(scripts: Path) -> None:
    command = [*OTTLA_RUN, "node", "--test", "--test-reporter", "tap", "orders.test.mjs"]

    done = subprocess.run(command, cwd=scripts, capture_output=True, text=True, timeout=ENDED_WITHIN_S)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# pass 3\n" in done.stdout


def test_the_example_in_go_passes(tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO / name, tmp_path)
    shutil.copy(EXAMPLES / "orders_test.go", tmp_path)
    program = built_test(tmp_path)

    done = subprocess.run([*OTTLA_RUN, str(program), "-test.v"], capture_output=True, text=True, timeout=ENDED_WITHIN_S)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count("--- PASS") == 3


@pytest.mark.java
@pytest.mark.timeout(600)
def test_the_example_in_java_passes() -> None:
    command = [*OTTLA_RUN, "java", *OPTIONS, "-cp", classpath(), str(EXAMPLES / "Orders.java")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDED_WITHIN_S)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "the order got there after 2 faults"
