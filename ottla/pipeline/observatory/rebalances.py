"""`rebalances`: one row each, from what set it off to the generation it ended in, with the member that delayed it.

A rebalance is known by its group, the group's incarnation and the generation that it ends.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import cause, moment

KEY = ["group_id", "incarnation", "ended_generation"]
_EVENT_TYPES = ("rebalance_started", "member_joined", "member_rejoined", "generation_started", "generation_completed")
HELD_UP = ("did not rejoin in time", "session expired", "new member's join timed out")


def rebalances(events: DataFrame) -> DataFrame:
    """One row per rebalance.

    `generation` is the new one. `outcome` is completed, superseded (by the next rebalance, before it had an
    assignment), emptied or open. Durations are milliseconds; `slowest_ms` is how long the others waited for the last
    to join, or to be dropped because it did not. `is_initial`: the group had no members before, so that the join phase
    is group.initial.rebalance.delay.ms, and no member was waited for.
    """
    in_turn = Window.partitionBy("group_id", "incarnation").orderBy("started.wall_ms", "ended_generation")
    facts = _facts(events).withColumn("next_mono_ms", F.lead("started.mono_ms").over(in_turn))
    completed_mono_ms = F.col("completed.mono_ms")
    superseded_mono_ms = F.when(F.col("formed").isNotNull(), F.col("next_mono_ms"))
    outcome = (
        F.when(completed_mono_ms.isNotNull(), "completed")
        .when(F.col("emptied_mono_ms").isNotNull(), "emptied")
        .when(superseded_mono_ms.isNotNull(), "superseded")
        .otherwise("open")
    )
    ended_mono_ms = F.coalesce(completed_mono_ms, "emptied_mono_ms", superseded_mono_ms)
    return facts.select(
        "group_id",
        "incarnation",
        (F.col("ended_generation") + 1).alias("generation"),
        "started.cause",
        F.col("started.member_id").alias("cause_member_id"),
        "started.client_reason",
        "started.broker",
        moment("started.wall_ms").alias("started_at"),
        F.col("started.wall_ms").alias("started_ms"),
        outcome.alias("outcome"),
        (ended_mono_ms - F.col("started.mono_ms")).alias("duration_ms"),
        "formed.join_phase_ms",
        "completed.sync_phase_ms",
        F.array_size("formed.member_ids").alias("members"),
        "formed.leader_id",
        "formed.protocol_name",
        _of_slowest("member_id").alias("slowest_member_id"),
        _of_slowest("client_id").alias("slowest_client_id"),
        _of_slowest("waited_ms").alias("slowest_ms"),
        "dropped_members",
        "is_initial",
    )


def _facts(events: DataFrame) -> DataFrame:
    """One row per rebalance that began, with its events as one struct each, null where there is none."""
    is_empty = (F.col("type") == "state_changed") & (F.col("to_state") == "Empty")
    # These events carry the new generation, as does the state of a group that has become empty.
    is_after = F.col("type").isin("generation_started", "generation_completed") | is_empty
    is_first = (F.col("type") == "state_changed") & (F.col("from_state") == "Empty")
    selected = events.where(F.col("type").isin(*_EVENT_TYPES) | is_empty | is_first | _is_held_up()).withColumn(
        "ended_generation", F.col("generation") - F.when(is_after, 1).otherwise(0)
    )
    is_start = F.col("type") == "rebalance_started"
    started_mono_ms = F.max(F.when(is_start, F.col("mono_ms"))).over(Window.partitionBy(*KEY))
    of_started = selected.withColumn("started_mono_ms", started_mono_ms).where(F.col("started_mono_ms").isNotNull())
    waited_ms = F.greatest(F.col("mono_ms") - F.col("started_mono_ms"), F.lit(0))
    # The removal that sets a rebalance off comes before its start and delays no member.
    is_dropped = _is_held_up() & (F.col("mono_ms") > F.col("started_mono_ms"))
    came = F.col("type").isin("member_joined", "member_rejoined") | is_dropped
    return of_started.groupBy(*KEY).agg(
        _one(
            "rebalance_started", cause().alias("cause"), "member_id", "client_reason", "broker", "wall_ms", "mono_ms"
        ).alias("started"),
        _one("generation_started", "join_phase_ms", "member_ids", "leader_id", "protocol_name").alias("formed"),
        _one("generation_completed", "sync_phase_ms", "mono_ms").alias("completed"),
        F.min(F.when(is_empty, F.col("mono_ms"))).alias("emptied_mono_ms"),
        # Of those that came in the same millisecond, the last event.
        F.max(F.when(came, F.struct(waited_ms.alias("waited_ms"), "seq", "member_id", "client_id"))).alias("slowest"),
        F.count_if(is_dropped).cast("int").alias("dropped_members"),
        (F.count_if(is_first & (F.col("to_state") != "Dead")) > 0).alias("is_initial"),
    )


def _of_slowest(name: str) -> Column:
    return F.when(~F.col("is_initial"), F.col(f"slowest.{name}"))


def _one(event_type: str, *fields: str | Column) -> Column:
    return F.first(F.when(F.col("type") == event_type, F.struct(*fields)), ignorenulls=True)


def _is_held_up() -> Column:
    return (F.col("type") == "member_removed") & F.col("cause").isin(*HELD_UP)
