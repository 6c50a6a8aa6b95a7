"""`ottla pipeline` explains itself where there is no Spark."""

import sys
from pathlib import Path

import pytest

from ottla.pipeline.jobs.options import PARSERS
from ottla.pipeline.launch import JOBS
from tests.cli.runner import run


@pytest.mark.parametrize("job", JOBS)
def test_help_of_a_job_needs_neither_spark_nor_java(job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    shown = run("pipeline", job, "--help")

    assert shown.exit_code == 0, shown.output
    assert shown.output == PARSERS[job]().format_help()
