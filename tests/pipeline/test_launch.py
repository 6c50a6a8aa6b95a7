"""The spark-submit command, and what is said when there can be none. Needs no Spark."""

import sys
from pathlib import Path

import pytest

from ottla.pipeline import cluster, failures
from ottla.pipeline.failures import PipelineError, plainly
from ottla.pipeline.launch import JOBS, submit_command
from ottla.pipeline.versions import PACKAGES, SPARK
from tests.cli.runner import run


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PySpark and a Java that are there and do nothing."""
    package = tmp_path / "site" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_command_has_master_packages_and_job_arguments() -> None:
    command = submit_command("archive", ["--topic", "t"], master="spark://h:7077", settings={"a.b": "c"})

    assert command[0].endswith("pyspark/bin/spark-submit")
    assert command[1:5] == ["--master", "spark://h:7077", "--packages", ",".join(PACKAGES)]
    assert command[-5:-3] == ["--conf", "a.b=c"]
    assert Path(command[-3]).name == "archive.py"
    assert command[-2:] == ["--topic", "t"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("is_watched", [True, False])
def test_who_watches_sees_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch, is_watched: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_watched)
    assert ("spark.ui.showConsoleProgress=true" in submit_command("replay", [], master="local")) == is_watched


@pytest.mark.usefixtures("installed")
def test_every_job_is_a_file_that_can_be_submitted() -> None:
    scripts = [Path(submit_command(job, [], master="local[*]")[-1]) for job in JOBS]
    assert all(script.is_file() and '__name__ == "__main__"' in script.read_text() for script in scripts)
    assert all("master(" not in script.read_text() for script in scripts)


def test_jars_fetched_beforehand_take_the_place_of_packages(installed: Path) -> None:
    jars = installed / "jars"
    jars.mkdir()
    with pytest.raises(PipelineError, match=f"there are no jars in {jars}"):
        submit_command("replay", [], master="local", jars=jars)
    for name in ("b.jar", "a.jar"):
        (jars / name).touch()

    command = submit_command("replay", [], master="local", jars=jars)

    assert command[3:5] == ["--jars", f"{jars}/a.jar,{jars}/b.jar"]
    assert "--packages" not in command


def test_missing_java_is_said(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed / "nowhere"))
    result = run("pipeline", "archive")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: there is no Java, which Spark runs on: install version 17 or 21, or set JAVA_HOME\n",
    )


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


def test_the_connector_has_the_version_of_spark() -> None:
    assert any(package.startswith("org.apache.spark:") and package.endswith(f":{SPARK}") for package in PACKAGES)


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
