"""Spark's classes as Java maps them into memory at its next start (class data sharing): half of what a start costs.

`python -m tests.pipeline.classes` runs this file as a job that loads what most jobs need. Java checks an
archive against its own version and every jar, and starts without it when they differ.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla.pipeline.versions import installed_spark, packages

EVENT = {"v": 1, "type": "rebalance_started", "wall_ms": 0, "mono_ms": 0, "broker": 1, "run": 1, "seq": 0}
# Java's warnings about an archive would stand among what a job prints.
_QUIET = "-Xlog:disable"


def settings() -> dict[str, str]:
    """Of Spark, for a driver that starts with the archive where there is one."""
    archive = _archive()
    return {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={archive} {_QUIET}"} if archive.exists() else {}


def make_archive() -> int:
    """Once for the Python environment; without an archive everything works, and takes longer."""
    import pyspark

    from tests.pipeline.jobs import ENVIRONMENT, QUICK_SPARK

    archive = _archive()
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    options = {"spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={archive} {_QUIET}", **QUICK_SPARK}
    words = [word for option in options.items() for word in ("--conf", "=".join(option))]
    command = [*submit, "--packages", ",".join(packages(installed_spark() or "")), *words, __file__, "load"]
    environment = {**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def _archive() -> Path:
    """Beside Spark's jars in the environment, by what it depends on."""
    java = Path(shutil.which("java") or "java").resolve()
    return Path(sys.prefix) / f"spark-{installed_spark()}-{java.parent.parent.name}.jsa"


def load() -> None:
    # Tests are also collected where PySpark is not installed.
    from ottla.pipeline.observatory.tables import write_tables
    from ottla.pipeline.session import open_session

    spark = open_session("classes")
    with TemporaryDirectory() as directory:
        rows = [("ottla.events", bytearray(json.dumps(EVENT).encode()))]
        spark.createDataFrame(rows, "topic STRING, value BINARY").write.format("delta").save(f"{directory}/events")
        stream = spark.readStream.format("delta").load(f"{directory}/events").writeStream.format("delta")
        stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
        stream.start(f"{directory}/archive").awaitTermination()
        write_tables(
            spark.read.format("delta").load(f"{directory}/archive"),
            f"{directory}/tables",
            no_progress_ms=1,
            report=lambda _: None,
        )
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["load"]:
        load()
    else:
        sys.exit(make_archive())
