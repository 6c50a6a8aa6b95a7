"""Jobs as a user runs them: `ottla pipeline`, a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.pipeline import classes

# `run` is three jobs in one.
JOB_WITHIN_S = 600
# Jobs of tests are over before a second compiler has warmed up.
# Spark's classes fill the metaspace so fast that each growth of it would be a full garbage collection.
QUICK_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=400m"}
ENVIRONMENT = {**os.environ, **QUICK_JAVA}
# Few rows need few tasks.
QUICK_SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def settings() -> list[str]:
    """Options of spark-submit and of `ottla pipeline`."""
    return [word for one in {**QUICK_SPARK, **classes.settings()}.items() for word in ("--conf", "=".join(one))]


def command(name: str, *arguments: str, jars: Path, master: str = "local[2]") -> list[str]:
    options = ["--master", master, "--jars", str(jars), *settings()]
    return [sys.executable, "-m", "ottla", "pipeline", *options, name, *arguments]


def job(name: str, *arguments: str, jars: Path, master: str = "local[2]") -> str:
    """Runs it to its end; gives what it said."""
    done = _run(command(name, *arguments, jars=jars, master=master))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == ""
    return done.stderr


def failed_job(name: str, *arguments: str, jars: Path, master: str = "local[2]") -> str:
    """All that a job says that fails as it should: one sentence on standard error, no trace of Python's or Java's."""
    done = _run(command(name, *arguments, jars=jars, master=master))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr[-4000:]
    (sentence,) = done.stderr.strip().splitlines()
    return sentence


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=JOB_WITHIN_S, env=ENVIRONMENT)


@contextmanager
def running_job(
    name: str, *arguments: str, jars: Path, pipes_output: bool = False
) -> Iterator["subprocess.Popen[bytes]"]:
    """In a process group of its own, which is killed at the end of the context, Java and all. With `pipes_output` the
    test reads what it prints from its standard output."""
    process = subprocess.Popen(
        command(name, *arguments, jars=jars),
        stdout=subprocess.PIPE if pipes_output else subprocess.DEVNULL,
        stderr=subprocess.STDOUT if pipes_output else subprocess.DEVNULL,
        start_new_session=True,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
