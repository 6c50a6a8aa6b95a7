"""The rows that the report shows, read from the tables; whatever grows with time is made small on Spark's side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

REBALANCES_MAX = 2000
MEMBERS_MAX = 15
STUCK_MAX = 50
PARTITIONS_MAX = 25
POINTS_OF_LAG = 300


@dataclass(frozen=True, slots=True)
class Findings:
    """Rows have the columns of their tables, except where said."""

    rebalances: Sequence[Any]
    """The latest, in their order."""
    slowest: Sequence[Any]
    """`group_id`, `client_id`, `rebalances`, `held_up_ms`, `worst_ms` of those that others waited longest for."""
    lag: Sequence[Any]
    """`group_id`, `at_ms`, `lag`: sums over partitions, thinned out evenly."""
    unowned: Sequence[Any]
    """`group_id`, `topic`, `partition`, `moves`, `unowned_ms`, `longest_ms`."""
    stuck: Sequence[Any]
    leadership: Sequence[Any]
    """`name`, `leader`, `from_ms`, `until_ms`, `leaderless_ms`: the terms of the partitions that moved most."""


def read_tables(spark: SparkSession, directory: str, groups: Sequence[str] | None = None) -> Findings:
    """Of all groups, or of those given."""

    def table(name: str) -> DataFrame:
        rows = spark.read.format("delta").load(f"{directory}/{name}")
        return rows.where(F.col("group_id").isin(*groups)) if groups and "group_id" in rows.columns else rows

    latest = table("rebalances").orderBy(F.desc("started_ms")).limit(REBALANCES_MAX).collect()
    return Findings(
        rebalances=latest[::-1],
        slowest=slowest_members(table("rebalances")).limit(MEMBERS_MAX).collect(),
        lag=lag_over_time(table("lag")).collect(),
        unowned=time_without_owner(table("partition_ownership")).limit(MEMBERS_MAX).collect(),
        stuck=table("stuck_members").orderBy(F.desc("until")).limit(STUCK_MAX).collect(),
        leadership=moved_most(table("leadership")).collect(),
    )


def slowest_members(rebalances: DataFrame) -> DataFrame:
    """By client, for member ids change with every start."""
    waited_for = rebalances.where(F.col("slowest_ms") > 0)
    return (
        waited_for.groupBy("group_id", F.col("slowest_client_id").alias("client_id"))
        .agg(
            F.count("*").alias("rebalances"),
            F.sum("slowest_ms").alias("held_up_ms"),
            F.max("slowest_ms").alias("worst_ms"),
        )
        .orderBy(F.desc("held_up_ms"))
    )


def lag_over_time(lag: DataFrame) -> DataFrame:
    """The lag of a group is that of all partitions sampled at one moment; of many moments, the largest stands."""
    sums = lag.groupBy("group_id", "sampled_ms").agg(F.sum("lag").alias("lag"))
    bounds = sums.agg(F.min("sampled_ms").alias("first_ms"), F.max("sampled_ms").alias("last_ms"))
    width_ms = F.greatest(F.expr(f"CAST((last_ms - first_ms) / {POINTS_OF_LAG} AS BIGINT)"), F.lit(1))
    slots = sums.crossJoin(bounds).withColumn("slot", F.expr("sampled_ms - first_ms").cast("bigint") / width_ms)
    thinned = slots.groupBy("group_id", F.floor("slot").alias("slot")).agg(
        F.max("lag").alias("lag"), F.min("sampled_ms").alias("at_ms")
    )
    return thinned.where(F.col("lag").isNotNull()).select("group_id", "at_ms", "lag").orderBy("group_id", "at_ms")


def time_without_owner(ownership: DataFrame) -> DataFrame:
    moved = ownership.where(F.col("unowned_ms") > 0)
    return (
        moved.groupBy("group_id", "topic", "partition")
        .agg(
            F.sum(F.when(F.col("owner") != F.col("previous_owner"), 1).otherwise(0)).alias("moves"),
            F.sum("unowned_ms").alias("unowned_ms"),
            F.max("unowned_ms").alias("longest_ms"),
        )
        .orderBy(F.desc("unowned_ms"))
    )


def moved_most(leadership: DataFrame) -> DataFrame:
    """The terms of partitions that had more than one, in the order of names and time."""
    partition = ["topic", "partition"]
    moves = leadership.groupBy(*partition).agg(F.count("*").alias("terms")).where(F.col("terms") > 1)
    chosen = moves.orderBy(F.desc("terms"), *partition).limit(PARTITIONS_MAX)
    return (
        leadership.join(F.broadcast(chosen), partition)
        .orderBy(*partition, "led_from")
        .select(
            F.concat_ws("-", *partition).alias("name"),
            "leader",
            F.unix_millis("led_from").alias("from_ms"),
            F.unix_millis("led_until").alias("until_ms"),
            "leaderless_ms",
        )
    )
