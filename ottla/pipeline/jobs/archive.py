"""spark-submit archive.py --bootstrap HOST:PORT --topic T --table PATH: topics to a Delta table (docs/pipeline.md)."""

import argparse
from functools import partial

from pyspark.sql import SparkSession

from ottla.pipeline import archive, cluster
from ottla.pipeline.jobs.job import bootstrap_option, follow, run, say, settings, table_options
from ottla.pipeline.session import master_of, open_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("archive", description="Keep topics in a Delta table, exactly once.")
    bootstrap_option(made)
    made.add_argument("--topic", action="append", required=True, dest="topics", help="Repeatable.")
    made.add_argument("--table", required=True, metavar="PATH")
    made.add_argument(
        "--checkpoint", metavar="PATH", help="Where the job keeps its place; PATH/_checkpoint by default."
    )
    made.add_argument("--once", action="store_true", help="Everything that is there now, then end.")
    made.add_argument("--interval", type=float, default=10, metavar="SECONDS", help="Between two commits of the table.")
    made.add_argument("--schema", metavar="DDL", help="Of JSON values, as in 'id INT, name STRING': a column json.")
    source_options(made)
    table_options(made)
    return made


def source_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--allow-data-loss", action="store_true", help="Go on when retention was faster.")
    made.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="Of Spark's Kafka source.")


def main(arguments: argparse.Namespace) -> None:
    seen = check_source(arguments)
    keep(open_session("archive"), arguments, seen)


def check_source(arguments: argparse.Namespace) -> cluster.ClusterSummary:
    """Before Java starts. Raises PipelineError for a broker or a topic that is not there."""
    settings(arguments.option)
    seen = cluster.fetch_summary(arguments.bootstrap)
    cluster.check_topics(seen, arguments.topics, arguments.bootstrap)
    return seen


def keep(spark: SparkSession, arguments: argparse.Namespace, seen: cluster.ClusterSummary) -> None:
    options = {"failOnDataLoss": str(not arguments.allow_data_loss).lower(), **settings(arguments.option)}
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
    run(main, parser())
