"""A job's Spark session. The master is not decided here: it comes with `ottla pipeline`, or with spark-submit."""

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO

from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.launch import check_java, fitting_spark
from ottla.pipeline.versions import DELTA_SETTINGS

DELTA_SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"

_SETTINGS = {
    **DELTA_SETTINGS,
    # Instants are shown and grouped the same wherever a job runs.
    "spark.sql.session.timeZone": "UTC",
}


def open_session(name: str) -> SparkSession:
    """Raises PipelineError where PySpark, Java or the jars are missing, or do not fit."""
    fitting_spark()
    # spark-submit has started Java before the job.
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:  # pyright: ignore[reportPrivateUsage]
        check_java()
        _start_java()
    builder = SparkSession.builder.appName(f"ottla {name}")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # PySpark has set one that calls Java in the middle of another call to Java, which breaks both.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    session.sparkContext.setLogLevel("ERROR")
    fit_to_size(session)
    return session


def _start_java() -> None:
    """What Java prints while it starts, Ivy's list of every jar among it, is shown only if the start fails."""
    stderr = _HeldOutput()
    context: Any = SparkContext
    gateways: Any = java_gateway
    try:
        context._ensure_initialized(gateway=gateways.launch_gateway(None, {"stderr": stderr.write_end}))
    except PySparkRuntimeError as error:
        raise PipelineError(stderr.reason()) from error
    stderr.release()


class _HeldOutput:
    """What a process writes to `write_end`: held until `release`, and on standard error from then on."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._held = bytearray()
        self._is_released = False
        self._thread = threading.Thread(target=self._read, args=(os.fdopen(read_end, "rb", 0),), daemon=True)
        self._thread.start()

    def release(self) -> None:
        os.close(self.write_end)
        self._is_released = True

    def reason(self) -> str:
        """Java has ended: why, as far as it has said."""
        os.close(self.write_end)
        self._thread.join(1)
        text = self._held.decode(errors="replace")
        if "unresolved dependency" in text or "UNRESOLVED DEPENDENCIES" in text:
            return (
                "Spark cannot fetch its jars from Maven Central: try again with a network, or name a directory that "
                "has them, ottla pipeline --jars DIRECTORY"
            )
        return f"Java does not start:\n{text[-2000:].strip()}"

    def _read(self, pipe: BinaryIO) -> None:
        with pipe, suppress(OSError):
            while chunk := pipe.read(65536):
                if self._is_released:
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.buffer.flush()
                else:
                    self._held += chunk


def fit_to_size(session: SparkSession) -> None:
    """Spark's defaults, 200 and 50 tasks for the smallest thing, are meant for clusters larger than most. What the user
    has set stays."""
    parallelism = session.sparkContext.defaultParallelism
    set_by_user = dict(session.sparkContext.getConf().getAll())
    for key, tasks in (("spark.sql.shuffle.partitions", 4 * parallelism), (DELTA_SNAPSHOT_TASKS, parallelism)):
        if key not in set_by_user:
            session.conf.set(key, str(tasks))


def master_of(session: SparkSession) -> str:
    return str(session.sparkContext.master)
