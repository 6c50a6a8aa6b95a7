"""The options of the jobs. Nothing here imports Spark: `ottla pipeline JOB --help` works without it."""

import argparse
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from ottla.pipeline.observatory import TABLES

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "ottla pipeline run",
        description="Archive the broker's events, make the observatory's tables, and the report of them.",
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


def archive_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("ottla pipeline archive", description="Keep topics in a Delta table, exactly once.")
    bootstrap_option(made)
    made.add_argument("--topic", action="append", required=True, dest="topics", metavar="TOPIC", help="Repeatable.")
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


def replay_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "ottla pipeline replay", description="Write archived records to a topic as they were."
    )
    bootstrap_option(made)
    made.add_argument("--table", required=True, metavar="PATH")
    made.add_argument("--from", required=True, dest="source", metavar="TOPIC", help="Whose records.")
    made.add_argument("--to", required=True, dest="target", metavar="TOPIC", help="Where to; it must exist.")
    span_options(made, "records")
    made.add_argument("--first-offset", type=int, metavar="N")
    made.add_argument("--end-offset", type=int, metavar="N", help="Before this offset.")
    made.add_argument("--any-partition", action="store_true", help="By key and not by the partition they came from.")
    transaction_options(made)
    table_options(made)
    return made


def transaction_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--no-transaction", action="store_true", help="By all executors, and visible while it goes on; see the guide."
    )
    made.add_argument(
        "--transaction-timeout", type=int, default=900, metavar="SECONDS",
        help="How long the whole replay may take, as far as the broker's transaction.max.timeout.ms allows.",
    )  # fmt: skip
    made.add_argument(
        "--transactional-id", metavar="ID", help="ottla-replay-TOPIC by default: a second replay ends the first."
    )


def observatory_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("ottla pipeline observatory", description=f"Make the tables {', '.join(TABLES)}.")
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


def report_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("ottla pipeline report", description="One page that needs nothing else.")
    made.add_argument("--tables", required=True, metavar="PATH", help="Where the observatory has written its tables.")
    made.add_argument("--to", required=True, metavar="DIRECTORY", type=Path, help="report.html goes here.")
    span_options(made, "what happened")
    group_option(made)
    table_options(made)
    return made


def group_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--group", action="append", dest="groups", metavar="GROUP", help="Only these groups; repeatable.")


def bootstrap_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT[,...]", help="Also from OTTLA_BOOTSTRAP, as everywhere; 127.0.0.1:9092."
    )
    parser.add_argument(
        "--command-config", metavar="FILE",
        help="Kafka's client properties: bootstrap.servers, security.protocol, sasl.*, ssl.*; also from "
        "OTTLA_COMMAND_CONFIG.",
    )  # fmt: skip


def table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shared-path", action="store_true", help="Paths without a scheme are mounted on every machine of the cluster."
    )


def span_options(parser: argparse.ArgumentParser, what: str) -> None:
    since = f"Only {what} since a time like 2026-03-01T12:00, or since 30m, 12h or 7d ago."
    parser.add_argument("--since", type=moment, dest="since_ms", metavar="TIME", help=since)
    parser.add_argument("--until", type=moment, dest="until_ms", metavar="TIME", help=f"Only {what} before this time.")


def moment(text: str) -> int:
    """Milliseconds since 1970 of a time, which is the local one without an offset, or of so long ago: `12h`."""
    age = _AGE.fullmatch(text)
    if age is not None:
        return round((time.time() - float(age[1]) * _UNITS_S[age[2]]) * 1000)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        wrong = f"{text!r} is neither a duration like 12h or 30m, nor a time like 2026-03-01T12:00"
        raise argparse.ArgumentTypeError(wrong) from None


PARSERS: Final[Mapping[str, Callable[[], argparse.ArgumentParser]]] = {
    "run": run_parser,
    "archive": archive_parser,
    "replay": replay_parser,
    "observatory": observatory_parser,
    "report": report_parser,
}
"""By the name of the job."""
