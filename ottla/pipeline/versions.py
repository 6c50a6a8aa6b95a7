"""Which Spark, and what of the Java world goes with it.

Spark's Kafka connector must have the version of Spark, and Delta Lake names the Spark release it is built for. This
pair is what the tests run with.
"""

SPARK = "4.0.0"
DELTA = "4.0.0"
SCALA = "2.13"

PACKAGES = (
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK}",
    f"io.delta:delta-spark_{SCALA}:{DELTA}",
)
"""For `spark.jars.packages`."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session needs to read and write Delta tables."""
