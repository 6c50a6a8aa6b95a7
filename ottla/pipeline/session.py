"""A job's Spark session. The master is not decided here: it comes with spark-submit."""

import signal
import threading

from pyspark.sql import SparkSession

from ottla.pipeline.versions import DELTA_SETTINGS

DELTA_SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"

_SETTINGS = {
    **DELTA_SETTINGS,
    # Instants are shown and grouped the same wherever a job runs.
    "spark.sql.session.timeZone": "UTC",
}


def open_session(name: str) -> SparkSession:
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
