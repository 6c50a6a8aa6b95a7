"""Ottla's wheel has the pytest plugin; `pytest-ottla` is a wheel that brings it, and registers nothing of its own."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from tests.docs.pasting import block

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "distributions" / "pytest-ottla"
ENDED_WITHIN_S = 120


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**surroundings, **environ},
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both."""
    directory = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, PLUGIN):
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=project)
    return directory


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed here, without Ottla: no index is asked."""
    directory = tmp_path_factory.mktemp("others")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "ottla" not in each.name and each.suffix != ".pth":
            (directory / each.name).symlink_to(each)
    return directory


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheels: Path, others: Path) -> Path:
    """Of a new environment, after `pip install pytest-ottla`."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    install = ["-m", "pip", "install", "--no-index", "--find-links", wheels, "pytest-ottla"]
    run(python, *install, cwd=directory, PYTHONPATH=str(others))
    return python


def test_versions_are_those_of_ottla() -> None:
    ours, plugin = (tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in (ROOT, PLUGIN))

    assert plugin["version"] == ours["version"]
    assert f"ottla=={ours['version']}" in plugin["dependencies"]
    assert plugin["requires-python"] == ours["requires-python"]


def test_the_wheel_of_the_plugin_has_metadata_alone(wheels: Path) -> None:
    (wheel,) = wheels.glob("pytest_ottla-*.whl")

    listed = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=wheels)

    names = [line.split()[0] for line in listed.splitlines()[1:]]
    assert all(".dist-info/" in name for name in names)
    assert not any(name.endswith("entry_points.txt") for name in names)


def test_an_installed_plugin_is_registered_once(python: Path, others: Path, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(block("distributions/pytest-ottla/README.md", "from confluent_kafka").text)
    (tmp_path / "conftest.py").write_text("import ottla, pytest_ottla\nprint(ottla.__file__, pytest_ottla.__file__)\n")

    printed = run(python, "-m", "pytest", "-s", "-p", "no:cacheprovider", cwd=tmp_path, PYTHONPATH=str(others))

    assert "1 passed" in printed
    assert printed.count(str(python.parent.parent)) == 2
    (plugins,) = re.findall(r"^plugins: (.*)$", printed, re.MULTILINE)
    assert [each for each in plugins.split(", ") if "ottla" in each] == ["ottla-0.1.0"]
