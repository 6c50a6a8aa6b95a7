"""Runs the suite in a process of its own, and says what each test has seen."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOR_ANY_BROKER = ("producing.py", "consuming.py", "transactions.py", "administration.py")
"""Two hundred tests."""
ALL = (*FOR_ANY_BROKER, "seeded.py")
ENDED_WITHIN_S = 1800


@dataclass(frozen=True)
class SuiteRun:
    results: dict[str, dict[str, Any]]
    """By test, its `outcome` and what it has `seen`."""
    seconds: float
    """From the start of pytest to its end."""
    output: str

    @property
    def failed(self) -> list[str]:
        return sorted(name for name, each in self.results.items() if each["outcome"] != "passed")


def run_suite(
    *options: str, files: Sequence[str] = ALL, plugins: Sequence[str] = ("pytest_ottla",), within_s: float = 30
) -> SuiteRun:
    """Options are those of pytest, of Ottla's plugin and of the suite's own; `within_s` is how long clients wait."""
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as directory:
        path = Path(directory) / "results.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(HERE / "suite.ini"),
            "-q",
            "--basetemp",
            f"{directory}/tmp",
        ]
        for plugin in (*plugins, "tests.kit.suite.plugin"):
            command += ["-p", plugin]
        command += ["--results", str(path), *options, *(str(HERE / name) for name in files)]
        # Other plugins take longer to load than a dozen of these tests take to run.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OTTLA_SUITE_WITHIN_S": str(within_s)}
        began = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=ENDED_WITHIN_S, check=False
        )
        seconds = time.perf_counter() - began
        output = done.stdout + done.stderr
        assert path.exists(), output[-4000:]
        return SuiteRun(json.loads(path.read_text()), seconds, output)
