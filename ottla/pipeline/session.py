"""A job's Spark session. The master is not decided here: it comes with spark-submit."""

from pyspark.sql import SparkSession

from ottla.pipeline.versions import DELTA_SETTINGS

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
    session.sparkContext.setLogLevel("ERROR")
    return session


def master_of(session: SparkSession) -> str:
    return str(session.sparkContext.master)


def is_local(master: str) -> bool:
    return master.startswith("local")
