"""`partition_ownership`: who had each partition from when to when, and how long it had no owner before.

A member holds what it was last given; when it joins again, what it says it keeps; when it is gone, nothing. A static
member keeps its partitions when it restarts.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import in_order, moment

_HELD = "ARRAY<STRUCT<topic: STRING, partition: INT>>"


def partition_ownership(events: DataFrame) -> DataFrame:
    """One row per partition and stretch of ownership.

    `owner` is the static name of a member, or its id. `unowned_ms` is null of a partition that had no owner before, and
    ends when the group has no members any more. `unowned_from` is when the last owner let go."""
    changes = _changes(events)
    by_partition = Window.partitionBy("group_id", "topic", "partition").orderBy(
        "wall_ms", "taken", "broker", "run", "seq"
    )
    stretches = (
        changes.withColumn("next_ms", F.lead("wall_ms").over(by_partition))
        .withColumn("was_let_go", ~F.lag("taken").over(by_partition))
        .withColumn("before_ms", F.lag("wall_ms").over(by_partition))
        .withColumn("before_owner", F.lag("owner").over(by_partition))
        .withColumn("found_ms", F.least("wall_ms", F.lag("emptied_ms").over(by_partition)))
        .where(F.col("taken"))
    )
    return stretches.select(
        "group_id",
        "topic",
        "partition",
        "owner",
        "member_id",
        "client_id",
        "generation",
        moment("wall_ms").alias("owned_from"),
        moment("next_ms").alias("owned_until"),
        (F.col("next_ms") - F.col("wall_ms")).alias("owned_ms"),
        F.col("before_owner").alias("previous_owner"),
        F.when(F.col("was_let_go"), F.col("found_ms") - F.col("before_ms"))
        .when(F.col("before_ms").isNotNull(), F.lit(0))
        .alias("unowned_ms"),
        moment("before_ms").alias("unowned_from"),
    )


def _changes(events: DataFrame) -> DataFrame:
    """Partitions taken and let go, one row each."""
    holdings = _holdings(events)
    before = F.coalesce(F.lag("held").over(in_order("group_id", "owner")), F.expr(f"CAST(array() AS {_HELD})"))
    changed = holdings.withColumn("before", before)
    columns = [name for name in holdings.columns if name != "held"]

    def exploded(partitions: Column, *, taken: bool) -> DataFrame:
        rows = changed.select(*columns, F.explode(partitions).alias("one"))
        return rows.select(*columns, "one.topic", "one.partition", F.lit(taken).alias("taken"))

    taken = exploded(F.array_except("held", "before"), taken=True)
    return taken.unionByName(exploded(F.array_except("before", "held"), taken=False))


def _holdings(events: DataFrame) -> DataFrame:
    """What each member holds after each event that changes it. An assignment counts when all have theirs. `emptied_ms`
    is when the group next had no members."""
    is_emptied = (F.col("type") == "state_changed") & F.col("to_state").isin("Empty", "Dead")
    ahead = in_order("group_id").rowsBetween(Window.currentRow, Window.unboundedFollowing)
    emptied_ms = F.first(F.when(is_emptied, F.col("wall_ms")), ignorenulls=True).over(ahead)
    selected = events.withColumn("emptied_ms", emptied_ms).where(
        F.col("type").isin("member_assigned", "member_rejoined", "member_removed")
    )
    by_topic = F.when(F.col("type") == "member_assigned", F.col("assigned")).when(
        F.col("type") == "member_rejoined", F.col("owned")
    )
    held = F.flatten(
        F.transform(
            F.map_entries(by_topic),
            lambda entry: F.transform(
                entry["value"],
                lambda partition: F.struct(entry["key"].alias("topic"), partition.alias("partition")),
            ),
        )
    )
    return selected.select(
        "group_id",
        F.coalesce("group_instance_id", "member_id").alias("owner"),
        "member_id",
        "client_id",
        "generation",
        "wall_ms",
        "broker",
        "run",
        "seq",
        "emptied_ms",
        F.coalesce(held, F.expr(f"CAST(array() AS {_HELD})")).alias("held"),
    )
