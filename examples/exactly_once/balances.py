"""Committed transfers summed up by account in a Delta table, each exactly once.

    spark-submit --packages ... examples/exactly_once/balances.py --table TABLE --bootstrap 127.0.0.1:9092

Records of aborted transactions, and of open ones, are not read. What was read is in the query's checkpoint; Delta
commits each batch with its number, so that a batch that is run again after a crash counts once.
"""

import argparse
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.options import bootstrap_option
from ottla.pipeline.session import open_session

TOPIC = "transfers"
SCHEMA = "transfer BIGINT, account STRING, cents BIGINT"


def read_committed(
    spark: SparkSession, bootstrap: str, topic: str = TOPIC, client: Mapping[str, str] | None = None
) -> DataFrame:
    """`client`: of TLS and a login, as the connector has them."""
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        **(client or {}),
    }
    return spark.readStream.format("kafka").options(**settings).load()


def balances(records: DataFrame) -> DataFrame:
    """One row per account."""
    bookings = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("booking")).select("booking.*")
    return bookings.groupBy("account").agg(F.sum("cents").alias("cents"), F.count("*").alias("bookings"))


def write(rows: DataFrame, table: str) -> StreamingQuery:
    """All that is there now; the next run goes on from here."""
    writer = rows.writeStream.format("delta").outputMode("complete")
    return writer.option("checkpointLocation", f"{table}/_checkpoint").trigger(availableNow=True).start(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    bootstrap_option(parser)
    arguments = parser.parse_args()
    client = read_clients(arguments).of_connector()
    spark = open_session("balances")
    write(balances(read_committed(spark, arguments.bootstrap, client=client)), arguments.table).awaitTermination()
    found = spark.read.format("delta").load(arguments.table)
    found.orderBy("account").show()
    found.agg(F.sum("cents").alias("in all")).show()
