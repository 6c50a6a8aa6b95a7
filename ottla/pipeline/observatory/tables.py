"""All tables of the observatory, made of the archived events and written one by one."""

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.

from ottla.pipeline.events import EVENTS_TOPIC, EVER, Period, events_of, transaction_events_of
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.observatory.lag import lag
from ottla.pipeline.observatory.leadership import leadership
from ottla.pipeline.observatory.ownership import partition_ownership
from ottla.pipeline.observatory.rebalances import rebalances
from ottla.pipeline.observatory.sessions import member_sessions
from ottla.pipeline.observatory.stuck import stuck_members
from ottla.pipeline.observatory.transactions import transactions


def tables_of(events: DataFrame, transaction_events: DataFrame, *, no_progress_ms: int) -> dict[str, DataFrame]:
    """Of events, of which the first are cached. The frames share what is cached, until `clearCache` of
    `spark.catalog`."""
    ownership, lags = partition_ownership(events).cache(), lag(events).cache()
    return {
        "rebalances": rebalances(events),
        "member_sessions": member_sessions(events),
        "partition_ownership": ownership,
        "lag": lags,
        "stuck_members": stuck_members(events, lags, ownership, no_progress_ms=no_progress_ms),
        "leadership": leadership(events),
        "transactions": transactions(transaction_events),
    }


def write_tables(
    records: DataFrame, directory: str, *, no_progress_ms: int, report: Callable[[str], None], period: Period = EVER
) -> None:
    """Of archived records. Each table is replaced in one commit; readers see the old rows or the new. Raises
    PipelineError where there are no events."""
    events, transaction_events = period.of(events_of(records)).cache(), period.of(transaction_events_of(records))
    try:
        if events.isEmpty() and transaction_events.isEmpty():
            when = "" if period == EVER else " of that time"
            raise PipelineError(f"the archive has no events of {EVENTS_TOPIC}{when}")
        tables = tables_of(events, transaction_events, no_progress_ms=no_progress_ms)
        for name, rows in _written(tables, directory):
            report(f"{name}: {rows:,} rows")
    finally:
        records.sparkSession.catalog.clearCache()


def _written(frames: dict[str, DataFrame], directory: str) -> Iterator[tuple[str, int]]:
    for name, frame in frames.items():
        counting = Observation()
        counted = frame.observe(counting, F.count(F.lit(1)).alias("rows"))
        counted.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(f"{directory}/{name}")
        yield name, counting.get["rows"]
