"""spark-submit archive.py --bootstrap HOST:PORT --topic T --table PATH: topics to a Delta table (docs/pipeline.md)."""

import argparse
from functools import partial

from pyspark.sql import SparkSession

from ottla.pipeline import archive, cluster
from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.job import follow, run, say, settings
from ottla.pipeline.jobs.options import archive_parser
from ottla.pipeline.session import master_of, open_session


def main(arguments: argparse.Namespace) -> None:
    seen = check_source(arguments)
    keep(open_session("archive"), arguments, seen)


def check_source(arguments: argparse.Namespace) -> cluster.ClusterSummary:
    """Before Java starts. Raises PipelineError for a broker or a topic that is not there."""
    settings(arguments.option)
    arguments.security = read_clients(arguments)
    seen = cluster.fetch_summary(arguments.bootstrap, arguments.security)
    cluster.check_topics(seen, arguments.topics, arguments.bootstrap)
    return seen


def keep(spark: SparkSession, arguments: argparse.Namespace, seen: cluster.ClusterSummary) -> None:
    loss = {"failOnDataLoss": str(not arguments.allow_data_loss).lower()}
    options = {**loss, **arguments.security.of_connector(), **settings(arguments.option)}
    cluster.check_reachable(seen, master_of(spark))
    cluster.check_path(arguments.table, master_of(spark), is_shared=arguments.shared_path)
    checkpoint = arguments.checkpoint or f"{arguments.table}/_checkpoint"
    archive.check_checkpoint(spark, checkpoint, arguments.topics, arguments.table)
    records = archive.read_topics(spark, arguments.bootstrap, arguments.topics, options)
    rows = archive.archived(records, arguments.schema)
    write = partial(archive.write_table, rows, arguments.table, checkpoint)
    count = follow(partial(write, once=arguments.once, interval_s=arguments.interval))
    say(f"archived {count:,} records to {arguments.table}")


if __name__ == "__main__":
    run(main, archive_parser())
