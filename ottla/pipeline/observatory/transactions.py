"""`transactions`: one row each, from its first partition to its markers, with the outcome and the reason of an abort.

A transaction is known by its transactional id and the moment at which it began, which all its events have.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import moment

KEY = ["transactional_id", "start_ms"]
BEGAN, DECIDED, COMPLETED = "transaction_began", "transaction_decided", "transaction_completed"


def transactions(transaction_events: DataFrame) -> DataFrame:
    """One row per transaction that has been decided; an event that is there twice changes nothing.

    `open_ms` is the time from its begin to the decision, `markers_ms` from there until consumers of committed records
    could read on: null while markers are missing. Of a decision whose event is missing only the outcome is known.
    `producer_epoch` is that of the transaction, also where its abort has fenced the producer.
    """
    of_transactions = transaction_events.where(F.col("type").isin(BEGAN, DECIDED, COMPLETED))
    found = of_transactions.groupBy(*KEY).agg(
        _of("producer_id", BEGAN, DECIDED).alias("own_producer_id"),
        _of("producer_epoch", BEGAN, DECIDED).alias("own_producer_epoch"),
        F.first("producer_id").alias("any_producer_id"),
        _of("wall_ms", DECIDED).alias("decided_ms"),
        _of("wall_ms", COMPLETED).alias("completed_ms"),
        _of("open_ms", DECIDED).alias("open_ms"),
        _of("reason", DECIDED).alias("reason"),
        _of("partition_count", DECIDED).alias("partition_count"),
        _of("topics", DECIDED).alias("topics"),
        _of("group_ids", DECIDED).alias("groups"),
        F.first("outcome", ignorenulls=True).alias("outcome"),
        F.first("transaction_timeout_ms", ignorenulls=True).alias("transaction_timeout_ms"),
    )
    # The two may be of brokers whose clocks differ.
    markers_ms = F.col("completed_ms") - F.col("decided_ms")
    return found.where(F.col("outcome").isNotNull()).select(
        "transactional_id",
        F.coalesce("own_producer_id", "any_producer_id").alias("producer_id"),
        F.col("own_producer_epoch").alias("producer_epoch"),
        moment("start_ms").alias("started_at"),
        F.col("start_ms").alias("started_ms"),
        moment("decided_ms").alias("decided_at"),
        moment("completed_ms").alias("completed_at"),
        "open_ms",
        F.when(markers_ms.isNotNull(), F.greatest(markers_ms, F.lit(0))).alias("markers_ms"),
        "outcome",
        "reason",
        F.col("partition_count").alias("partitions"),
        "topics",
        "groups",
        "transaction_timeout_ms",
    )


def _of(name: str, *types: str) -> Column:
    """From the events of these types, which all say the same."""
    return F.min(F.when(F.col("type").isin(*types), F.col(name)))
