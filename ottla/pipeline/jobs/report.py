"""spark-submit report.py --tables PATH --to DIRECTORY: the observatory's tables as a page (docs/pipeline.md)."""

import argparse
from pathlib import Path

from ottla.pipeline import cluster
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jobs.job import run, say, table_options
from ottla.pipeline.report.page import write_report
from ottla.pipeline.report.reading import read_tables
from ottla.pipeline.session import master_of, open_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("report", description="One page that needs nothing else, and its plots as files.")
    made.add_argument("--tables", required=True, metavar="PATH", help="Where the observatory has written its tables.")
    made.add_argument("--to", required=True, metavar="DIRECTORY", type=Path, help="report.html and the plots go here.")
    made.add_argument("--group", action="append", dest="groups", help="Only these groups; repeatable.")
    table_options(made)
    return made


def main(arguments: argparse.Namespace) -> None:
    spark = open_session("report")
    cluster.check_path(arguments.tables, master_of(spark), is_shared=arguments.shared_path)
    findings = read_tables(spark, arguments.tables, arguments.groups)
    if not findings.rebalances:
        raise PipelineError(f"the tables in {arguments.tables} have no rebalance of these groups")
    say(f"wrote {write_report(findings, arguments.to)}")


if __name__ == "__main__":
    run(main, parser())
