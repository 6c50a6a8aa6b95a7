"""`lag`: how far groups were behind, partition by partition, at every sample."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import moment


def lag(events: DataFrame) -> DataFrame:
    """`lag` is null where the coordinator did not know the partition's end. `is_empty`: the group had no members then.
    `times_empty` is how often it had lost its last one before."""
    samples = events.where(F.col("type") == "lag_sampled").withColumn(
        "partition", F.from_json("partition", "ARRAY<INT>")
    )
    each = samples.select(
        "group_id",
        "topic",
        "wall_ms",
        "is_empty",
        "times_empty",
        F.explode(F.arrays_zip("partition", "committed", "end")).alias("one"),
    )
    return each.select(
        "group_id",
        "topic",
        "one.partition",
        moment("wall_ms").alias("sampled_at"),
        F.col("wall_ms").alias("sampled_ms"),
        "one.committed",
        "one.end",
        F.when(F.col("one.end").isNotNull(), F.greatest(F.col("one.end") - F.col("one.committed"), F.lit(0))).alias(
            "lag"
        ),
        "is_empty",
        "times_empty",
    )
