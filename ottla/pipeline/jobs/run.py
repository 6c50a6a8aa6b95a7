"""spark-submit run.py --to DIRECTORY: the archive of the events, the tables and the report, with one start of Spark
(docs/pipeline.md)."""

import argparse
from pathlib import Path

from ottla.pipeline.events import EVENTS_TOPIC
from ottla.pipeline.jobs.archive import check_source, keep, source_options
from ottla.pipeline.jobs.job import bootstrap_option, run, table_options
from ottla.pipeline.jobs.observatory import observatory_options, observe
from ottla.pipeline.jobs.report import group_option, report
from ottla.pipeline.session import open_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "run", description="Archive the broker's events, make the observatory's tables, and the report of them."
    )
    bootstrap_option(made)
    made.add_argument("--to", required=True, metavar="DIRECTORY", type=Path, help="report.html goes here.")
    made.add_argument("--archive", metavar="PATH", help="The table of the events; DIRECTORY/events by default.")
    made.add_argument("--tables", metavar="PATH", help="The observatory's tables; DIRECTORY/tables by default.")
    source_options(made)
    observatory_options(made)
    group_option(made)
    table_options(made)
    return made


def main(arguments: argparse.Namespace) -> None:
    arguments.archive = arguments.archive or f"{arguments.to}/events"
    arguments.tables = arguments.tables or f"{arguments.to}/tables"
    archiving = argparse.Namespace(
        **vars(arguments), topics=[EVENTS_TOPIC], table=arguments.archive, checkpoint=None, schema=None, once=True,
        interval=0,
    )  # fmt: skip
    seen = check_source(archiving)
    spark = open_session("run")
    keep(spark, archiving, seen)
    observe(spark, arguments)
    report(spark, arguments)


if __name__ == "__main__":
    run(main, parser())
