"""How a job is started, and what is said when it cannot be. Needs no Spark."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.arguments import parse_moment
from ottla.pipeline import cluster, failures
from ottla.pipeline.failures import PipelineError, plainly
from ottla.pipeline.jobs.options import moment
from ottla.pipeline.launch import JOBS, SUBMIT_ARGUMENTS, check_java, environment, submit_command, submit_options
from ottla.pipeline.versions import DELTA, REQUIREMENT, installed_spark, packages, why_java_does_not_fit
from tests.cli.runner import run

JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
"""
SPARK = installed_spark() or ""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PySpark and a Java that are there and do nothing."""
    package = tmp_path / "site" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(version="17.0.15"))
    java.chmod(0o755)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_command_has_master_packages_and_job_arguments() -> None:
    options = submit_options("spark://h:7077", settings={"a.b": "c"})
    command = submit_command("archive", ["--topic", "t"], options)

    assert command[0].endswith("pyspark/bin/spark-submit")
    assert command[1:5] == ["--master", "spark://h:7077", "--packages", ",".join(packages(SPARK))]
    assert shlex.split(environment(options)[SUBMIT_ARGUMENTS]) == [*options, "pyspark-shell"]
    assert command[-5:-3] == ["--conf", "a.b=c"]
    assert Path(command[-3]).name == "archive.py"
    assert command[-2:] == ["--topic", "t"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("is_watched", [True, False])
def test_who_watches_sees_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch, is_watched: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_watched)
    assert ("spark.ui.showConsoleProgress=true" in submit_options("local")) == is_watched


@pytest.mark.usefixtures("installed")
def test_packages_that_fit_are_printed_for_spark_submit() -> None:
    assert run("pipeline", "--packages").output == ",".join(packages(SPARK)) + "\n"


@pytest.mark.usefixtures("installed")
def test_every_job_is_a_file_that_can_be_submitted() -> None:
    scripts = [Path(submit_command(job, [], [])[-1]) for job in JOBS]
    assert all(script.is_file() and '__name__ == "__main__"' in script.read_text() for script in scripts)
    assert all("master(" not in script.read_text() for script in scripts)


def test_jars_fetched_beforehand_take_the_place_of_packages(installed: Path) -> None:
    jars = installed / "jars"
    jars.mkdir()
    with pytest.raises(PipelineError, match=f"there are no jars in {jars}"):
        submit_options("local", jars=jars)
    for name in ("b.jar", "a.jar"):
        (jars / name).touch()

    command = submit_options("local", jars=jars)

    assert command[2:4] == ["--jars", f"{jars}/a.jar,{jars}/b.jar"]
    assert "--packages" not in command


def test_missing_java_is_said(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed / "nowhere"))
    with pytest.raises(PipelineError, match="there is no Java, which Spark runs on: install version 17 or 21, or set"):
        check_java()


@pytest.mark.parametrize(("version", "found"), [("11.0.24", "11"), ("1.8.0_392", "8"), ("24", "24"), ("25-ea", "25")])
def test_wrong_java_is_named(installed: Path, version: str, found: str) -> None:
    java = installed / "java" / "bin" / "java"
    check_java()
    java.write_text(JAVA.format(version=version))
    expected = f"Spark needs Java 17 or 21, and {java} is Java {found}: install one, or set JAVA_HOME"
    with pytest.raises(PipelineError, match=f"^{re.escape(expected)}$"):
        check_java()


def test_java_of_an_unknown_kind_is_tried() -> None:
    assert [why_java_does_not_fit(text, "java") for text in ('java version "21.0.2"', "some Java")] == [None, None]


def test_help_of_every_job_needs_no_java(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    for job in ("run", "replay"):
        command = [sys.executable, "-m", "ottla", "pipeline", job, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        assert "--since TIME" in done.stdout


@pytest.mark.usefixtures("installed")
def test_a_master_of_no_known_kind_is_said() -> None:
    result = run("pipeline", "--master", "nowhere:7077", "archive")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: nowhere:7077 is no Spark master: local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT are\n",
    )


def test_missing_pyspark_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("pipeline", "archive")
    assert (result.exit_code, result.stderr) == (1, "Error: PySpark is not installed: pip install 'ottla[spark]'\n")


@pytest.mark.usefixtures("installed")
def test_the_command_can_be_shown() -> None:
    result = run(
        "pipeline", "--master", "spark://h:1", "--conf", "k=v w", "--show", "archive", "--topic", "t", "--once"
    )
    assert result.exit_code == 0
    assert "--master spark://h:1" in result.stdout
    assert "--conf 'k=v w'" in result.stdout
    assert result.stdout.rstrip().endswith("archive.py --topic t --once")


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        ("4.0.0", ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0", "io.delta:delta-spark_2.13:4.0.0")),
        ("4.1.1", ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1", "io.delta:delta-spark_4.1_2.13:4.1.0")),
        ("3.5.9", ()),
        ("4.2.0", ()),
    ],
)
def test_connector_and_delta_are_those_of_the_spark(spark: str, expected: tuple[str, ...]) -> None:
    assert packages(spark) == expected


@pytest.mark.usefixtures("installed")
def test_spark_that_does_not_fit_is_named_with_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.launch.installed_spark", lambda: "3.5.9")
    result = run("pipeline", "archive")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: PySpark 3.5.9 does not fit, 4.0 and 4.1 do: pip install 'pyspark>=4.0,<4.2'\n",
    )


def test_the_extra_asks_for_the_sparks_that_fit() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'spark = ["{REQUIREMENT}"]' in project
    assert packages(SPARK), f"the tests run with a Spark that is none of {list(DELTA)}"


@pytest.mark.parametrize("text", ["2026-03-01T12:00:00+01:00", "2026-03-01T12:00", "2026-03-01"])
def test_times_of_jobs_are_those_of_the_command_line(text: str) -> None:
    assert moment(text) == parse_moment(text)
    assert abs(moment("12h") - parse_moment("12h")) < 5000


# What can be wrong with addresses and paths

LOOPBACK = cluster.ClusterSummary(["10.0.0.1", "127.0.0.1"], {"t": 3})


@pytest.mark.parametrize("master", ["local[*]", "spark://localhost:7077", "spark://127.0.0.1:7077"])
def test_executors_of_this_machine_reach_its_loopback(master: str) -> None:
    cluster.check_reachable(LOOPBACK, master)


def test_executors_elsewhere_do_not_reach_a_loopback() -> None:
    with pytest.raises(PipelineError, match=r"advertises 127\.0\.0\.1, which executors of spark://m:7077"):
        cluster.check_reachable(LOOPBACK, "spark://m:7077")
    cluster.check_reachable(cluster.ClusterSummary(["10.0.0.1", "kafka"], {}), "spark://m:7077")


def test_a_path_of_this_machine_with_executors_elsewhere() -> None:
    for path in ("/data/t", "file:/data/t", "file:///data/t"):
        cluster.check_path(path, "local[2]", is_shared=False)
        cluster.check_path(path, "spark://m:7077", is_shared=True)
        with pytest.raises(
            PipelineError, match="is a path of this machine, which executors of spark://m:7077 do not see"
        ):
            cluster.check_path(path, "spark://m:7077", is_shared=False)
    cluster.check_path("s3a://bucket/t", "spark://m:7077", is_shared=False)


def test_a_missing_topic_is_named() -> None:
    with pytest.raises(PipelineError, match="there is no topic u at b:1"):
        cluster.check_topics(LOOPBACK, ["t", "u"], "b:1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Failed to find data source: kafka.", "add --packages"),
        (
            "org.apache.spark.SparkException: Could not parse Master URL: 'here'",
            "does not understand what --master says",
        ),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "master does not answer"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException", "does not exist"),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired", "does not answer"),
        ("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost", "--allow-data-loss"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x", "no table"),
        ("java.io.IOException: No space left on device", "the disk is full"),
    ],
)
def test_errors_of_spark_in_plain_words(text: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence), plainly():
        raise RuntimeError(text)


def test_an_unknown_error_is_not_hidden() -> None:
    assert failures.sentence_of(RuntimeError("boom")) is None
    with pytest.raises(RuntimeError, match="boom"), plainly():
        raise RuntimeError("boom")
