"""How a job is started. Nothing here imports Spark: it must work, and say so, when there is none."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.versions import JAVA_WORDS, installed_spark, packages, why_java_does_not_fit, why_spark_does_not_fit

JOBS = ("run", "archive", "replay", "observatory", "report")
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_JOBS_DIRECTORY = Path(__file__).parent / "jobs"
_MASTERS = ("local", "spark://", "yarn", "k8s://")
_LOGGING = Path(__file__).resolve().parent / "log4j2.properties"


def submit_options(master: str, *, jars: Path | None = None, settings: Mapping[str, str] | None = None) -> list[str]:
    """Options of spark-submit. Without `jars`, a directory, Spark resolves its packages through Maven Central and keeps
    them.

    Raises PipelineError where PySpark or the jars are missing or do not fit, and for a master of no kind that Spark
    has."""
    if not master.startswith(_MASTERS):
        raise PipelineError(f"{master} is no Spark master: local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT are")
    spark = fitting_spark()
    options = ["--master", master]
    options += ["--jars", ",".join(_jar_files(jars))] if jars is not None else ["--packages", ",".join(packages(spark))]
    options += ["--driver-java-options", f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
    # Spark's own bar, on a terminal only; it would fill a file or a pipe.
    bar = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    for key, value in {**bar, **(settings or {})}.items():
        options += ["--conf", f"{key}={value}"]
    return options


def submit_command(job: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command that does the same by spark-submit, on other machines too."""
    return [str(_spark_directory() / "bin" / "spark-submit"), *options, job_file(job), *arguments]


def job_command(job: str, arguments: Sequence[str]) -> list[str]:
    """Python runs the job, and the job starts Java when it has understood its arguments: spark-submit would start Java
    first, and print all that the job prints to its own standard output."""
    return [sys.executable, job_file(job), *arguments]


def environment(options: Sequence[str]) -> dict[str, str]:
    """Executors on this machine run the Python that runs this."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**python, **os.environ, SUBMIT_ARGUMENTS: shlex.join([*options, "pyspark-shell"])}


def job_file(job: str) -> str:
    return str(_JOBS_DIRECTORY / f"{job}.py")


def fitting_spark() -> str:
    """The version of the PySpark that is installed. Raises PipelineError."""
    _spark_directory()
    spark = installed_spark()
    if spark is None:
        raise PipelineError("PySpark is not installed: pip install 'ottla[spark]'")
    reason = why_spark_does_not_fit(spark)
    if reason is not None:
        raise PipelineError(reason)
    return spark


def check_java() -> None:
    """Raises PipelineError where there is no Java, or one that Spark does not run on."""
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin" if java_home else None)
    if java is None:
        raise PipelineError(f"there is no Java, which Spark runs on: install version {JAVA_WORDS}, or set JAVA_HOME")
    try:
        asked = subprocess.run([java, "-Xshare:auto", "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{java} does not run: {error}") from error
    reason = why_java_does_not_fit(asked.stderr, java)
    if reason is not None:
        raise PipelineError(reason)


def _spark_directory() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PipelineError("PySpark is not installed: pip install 'ottla[spark]'")
    return Path(found.origin).parent


def _jar_files(directory: Path) -> list[str]:
    jars = sorted(str(path) for path in directory.glob("*.jar"))
    if not jars:
        raise PipelineError(f"there are no jars in {directory}")
    return jars
