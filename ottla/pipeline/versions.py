"""Which Spark, and what of the Java world goes with it.

Spark's Kafka connector must have the version of Spark, and Delta Lake names the Spark release that it is built for. The
tests run with 4.0, which constraints.txt pins, and with 4.1 by `make test-pipeline-newest`.
"""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

SCALA = "2.13"
DELTA = {
    "4.0": f"io.delta:delta-spark_{SCALA}:4.0.0",
    "4.1": f"io.delta:delta-spark_4.1_{SCALA}:4.1.0",
}
"""Delta Lake by the Spark that it fits; there is no other Spark that it and these jobs are tested with."""
REQUIREMENT = "pyspark>=4.0,<4.2"
# Hadoop's classes, which Spark uses, call what Java 24 has taken away.
JAVA_MIN, JAVA_END = 17, 24
JAVA_WORDS = "17 or 21"

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session needs to read and write Delta tables."""


def installed_spark() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def packages(spark: str) -> Sequence[str]:
    """For `spark.jars.packages`; empty for a version of Spark that does not fit."""
    delta = DELTA.get(".".join(spark.split(".")[:2]))
    return () if delta is None else (f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}", delta)


def why_spark_does_not_fit(spark: str) -> str | None:
    """A sentence with what would fit."""
    if packages(spark):
        return None
    return f"PySpark {spark} does not fit, {' and '.join(DELTA)} do: pip install '{REQUIREMENT}'"


def why_java_does_not_fit(printed: str, java: str) -> str | None:
    """Of what `java -version` has printed; a sentence with what would fit."""
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    if found is None or JAVA_MIN <= int(found[1]) < JAVA_END:
        return None
    return f"Spark needs Java {JAVA_WORDS}, and {java} is Java {found[1]}: install one, or set JAVA_HOME"
