"""A standalone Spark cluster on this machine: a master and workers, each a process."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster_processes import wait_for
from tests.pipeline.jobs import ENVIRONMENT

WITHIN_S = 90
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """Gives the master's URL when all workers have come to it."""
    with ExitStack() as processes:
        log = directory / "master.log"
        processes.enter_context(_running(log, MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        wait_for(lambda: _url_in(log) is not None, WITHIN_S, lambda: log.read_text())
        url = _url_in(log)
        assert url is not None
        for number in range(workers):
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            options += ["--work-dir", str(directory / f"work-{number}")]
            processes.enter_context(_running(directory / f"worker-{number}.log", WORKER, *options, url))
        wait_for(lambda: log.read_text().count("Registering worker") == workers, WITHIN_S, lambda: log.read_text())
        yield url


@contextmanager
def _running(log: Path, *arguments: str) -> Iterator[None]:
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [spark_class, *arguments], stdout=output, stderr=output, env={**os.environ, **environment}
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(WITHIN_S)


def _url_in(log: Path) -> str | None:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return found.group(1) if found else None
