"""Topics to a table, exactly once: the connector's micro-batches, committed by Delta Lake with the batch's number.

A batch that was written before a crash and is run again afterwards is recognised by that number and left out; what a
crash cuts short is in no commit of the table, so that no reader sees it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention.
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.failures import PipelineError

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
JSON_COLUMN = "json"


def read_topics(spark: SparkSession, bootstrap: str, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """A stream of all records from the first that is kept. `options` are the connector's, and come last."""
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "groupIdPrefix": "ottla-pipeline",
        **options,
    }
    return spark.readStream.format("kafka").options(**settings).load()


def archived(records: DataFrame, json_schema: str | None = None) -> DataFrame:
    """The rows of the table. With a schema, written as Spark writes it (`id INT, name STRING`), the column `json` has
    what the value says under it; null where the value is no such JSON. Raises PipelineError for what is no schema."""
    rows = records.select(*COLUMNS)
    if json_schema is None:
        return rows
    try:
        return rows.withColumn(JSON_COLUMN, F.from_json(F.col("value").cast("string"), json_schema))
    except AnalysisException as error:
        raise PipelineError(f"{json_schema} is no schema as Spark writes it: id INT, name STRING") from error


def write_table(rows: DataFrame, table: str, checkpoint: str, *, once: bool, interval_s: float) -> StreamingQuery:
    """Starts the query. `once`: everything that is there now, then the end."""
    writer = rows.writeStream.format("delta").outputMode("append").partitionBy("topic")
    writer = writer.queryName("archive").option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
    return writer.start(table)


def check_checkpoint(spark: SparkSession, checkpoint: str, topics: Iterable[str], table: str) -> None:
    """Raises PipelineError when the checkpoint has the positions of a query over other topics, or into another table:
    this one would lack what the query has put there already."""
    known = topics_of_checkpoint(spark, checkpoint)
    if not known <= set(topics):
        others = ", ".join(sorted(known))
        raise PipelineError(f"the checkpoint {checkpoint} belongs to a query over {others}: give another --checkpoint")
    query = query_of_checkpoint(spark, checkpoint)
    if query is not None and not is_written_by(spark, table, query):
        raise PipelineError(
            f"the checkpoint {checkpoint} belongs to a query into another table than {table}: give another --checkpoint"
        )


def topics_of_checkpoint(spark: SparkSession, checkpoint: str) -> set[str]:
    """Topics that the newest offsets in a checkpoint are of; empty when there is no checkpoint."""
    batches = _batches(spark, f"{checkpoint}/offsets")
    # Each file: a version, metadata of the batch, then one line per source.
    lines = batches[-1].splitlines()[2:] if batches else []
    return {topic for line in lines if line.startswith("{") for topic in json.loads(line)}


def query_of_checkpoint(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query that a checkpoint belongs to, None while no batch of it is certain to be in its table."""
    if not _batches(spark, f"{checkpoint}/commits"):
        return None
    metadata = spark.read.format("text").load(f"{checkpoint}/metadata").collect()
    return str(json.loads(metadata[0]["value"])["id"])


def is_written_by(spark: SparkSession, table: str, query: str) -> bool:
    """Whether the table has a commit of that query: Delta notes for each the last batch that it has."""
    # Only Delta's own classes have it.
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    session = spark._jsparkSession  # pyright: ignore[reportPrivateUsage]
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, table)
    return bool(log.unsafeVolatileSnapshot().transactions().contains(query))


def _batches(spark: SparkSession, directory: str) -> list[str]:
    """The files of a checkpoint's directory, each of which is named by its batch, in that order."""
    try:
        files = spark.read.format("text").option("wholetext", "true").load(directory)
        texts = files.select("value", F.col("_metadata.file_name").cast("int").alias("batch")).orderBy("batch")
        return [str(row["value"]) for row in texts.collect()]
    except AnalysisException:
        return []
