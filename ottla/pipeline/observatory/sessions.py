"""`member_sessions`: each member's time in its group, and how it ended."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import cause, moment

COLUMNS = (
    "group_id", "member_id", "group_instance_id", "client_id", "client_host", "joined_at", "left_at", "left_cause",
    "client_reason", "duration_ms", "rejoins", "generations",
)  # fmt: skip
"""`left_at` is null of members that are still there, `joined_at` of those that were there before the first event."""

REPLACED = "static member replaced"
_WHAT = {
    "member_joined": "in",
    "member_rejoined": "again",
    "member_assigned": "assigned",
    "member_removed": "out",
}


def member_sessions(events: DataFrame) -> DataFrame:
    moments = _moments(events)
    sessions = moments.groupBy("group_id", "member_id").agg(
        *(F.first(name, ignorenulls=True).alias(name) for name in ("group_instance_id", "client_id", "client_host")),
        F.min(F.when(F.col("what") == "in", F.col("wall_ms"))).alias("joined_ms"),
        F.max(F.when(F.col("what") == "out", F.col("wall_ms"))).alias("left_ms"),
        F.max(F.when(F.col("what") == "out", F.col("cause"))).alias("left_cause"),
        F.max(F.when(F.col("what") == "out", F.col("client_reason"))).alias("client_reason"),
        F.sum((F.col("what") == "again").cast("int")).cast("int").alias("rejoins"),
        F.sum((F.col("what") == "assigned").cast("int")).cast("int").alias("generations"),
    )
    return sessions.select(
        *COLUMNS[:5],
        moment("joined_ms").alias("joined_at"),
        moment("left_ms").alias("left_at"),
        "left_cause",
        "client_reason",
        (F.col("left_ms") - F.col("joined_ms")).alias("duration_ms"),
        "rejoins",
        "generations",
    )


def _moments(events: DataFrame) -> DataFrame:
    """What is known of a member at one moment. A static member's restart is the end of one and the start of another."""
    what = F.create_map(*(F.lit(text) for pair in _WHAT.items() for text in pair))
    moments = events.withColumn("what", F.element_at(what, F.col("type"))).where(F.col("what").isNotNull())
    replaced = events.where(F.col("type") == "static_member_replaced")
    return (
        moments.select(
            "group_id",
            "member_id",
            "group_instance_id",
            "client_id",
            "client_host",
            "wall_ms",
            cause().alias("cause"),
            "client_reason",
            "what",
        )
        .unionByName(_restart(replaced, "old_member_id", what="out", cause=REPLACED))
        .unionByName(_restart(replaced, "new_member_id", what="in", cause=None))
    )


def _restart(replaced: DataFrame, member: str, *, what: str, cause: str | None) -> DataFrame:
    """Of a replaced static member, the end of the old one or the start of the new one."""
    no_text = F.lit(None).cast("string")
    return replaced.select(
        "group_id",
        F.col(member).alias("member_id"),
        "group_instance_id",
        no_text.alias("client_id"),
        no_text.alias("client_host"),
        "wall_ms",
        F.lit(cause).cast("string").alias("cause"),
        no_text.alias("client_reason"),
        F.lit(what).alias("what"),
    )
