"""`leadership`: which broker came to lead what: partitions, and groups as their coordinator."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import in_order, moment

COLUMNS = ("at", "at_ms", "kind", "name", "broker", "previous_broker", "generation")


def leadership(events: DataFrame) -> DataFrame:
    """`kind` is coordinator, where `name` is a group, or broker, for the start of one."""
    told = events.where(F.col("type").isin("group_loaded", "broker_started"))
    is_group = F.col("type") == "group_loaded"
    return told.select(
        moment("wall_ms").alias("at"),
        F.col("wall_ms").alias("at_ms"),
        F.when(is_group, "coordinator").otherwise("broker").alias("kind"),
        F.when(is_group, F.col("group_id")).otherwise(F.concat(F.lit("broker-"), F.col("broker"))).alias("name"),
        "broker",
        F.when(is_group, F.lag("broker").over(in_order("type", "group_id"))).alias("previous_broker"),
        "generation",
    )
