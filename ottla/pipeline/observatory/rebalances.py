"""`rebalances`: one row each, from what set it off to the generation it ended in, with whoever held it up.

A rebalance is known by its group, the group's incarnation and the generation that it ends.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import in_order, moment

KEY = ["group_id", "incarnation", "generation"]
COLUMNS = (
    "group_id", "incarnation", "generation", "cause", "cause_member_id", "client_reason", "broker", "started_at",
    "started_ms", "outcome", "duration_ms", "join_phase_ms", "sync_phase_ms", "members", "leader_id", "protocol_name",
    "slowest_member_id", "slowest_client_id", "slowest_ms", "dropped_members",
)  # fmt: skip
"""`generation` is the new one. `outcome` is completed, superseded (by the next rebalance, before it had an assignment),
emptied or open. Durations are milliseconds; `slowest_ms` is how long the others waited for the last to join, or to be
dropped because it did not."""

HELD_UP = ("did not rejoin in time", "session expired", "new member's join timed out")


def rebalances(events: DataFrame) -> DataFrame:
    started = _started(events)
    joined = started.join(_generations(events), KEY, "left").join(_completions(events), KEY, "left")
    joined = joined.join(_emptied(events), KEY, "left").join(_slowest(events, started), KEY, "left")
    superseded = F.col("join_phase_ms").isNotNull() & F.col("superseded")
    outcome = (
        F.when(F.col("sync_phase_ms").isNotNull(), "completed")
        .when(F.col("emptied_mono_ms").isNotNull(), "emptied")
        .when(superseded, "superseded")
        .otherwise("open")
    )
    ended_mono_ms = F.coalesce("completed_mono_ms", "emptied_mono_ms", F.when(superseded, F.col("next_mono_ms")))
    return joined.select(
        "group_id",
        "incarnation",
        (F.col("generation") + 1).alias("generation"),
        "cause",
        "cause_member_id",
        "client_reason",
        "broker",
        moment("started_ms").alias("started_at"),
        "started_ms",
        outcome.alias("outcome"),
        (ended_mono_ms - F.col("started_mono_ms")).alias("duration_ms"),
        "join_phase_ms",
        "sync_phase_ms",
        "members",
        "leader_id",
        "protocol_name",
        "slowest_member_id",
        "slowest_client_id",
        "slowest_ms",
        F.coalesce("dropped_members", F.lit(0)).alias("dropped_members"),
    )


def _started(events: DataFrame) -> DataFrame:
    following = in_order("group_id", "incarnation")
    return events.where(F.col("type") == "rebalance_started").select(
        *KEY,
        "cause",
        F.col("member_id").alias("cause_member_id"),
        "client_reason",
        "broker",
        F.col("wall_ms").alias("started_ms"),
        F.col("mono_ms").alias("started_mono_ms"),
        F.lead("mono_ms").over(following).isNotNull().alias("superseded"),
        F.lead("mono_ms").over(following).alias("next_mono_ms"),
    )


def _generations(events: DataFrame) -> DataFrame:
    return events.where(F.col("type") == "generation_started").select(
        "group_id",
        "incarnation",
        (F.col("generation") - 1).alias("generation"),
        "join_phase_ms",
        F.size("member_ids").alias("members"),
        "leader_id",
        "protocol_name",
    )


def _completions(events: DataFrame) -> DataFrame:
    return events.where(F.col("type") == "generation_completed").select(
        "group_id",
        "incarnation",
        (F.col("generation") - 1).alias("generation"),
        "sync_phase_ms",
        F.col("mono_ms").alias("completed_mono_ms"),
    )


def _emptied(events: DataFrame) -> DataFrame:
    """The state's change is told in the generation that nobody is in."""
    became_empty = (F.col("type") == "state_changed") & (F.col("to_state") == "Empty")
    return events.where(became_empty).select(
        "group_id",
        "incarnation",
        (F.col("generation") - 1).alias("generation"),
        F.col("mono_ms").alias("emptied_mono_ms"),
    )


def _slowest(events: DataFrame, started: DataFrame) -> DataFrame:
    """Whose join, or whose removal for want of it, came last in the join phase."""
    is_held_up = (F.col("type") == "member_removed") & F.col("cause").isin(*HELD_UP)
    arrivals = events.where(F.col("type").isin("member_joined", "member_rejoined") | is_held_up).select(
        *KEY, "member_id", "client_id", "mono_ms", is_held_up.alias("was_dropped")
    )
    waits = arrivals.join(started.select(*KEY, "started_mono_ms"), KEY).withColumn(
        "waited_ms", F.greatest(F.col("mono_ms") - F.col("started_mono_ms"), F.lit(0))
    )
    # The removal that sets a rebalance off comes before its start and holds nobody up.
    waits = waits.where(~F.col("was_dropped") | (F.col("mono_ms") > F.col("started_mono_ms")))
    return waits.groupBy(*KEY).agg(
        F.max_by("member_id", "waited_ms").alias("slowest_member_id"),
        F.max_by("client_id", "waited_ms").alias("slowest_client_id"),
        F.max("waited_ms").alias("slowest_ms"),
        F.sum(F.col("was_dropped").cast("int")).cast("int").alias("dropped_members"),
    )
