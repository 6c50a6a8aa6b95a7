"""Trees of the package `ottla`, this one and that of a revision, from which brokers are started by the same command.

Each is unpacked into a directory of its own, with its bytecode, beside a copy of the benchmarks. Interpreter and
dependencies are those of this process.
"""

import compileall
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.processes import Server

ROOT = Path(__file__).parents[2]
PACKAGE, BENCHMARKS = "ottla", "benchmarks"


class TreeError(Exception):
    """Why there is no such tree, in words for the user."""


class Tree:
    """The directory holds the package. Raises TreeError where Python would import another one from there."""

    def __init__(self, name: str, directory: Path, settings: Sequence[str] = ()) -> None:
        """`settings`: properties of its brokers beside those of a measurement, as `--set` takes them."""
        self.name = name
        self.settings = settings
        self._directory = directory.resolve()
        _copy(ROOT / BENCHMARKS, directory)
        # What is installed has its bytecode; the first start would measure the compiler.
        compileall.compile_dir(directory, quiet=1)
        package = self._directory / PACKAGE
        imported = Path(self.output("-c", f"import {PACKAGE}; print({PACKAGE}.__file__)").strip()).parent
        if imported != package:
            raise TreeError(f"Python imports {PACKAGE} of {name} from {imported}, not from {package}.")

    def output(self, *arguments: str) -> str:
        """What Python prints to standard output with these arguments; its errors are shown."""
        command = [sys.executable, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **self._place())
        return str(done.stdout)

    @contextmanager
    def broker(self, *options: str, pinned: bool = True) -> Iterator[Server]:
        """`ottla serve` with these options and a temporary data directory."""
        with (
            tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
            self.broker_with(directory, *options, pinned=pinned) as server,
        ):
            yield server

    @contextmanager
    def broker_with(self, data_directory: str, *options: str, pinned: bool = True) -> Iterator[Server]:
        set_options = [word for setting in self.settings for word in ("--set", setting)]
        command = processes.broker_command(data_directory, *options, *set_options)
        with processes.running(command, pinned=pinned, **self._place()) as server:
            yield server

    def _place(self) -> dict[str, Any]:
        """Where Python runs: with `-m` and `-c` it looks for packages in its directory first."""
        environment = processes.ENVIRONMENT | {"PYTHONPATH": str(self._directory)}
        return {"cwd": self._directory, "env": environment}


def this_tree(directory: Path, settings: Sequence[str] = ()) -> Tree:
    """As it is in the files, whether committed or not."""
    directory.mkdir()
    _copy(ROOT / PACKAGE, directory)
    return Tree("this tree", directory, settings)


def tree_of(revision: str, directory: Path, repository: Path = ROOT, *, settings: Sequence[str] = ()) -> Tree:
    """Raises TreeError where the repository has no such revision, or the revision no package."""
    if shutil.which("git") is None:
        raise TreeError("git is not installed.")
    commit = _git(
        repository, "rev-parse", "--verify", "--quiet", "--short=8", "--end-of-options", f"{revision}^{{commit}}"
    )
    if commit is None:
        raise TreeError(f"There is no revision {revision!r} in {repository}.")
    directory.mkdir()
    archive = directory / "package.tar"
    if _git(repository, "archive", "--format=tar", f"--output={archive}", commit.strip(), PACKAGE) is None:
        raise TreeError(f"The revision {revision!r} has no package {PACKAGE}.")
    shutil.unpack_archive(archive, directory)
    archive.unlink()
    return Tree(commit.strip(), directory, settings)


def _git(repository: Path, *arguments: str) -> str | None:
    """Its output; None where it fails."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _copy(package: Path, directory: Path) -> None:
    shutil.copytree(package, directory / package.name, ignore=shutil.ignore_patterns("__pycache__"))
