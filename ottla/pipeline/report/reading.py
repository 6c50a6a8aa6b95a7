"""The rows that the report shows, read from the tables; whatever grows with time is made small on Spark's side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import EVER, Period

TABLES = ("rebalances", "partition_ownership", "lag", "stuck_members", "leadership", "transactions")
REBALANCES_MAX = 2000
OWNERSHIP_MAX = 5000
STUCK_MAX = 50
PARTITIONS_MAX = 25
POINTS_OF_LAG = 300
TRANSACTIONAL_IDS_MAX = 25
LONGEST_OF_EACH = 20
ABORTS_MAX = 40


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
    transactions: Sequence[Any] = ()
    """`transactional_id`, `outcome`, `reason`, `transactions`, `total_ms`, `longest_ms`: how many ended so, and how
    long they were open; the ids with the most aborts first."""
    longest_transactions: Sequence[Any] = ()
    """Of the same ids, in the order of ids and time."""
    aborts: Sequence[Any] = ()
    """The latest first."""


def read_tables(
    tables: Mapping[str, DataFrame], groups: Sequence[str] | None = None, period: Period = EVER
) -> Findings:
    """Of all groups, or of those given."""

    def of_groups(name: str) -> DataFrame:
        return tables[name].where(F.col("group_id").isin(*groups)) if groups else tables[name]

    latest = period.of(of_groups("rebalances"), "started_ms").orderBy(F.desc("started_ms")).limit(REBALANCES_MAX)
    ended = period.of(of_their_groups(tables["transactions"], groups), "started_ms")
    counted = transactions_by_id(ended).collect()
    stuck = period.of(of_groups("stuck_members").withColumn("until_ms", F.unix_millis("until")), "until_ms")
    return Findings(
        rebalances=latest.collect()[::-1],
        ownership=latest_ownership(overlapping(of_groups("partition_ownership"), "owned", period)).collect(),
        lag=lag_over_time(period.of(of_groups("lag"), "sampled_ms")).collect(),
        stuck=stuck.orderBy(F.desc("until")).limit(STUCK_MAX).collect(),
        leadership=moved_most(overlapping(tables["leadership"], "led", period)).collect(),
        transactions=counted,
        longest_transactions=longest_of_each(ended, [row["transactional_id"] for row in counted]).collect(),
        aborts=ended.where(F.col("outcome") == "abort").orderBy(F.desc("started_ms")).limit(ABORTS_MAX).collect(),
    )


def of_their_groups(transactions: DataFrame, groups: Sequence[str] | None) -> DataFrame:
    """Those with offsets of one of the groups."""
    if not groups:
        return transactions
    return transactions.where(F.arrays_overlap("groups", F.array(*map(F.lit, groups))))


def transactions_by_id(transactions: DataFrame) -> DataFrame:
    """One row for each id, outcome and reason, of the ids with the most aborts and the longest transactions."""
    chosen = (
        transactions.groupBy("transactional_id")
        .agg(F.count_if(F.col("outcome") == "abort").alias("aborted"), F.max("open_ms").alias("id_longest_ms"))
        .orderBy(F.desc("aborted"), F.desc("id_longest_ms"), "transactional_id")
        .limit(TRANSACTIONAL_IDS_MAX)
    )
    counted = transactions.groupBy("transactional_id", "outcome", "reason").agg(
        F.count("*").alias("transactions"), F.sum("open_ms").alias("total_ms"), F.max("open_ms").alias("longest_ms")
    )
    order = (F.desc("aborted"), F.desc("id_longest_ms"), "transactional_id", "outcome", "reason")
    return counted.join(F.broadcast(chosen), "transactional_id").orderBy(*order)


def longest_of_each(transactions: DataFrame, transactional_ids: Sequence[str]) -> DataFrame:
    longest_first = Window.partitionBy("transactional_id").orderBy(F.desc("open_ms"), "started_ms")
    of_these = transactions.where(F.col("transactional_id").isin(*transactional_ids) & F.col("open_ms").isNotNull())
    ranked = of_these.withColumn("place", F.row_number().over(longest_first)).where(F.col("place") <= LONGEST_OF_EACH)
    return ranked.orderBy("transactional_id", "started_ms")


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
