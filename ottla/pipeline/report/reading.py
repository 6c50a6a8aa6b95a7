"""The rows that the report shows, read from the tables; whatever grows with time is made small on Spark's side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import EVER, Period

TABLES = ("rebalances", "partition_ownership", "lag", "stuck_members", "leadership")
REBALANCES_MAX = 2000
OWNERSHIP_MAX = 5000
STUCK_MAX = 50
PARTITIONS_MAX = 25
POINTS_OF_LAG = 300


@dataclass(frozen=True, slots=True)
class Findings:
    """Rows have the columns of their tables, except where said. Times are milliseconds since 1970."""

    rebalances: Sequence[Any]
    """The latest, in their order."""
    ownership: Sequence[Any]
    """`group_id`, `topic`, `partition`, `owner`, `member_id`, `client_id`, `from_ms`, `until_ms`, `unowned_from_ms`,
    `unowned_ms`, `moves`: the latest, in their order."""
    lag: Sequence[Any]
    """`group_id`, `at_ms`, `lag`: sums over partitions, thinned out evenly."""
    stuck: Sequence[Any]
    leadership: Sequence[Any]
    """`name`, `leader`, `from_ms`, `until_ms`, `leaderless_ms`: the terms of the partitions that moved most."""


def read_tables(
    tables: Mapping[str, DataFrame], groups: Sequence[str] | None = None, period: Period = EVER
) -> Findings:
    """Of all groups, or of those given."""

    def of_groups(name: str) -> DataFrame:
        return tables[name].where(F.col("group_id").isin(*groups)) if groups else tables[name]

    latest = period.of(of_groups("rebalances"), "started_ms").orderBy(F.desc("started_ms")).limit(REBALANCES_MAX)
    stuck = period.of(of_groups("stuck_members").withColumn("until_ms", F.unix_millis("until")), "until_ms")
    return Findings(
        rebalances=latest.collect()[::-1],
        ownership=latest_ownership(overlapping(of_groups("partition_ownership"), "owned", period)).collect(),
        lag=lag_over_time(period.of(of_groups("lag"), "sampled_ms")).collect(),
        stuck=stuck.orderBy(F.desc("until")).limit(STUCK_MAX).collect(),
        leadership=moved_most(overlapping(tables["leadership"], "led", period)).collect(),
    )


def overlapping(stretches: DataFrame, verb: str, period: Period) -> DataFrame:
    """Stretches from `{verb}_from` to `{verb}_until` that have a part in the period, with both in milliseconds."""
    found = stretches.withColumns(
        {"from_ms": F.unix_millis(f"{verb}_from"), "until_ms": F.unix_millis(f"{verb}_until")}
    )
    if period.since_ms is not None:
        found = found.where(F.col("until_ms").isNull() | (F.col("until_ms") >= period.since_ms))
    return found if period.until_ms is None else found.where(F.col("from_ms") < period.until_ms)


def latest_ownership(ownership: DataFrame) -> DataFrame:
    is_moved = F.when(F.col("owner") != F.col("previous_owner"), 1).otherwise(0)
    columns = ("group_id", "topic", "partition", "owner", "member_id", "client_id", "from_ms", "until_ms", "unowned_ms")
    found = ownership.orderBy(F.desc("from_ms")).limit(OWNERSHIP_MAX)
    return found.select(
        *columns, F.unix_millis("unowned_from").alias("unowned_from_ms"), is_moved.alias("moves")
    ).orderBy("group_id", "topic", "partition", "from_ms")


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


def moved_most(leadership: DataFrame) -> DataFrame:
    """The terms of partitions that had more than one, in the order of names and time. `leadership` has the times in
    milliseconds."""
    partition = ["topic", "partition"]
    moves = leadership.groupBy(*partition).agg(F.count("*").alias("terms")).where(F.col("terms") > 1)
    chosen = moves.orderBy(F.desc("terms"), *partition).limit(PARTITIONS_MAX)
    return (
        leadership.join(F.broadcast(chosen), partition)
        .orderBy(*partition, "from_ms")
        .select(F.concat_ws("-", *partition).alias("name"), "leader", "from_ms", "until_ms", "leaderless_ms")
    )
