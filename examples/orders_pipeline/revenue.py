"""Archived orders summed up by item and sent back to a topic.

First `ottla pipeline archive --topic orders --table TABLE --once --schema "$SCHEMA"`, see README.md. Then

    spark-submit --packages ... examples/orders_pipeline/revenue.py --table TABLE --bootstrap 127.0.0.1:9092
"""

import argparse

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.options import bootstrap_option
from ottla.pipeline.session import open_session

TOPIC = "revenue"
SCHEMA = "order BIGINT, customer STRING, item STRING, pieces INT, price_cents INT"


def revenue(archive: DataFrame) -> DataFrame:
    """One row per item: what was sold and what it brought."""
    orders = archive.where(F.col("topic") == "orders").select("json.*").where(F.col("order").isNotNull())
    return orders.groupBy("item").agg(
        F.count("*").alias("orders"),
        F.sum("pieces").alias("pieces"),
        F.sum(F.col("pieces") * F.col("price_cents")).alias("revenue_cents"),
    )


def as_records(rows: DataFrame) -> DataFrame:
    """What Spark's Kafka sink takes: a key, and the row as JSON."""
    return rows.select(F.col("item").alias("key"), F.to_json(F.struct(*rows.columns)).alias("value"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    bootstrap_option(parser)
    arguments = parser.parse_args()
    client = read_clients(arguments).of_connector()
    spark = open_session("revenue")
    rows = revenue(spark.read.format("delta").load(arguments.table))
    sink = as_records(rows).write.format("kafka").option("kafka.bootstrap.servers", arguments.bootstrap)
    sink.options(**client).option("topic", TOPIC).save()
    rows.orderBy("item").show()
