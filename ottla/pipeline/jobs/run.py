"""spark-submit run.py --to DIRECTORY: the archive of the events, the tables and the report, with one start of Spark
(docs/pipeline.md)."""

import argparse

from ottla.pipeline.events import EVENTS_TOPIC
from ottla.pipeline.jobs.archive import check_source, keep
from ottla.pipeline.jobs.job import run
from ottla.pipeline.jobs.observatory import observe
from ottla.pipeline.jobs.options import run_parser
from ottla.pipeline.jobs.report import report
from ottla.pipeline.session import open_session


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
    run(main, run_parser())
