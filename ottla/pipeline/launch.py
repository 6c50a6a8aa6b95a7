"""The spark-submit command of a job. It does not import Spark: it must work, and say so, when there is none."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.versions import PACKAGES

JOBS = ("archive", "replay", "observatory", "report")
_JOBS_DIRECTORY = Path(__file__).parent / "jobs"
_MASTERS = ("local", "spark://", "yarn", "k8s://")
_LOGGING = Path(__file__).resolve().parent / "log4j2.properties"


def submit_command(
    job: str,
    arguments: Sequence[str],
    *,
    master: str,
    jars: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Without `jars`, a directory, Spark resolves its packages through Maven Central and keeps them.

    Raises PipelineError where PySpark, Java or the jars are missing, and for a master of no kind that Spark has."""
    if not master.startswith(_MASTERS):
        raise PipelineError(f"{master} is no Spark master: local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT are")
    command = [str(_spark_submit()), "--master", master]
    command += ["--jars", ",".join(_jar_files(jars))] if jars is not None else ["--packages", ",".join(PACKAGES)]
    command += ["--driver-java-options", f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
    # Spark's own bar, on a terminal only; it would fill a file or a pipe.
    shown = {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}
    for key, value in {**shown, **(settings or {})}.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(_JOBS_DIRECTORY / f"{job}.py"), *arguments]


def environment() -> dict[str, str]:
    """Executors on this machine run the Python that runs this."""
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **os.environ}


def _spark_submit() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PipelineError("PySpark is not installed: pip install 'ottla[spark]'")
    java_home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{java_home}/bin" if java_home else None) is None:
        raise PipelineError("there is no Java, which Spark runs on: install version 17 or 21, or set JAVA_HOME")
    return Path(found.origin).parent / "bin" / "spark-submit"


def _jar_files(directory: Path) -> list[str]:
    jars = sorted(str(path) for path in directory.glob("*.jar"))
    if not jars:
        raise PipelineError(f"there are no jars in {directory}")
    return jars
