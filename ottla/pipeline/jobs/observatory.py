"""spark-submit observatory.py --archive PATH --tables PATH: archived events to tables (docs/pipeline.md)."""

import argparse
from time import monotonic

from pyspark.sql import SparkSession

from ottla.pipeline import cluster
from ottla.pipeline.events import Period
from ottla.pipeline.jobs.job import load_table, run, say
from ottla.pipeline.jobs.options import observatory_parser
from ottla.pipeline.observatory.tables import write_tables
from ottla.pipeline.session import master_of, open_session


def main(arguments: argparse.Namespace) -> None:
    observe(open_session("observatory"), arguments)


def observe(spark: SparkSession, arguments: argparse.Namespace) -> None:
    for path in (arguments.archive, arguments.tables):
        cluster.check_path(path, master_of(spark), is_shared=arguments.shared_path)
    began = monotonic()
    period = Period(arguments.since_ms, arguments.until_ms)
    no_progress_ms = round(arguments.no_progress * 1000)
    records = load_table(spark, arguments.archive)
    write_tables(records, arguments.tables, no_progress_ms=no_progress_ms, report=say, period=period)
    say(f"done in {monotonic() - began:.1f} s")


if __name__ == "__main__":
    run(main, observatory_parser())
