"""The broker's events (docs/events.md) as a frame: from archived records to one row per event."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

EVENTS_TOPIC = "ottla.events"
VERSION = 1

_PARTITIONS = "MAP<STRING, ARRAY<INT>>"
SCHEMA = ", ".join(
    (
        "v INT, type STRING, wall_ms BIGINT, mono_ms BIGINT, broker INT, run BIGINT, seq BIGINT",
        "group_id STRING, generation INT, member_id STRING, group_instance_id STRING, client_id STRING",
        "client_host STRING, client_reason STRING, cause STRING, reason STRING, member_count INT",
        "from_state STRING, to_state STRING, leader_id STRING, protocol_name STRING",
        "is_leader BOOLEAN, member_ids ARRAY<STRING>, join_phase_ms BIGINT, sync_phase_ms BIGINT",
        "old_member_id STRING, new_member_id STRING",
        f"owned {_PARTITIONS}, assigned {_PARTITIONS}",
        "topic STRING, partition STRING, committed ARRAY<BIGINT>, end ARRAY<BIGINT>",
        "leader INT, previous_leader INT, leader_epoch INT, partition_epoch INT, isr ARRAY<INT>",
        "coordinator INT, previous_coordinator INT, coordinator_epoch INT, groups INT, load_ms BIGINT",
        "transactional_id STRING, producer_id BIGINT, producer_epoch INT, start_ms BIGINT, open_ms BIGINT",
        "outcome STRING, partition_count INT, topics ARRAY<STRING>, group_ids ARRAY<STRING>",
        "transaction_timeout_ms BIGINT",
    )
)
"""The fields that the tables are made of; events have more. `partition` is kept as its JSON: samples have a list of
partitions, other events one."""


@dataclass(frozen=True, slots=True)
class Period:
    """Times of day in milliseconds since 1970, the last one exclusive; None is no bound."""

    since_ms: int | None = None
    until_ms: int | None = None

    def of(self, frame: DataFrame, milliseconds: str = "wall_ms") -> DataFrame:
        """The rows of this period."""
        if self.since_ms is not None:
            frame = frame.where(F.col(milliseconds) >= self.since_ms)
        return frame if self.until_ms is None else frame.where(F.col(milliseconds) < self.until_ms)


EVER = Period()
# The client's own reasons when it leaves because the application has not polled: of Java's consumer, of librdkafka.
_POLL_TIMEOUT_WORDS = ("poll timeout", "max.poll.interval")
POLL_TIMEOUT = "max.poll.interval.ms exceeded"


def events_of(records: DataFrame) -> DataFrame:
    """Each event once, of archived records of any topics; what is no event of a version known here is left out, and so
    are those of `transaction_events_of`.

    `incarnation` counts how often the group had been created again before: its generations restart with it.
    `times_empty` counts how often it had lost its last member, `is_empty` says that it has none now; null: not known.
    """
    known = _parsed(records, ~_is_of_transactional_id())
    # Copies of one event come next to each other. One order of each group's events serves both questions, and most
    # tables after them.
    of_group = in_order("group_id")
    identity = F.struct("broker", "run", "seq")
    once = known.withColumn("is_copy", identity.eqNullSafe(F.lag(identity).over(of_group))).where(~F.col("is_copy"))
    is_recreated = (F.col("to_state") == "Dead") | (F.col("type") == "group_loaded")
    so_far = of_group.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_emptied = (F.col("type") == "state_changed") & F.col("to_state").isin("Empty", "Dead")
    is_still_empty = F.when(F.col("type") == "state_changed", is_emptied)
    return once.drop("is_copy").select(
        "*",
        F.sum(F.when(is_recreated, 1).otherwise(0)).over(so_far).alias("incarnation"),
        F.sum(F.when(is_emptied, 1).otherwise(0)).over(so_far).alias("times_empty"),
        F.last(is_still_empty, ignorenulls=True).over(so_far).alias("is_empty"),
    )


def transaction_events_of(records: DataFrame) -> DataFrame:
    """The events about transactional ids, copies among them. There may be far more of them than of all others, and no
    order of them is needed."""
    return _parsed(records, _is_of_transactional_id())


def _is_of_transactional_id() -> Column:
    """Before the event is parsed. Within a text the quotes would have backslashes before them."""
    return F.contains(F.col("value").cast("string"), F.lit('"transactional_id":'))


def _parsed(records: DataFrame, wanted: Column) -> DataFrame:
    values = records.where((F.col("topic") == EVENTS_TOPIC) & wanted).select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")
    )
    return values.select("event.*").where((F.col("v") == VERSION) & F.col("type").isNotNull())


def cause() -> Column:
    """Why a rebalance began or a member left, with the one that only the client's own reason shows."""
    in_reason = [F.contains(F.col("client_reason"), F.lit(words)) for words in _POLL_TIMEOUT_WORDS]
    is_poll_timeout = in_reason[0] | in_reason[1]
    return F.when(is_poll_timeout, F.concat("cause", F.lit(f", {POLL_TIMEOUT}"))).otherwise(F.col("cause"))


def in_order(*keys: str) -> WindowSpec:
    """The events of each key in the order in which they happened."""
    return Window.partitionBy(*keys).orderBy("wall_ms", "broker", "run", "seq")


def moment(milliseconds: str) -> Column:
    """A wall-clock column of milliseconds as a timestamp."""
    return F.timestamp_millis(milliseconds)
