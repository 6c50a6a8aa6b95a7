"""spark-submit observatory.py --archive PATH --tables PATH: archived events to tables (docs/pipeline.md)."""

import argparse
from time import monotonic

from pyspark.sql import SparkSession

from ottla.pipeline import cluster
from ottla.pipeline.events import Period
from ottla.pipeline.jobs.job import load_table, run, say, span_options, table_options
from ottla.pipeline.observatory.tables import TABLES, write_tables
from ottla.pipeline.session import master_of, open_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("observatory", description=f"Make the tables {', '.join(TABLES)}.")
    made.add_argument("--archive", required=True, metavar="PATH", help="The table that ottla.events is archived in.")
    made.add_argument("--tables", required=True, metavar="PATH", help="A directory; its tables are replaced.")
    observatory_options(made)
    table_options(made)
    return made


def observatory_options(made: argparse.ArgumentParser) -> None:
    span_options(made, "events")
    made.add_argument(
        "--no-progress", type=float, default=60, metavar="SECONDS", help="After so long a member counts as stuck."
    )


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
    run(main, parser())
