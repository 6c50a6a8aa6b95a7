"""`stuck_members`: members that delayed a rebalance, or made no progress although there were records to read."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import POLL_TIMEOUT, cause, moment
from ottla.pipeline.observatory.rebalances import HELD_UP

NO_PROGRESS = "no progress"
NEVER_SYNCED = "members never synced"


def stuck_members(events: DataFrame, lags: DataFrame, ownership: DataFrame, *, no_progress_ms: int) -> DataFrame:
    """`kind` is the cause that a member was dropped for, or left because its application did not poll, or `no
    progress`: its committed offset stood still for `no_progress_ms` or longer, from sample to sample, while there was
    lag and the group had members. Such a row has a topic and a partition."""
    return _dropped(events).unionByName(_standing_still(lags, ownership, no_progress_ms))


def _dropped(events: DataFrame) -> DataFrame:
    is_delay = F.col("cause").isin(*HELD_UP, NEVER_SYNCED) | F.endswith(cause(), F.lit(POLL_TIMEOUT))
    is_dropped = (F.col("type") == "member_removed") & is_delay
    nothing = F.lit(None)
    return events.where(is_dropped).select(
        "group_id",
        cause().alias("kind"),
        F.coalesce("group_instance_id", "member_id").alias("owner"),
        "client_id",
        nothing.cast("string").alias("topic"),
        nothing.cast("int").alias("partition"),
        nothing.cast("timestamp").alias("since"),
        moment("wall_ms").alias("until"),
        nothing.cast("bigint").alias("duration_ms"),
        nothing.cast("bigint").alias("lag"),
    )


def _standing_still(lags: DataFrame, ownership: DataFrame, no_progress_ms: int) -> DataFrame:
    partition = ["group_id", "topic", "partition"]
    in_time = Window.partitionBy(*partition).orderBy("sampled_ms")
    was_empty = F.col("times_empty") != F.lag("times_empty").over(in_time)
    moved = (F.col("committed") != F.lag("committed").over(in_time)) | (F.col("lag") == 0) | was_empty
    of_members = lags.where(F.col("lag").isNotNull() & ~F.coalesce("is_empty", F.lit(False)))
    numbered = of_members.withColumn(
        "stretch", F.sum(F.when(moved, 1).otherwise(0)).over(in_time.rowsBetween(Window.unboundedPreceding, 0))
    )
    stretches = (
        numbered.where(F.col("lag") > 0)
        .groupBy(*partition, "stretch")
        .agg(
            F.min("sampled_at").alias("since"),
            F.max("sampled_at").alias("until"),
            (F.max("sampled_ms") - F.min("sampled_ms")).alias("duration_ms"),
            F.max_by("lag", "sampled_ms").alias("lag"),
        )
    )
    owners = ownership.select(*partition, "owner", "client_id", "owned_from", "owned_until")
    at_the_end = (F.col("owned_from") <= F.col("until")) & (
        F.col("owned_until").isNull() | (F.col("owned_until") > F.col("until"))
    )
    found = stretches.where(F.col("duration_ms") >= no_progress_ms).join(owners, partition, "left")
    # Joined with every owner of the partition; a stretch that ended without an owner stays, with none.
    ranked = found.withColumn("owns", F.coalesce(at_the_end, F.lit(False))).withColumn(
        "rank",
        F.row_number().over(Window.partitionBy(*partition, "stretch").orderBy(F.desc("owns"), F.desc("owned_from"))),
    )
    chosen = ranked.where(F.col("rank") == 1)
    return chosen.select(
        "group_id",
        F.lit(NO_PROGRESS).alias("kind"),
        F.when(F.col("owns"), F.col("owner")).alias("owner"),
        F.when(F.col("owns"), F.col("client_id")).alias("client_id"),
        "topic",
        "partition",
        "since",
        "until",
        "duration_ms",
        "lag",
    )
