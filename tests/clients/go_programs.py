"""Clients written in Go, built where Go and their modules can be had."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BUILD_WITHIN_S = 120


def built(sources: Path, directory: Path) -> Path:
    """The directory, with the programs of the sources; skips the calling test where they cannot be built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    # Neither optimized nor with C: the scenarios run for seconds, and a first build compiles Go's whole library.
    _build(["go", "build", "-gcflags=all=-N -l", "-o", f"{directory}/", "./..."], sources)
    return directory


def built_test(directory: Path) -> Path:
    """The program that `go test` would run there; skips the calling test where it cannot be built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    program = directory / "tests"
    _build(["go", "test", "-gcflags=all=-N -l", "-c", "-mod=mod", "-o", str(program), "."], directory)
    return program


def _build(build: list[str], sources: Path) -> None:
    environment = os.environ | {"CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            build, cwd=sources, env=environment, capture_output=True, text=True, timeout=BUILD_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"go did not build the scenario within {BUILD_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"go cannot build the scenarios: {done.stderr[-300:]}")
