"""Fenced blocks of the documents, and a shell to paste them into."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.links import documents
from tests.docs.references import ROOT

_FENCE = re.compile(r"^```(sh|python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDED_WITHIN_S = 120


class Block(NamedTuple):
    document: str
    language: str
    text: str

    @property
    def name(self) -> str:
        """The document and the block's first line, without its comment."""
        first = self.text.splitlines()[0].partition("  #")[0].removeprefix("# ").strip()
        return f"{self.document}: {first}"


def blocks() -> Iterator[Block]:
    for path in documents():
        for language, text in _FENCE.findall(path.read_text()):
            yield Block(str(path.relative_to(ROOT)), language, text)


def block(document: str, start: str) -> Block:
    """The block whose name or text begins so."""
    found = [
        each
        for each in blocks()
        if each.document == document and (each.name.startswith(f"{document}: {start}") or each.text.startswith(start))
    ]
    assert len(found) == 1, f"{document} has {len(found)} blocks that begin with {start!r}"
    return found[0]


def served_arguments(text: str) -> Iterator[list[str]]:
    """Of each command that runs a broker, what comes after `serve`."""
    for line in text.replace("\\\n", "").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:2] == ["make", "serve"]:
            yield [argument for word in words[2:] for argument in shlex.split(word.removeprefix("ARGS="))]
        elif words[:2] == ["ottla", "serve"]:
            yield [word for word in words[2:] if word != "&"]


def paste(text: str, bootstrap: str, directory: Path) -> str:
    """Runs lines in a shell that has this environment's programs, in a directory with the examples. What it prints."""
    if not (directory / "examples").exists():
        (directory / "examples").symlink_to(ROOT / "examples")
    return _output(["bash", "-e", "-o", "pipefail", "-c", without_surroundings(text, bootstrap)], directory, bootstrap)


def run_python(program: Path) -> str:
    return _output([sys.executable, str(program)], program.parent)


def run_pytest(file: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(file.parent), "-p", "no:cacheprovider", str(file)]
    return _output(command, file.parent)


def without_surroundings(text: str, bootstrap: str) -> str:
    """The environment is this one, and the broker runs already, on another port."""
    return text.replace(". .venv/bin/activate\n", "").replace("127.0.0.1:9092", bootstrap)


def _output(command: list[str], directory: Path, bootstrap: str = "") -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    surroundings = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OTTLA_BOOTSTRAP": bootstrap}
    done = subprocess.run(
        command,
        cwd=directory,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDED_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
