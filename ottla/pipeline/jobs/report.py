"""spark-submit report.py --tables PATH --to DIRECTORY: the observatory's tables as a page (docs/pipeline.md)."""

import argparse

from pyspark.sql import SparkSession

from ottla.pipeline import cluster
from ottla.pipeline.events import Period
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jobs.job import load_table, run, say
from ottla.pipeline.jobs.options import report_parser
from ottla.pipeline.report.page import write_report
from ottla.pipeline.report.reading import TABLES, read_tables
from ottla.pipeline.session import master_of, open_session


def main(arguments: argparse.Namespace) -> None:
    report(open_session("report"), arguments)


def report(spark: SparkSession, arguments: argparse.Namespace) -> None:
    cluster.check_path(arguments.tables, master_of(spark), is_shared=arguments.shared_path)
    tables = {name: load_table(spark, f"{arguments.tables}/{name}") for name in TABLES}
    findings = read_tables(tables, arguments.groups, Period(arguments.since_ms, arguments.until_ms))
    if not findings.rebalances and not findings.transactions:
        raise PipelineError(
            f"the tables in {arguments.tables} have no rebalance and no transaction of these groups and times"
        )
    say(f"wrote {write_report(findings, arguments.to)}")


if __name__ == "__main__":
    run(main, report_parser())
