"""`leadership`: which broker led each partition from when to when, and how long it had no leader before.

A term begins with its event, or, where the broker that should have written it died, with the first event of its epoch.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import moment

CONSUMER_OFFSETS = "__consumer_offsets"


def leadership(events: DataFrame) -> DataFrame:
    """One row per partition and term of a leader.

    `led_until` is null of the present leader. `leaderless_ms` is null of the first term. For partitions of
    `__consumer_offsets`, `groups` is how many groups moved to the new coordinator, and `load_ms` how long it took to
    load them.
    """
    terms = _terms(events)
    in_turn = Window.partitionBy("topic", "partition").orderBy("term")
    with_neighbours = (
        terms.withColumn("until_ms", F.lead("from_ms").over(in_turn))
        .withColumn("before_ms", F.lag("from_ms").over(in_turn))
        .withColumn("was_leaderless", F.lag("leader").over(in_turn).isNull())
        .withColumn("last_leader", F.last("leader", ignorenulls=True).over(in_turn.rowsBetween(-2, -1)))
    )
    return with_neighbours.where(F.col("leader").isNotNull()).select(
        "topic",
        "partition",
        "leader",
        "leader_epoch",
        F.coalesce("last_leader", "previous_leader").alias("previous_leader"),
        moment("from_ms").alias("led_from"),
        moment("until_ms").alias("led_until"),
        (F.col("until_ms") - F.col("from_ms")).alias("led_ms"),
        F.when(F.col("was_leaderless"), F.col("from_ms") - F.col("before_ms"))
        .when(F.col("before_ms").isNotNull(), F.lit(0))
        .alias("leaderless_ms"),
        "isr_changes",
        "smallest_isr",
        "groups",
        "load_ms",
    )


def _terms(events: DataFrame) -> DataFrame:
    """One row per leader epoch of a partition, those without a leader included."""
    changes = _leader_events(events)
    in_turn = Window.partitionBy("topic", "partition").orderBy("wall_ms", "leader_epoch", "broker", "run", "seq")
    begins = (F.col("type") == "leader_changed") | (F.col("leader_epoch") != F.lag("leader_epoch").over(in_turn))
    numbered = changes.withColumn("begins", begins.cast("int")).withColumn("term", F.sum("begins").over(in_turn))
    return numbered.groupBy("topic", "partition", F.coalesce("term", F.lit(0)).alias("term")).agg(
        F.first("leader", ignorenulls=True).alias("leader"),
        F.first("previous_leader", ignorenulls=True).alias("previous_leader"),
        F.min("leader_epoch").alias("leader_epoch"),
        F.min("wall_ms").alias("from_ms"),
        F.count_if(F.col("type") == "isr_changed").cast("int").alias("isr_changes"),
        F.min(F.array_size("isr")).alias("smallest_isr"),
        F.max("groups").alias("groups"),
        F.max("load_ms").alias("load_ms"),
    )


def _leader_events(events: DataFrame) -> DataFrame:
    """The events about partitions; a coordinator that has moved is the leader of a partition of its groups."""
    selected = events.where(F.col("type").isin("leader_changed", "isr_changed", "coordinator_moved"))
    return selected.select(
        F.coalesce("topic", F.lit(CONSUMER_OFFSETS)).alias("topic"),
        F.col("partition").try_cast("int").alias("partition"),
        F.coalesce("leader", "coordinator").alias("leader"),
        F.coalesce("previous_leader", "previous_coordinator").alias("previous_leader"),
        F.coalesce("leader_epoch", "coordinator_epoch").alias("leader_epoch"),
        "type",
        "isr",
        "groups",
        "load_ms",
        "wall_ms",
        "broker",
        "run",
        "seq",
    )
