"""`ottla consume`: records to standard output."""

import re
from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.arguments import checked, parse_moment, parse_pattern
from ottla.cli.names import complete_topics
from ottla.cli.operations.consume import Limits, consume_records
from ottla.cli.operations.record_source import RecordSource, Start, Stop
from ottla.cli.records import JsonLine, RecordFormat, WriteRecord, parse_format
from ottla.cli.session import Session, broker_options, run_to_end

DEFAULT_FORMAT = "{value}"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


def _parse_format(context: click.Context, parameter: click.Parameter, value: str) -> RecordFormat:
    try:
        return parse_format(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--include", metavar="REGEX", callback=checked(parse_pattern),
    help="Consume the topics whose whole name matches, internal ones excepted.",
)  # fmt: skip
@click.option("--group", help="Consume as a member of this group, and commit.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the first record; in a group, only where it has no committed offset.",
)
@click.option("--offset", metavar="N", type=int, help="Start at this offset, or N records before the end if negative.")
@click.option(
    "--since", "since_ms", metavar="TIME", callback=checked(parse_moment),
    help="Start at the first record since a time like 2026-03-01T12:00, or since 30m, 12h or 7d ago.",
)  # fmt: skip
@click.option(
    "--to-offset", metavar="N", type=click.IntRange(min=0), help="Stop before this offset in every partition."
)
@click.option(
    "--until", "until_ms", metavar="TIME", callback=checked(parse_moment),
    help="Stop before the first record at TIME or later, or at the end.",
)  # fmt: skip
@click.option(
    "--partition",
    "partitions",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Read only this partition; repeatable.",
)
@click.option("--max-messages", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option(
    "--timeout", "idle_s", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True),
    help="Stop after SECONDS without a record.",
)  # fmt: skip
@click.option(
    "--exit-at-end", is_flag=True, help="Stop at the end of the partitions as it was at the start of the command."
)
@click.option(
    "--isolation", type=click.Choice((READ_UNCOMMITTED, READ_COMMITTED)), default=READ_UNCOMMITTED, show_default=True,
    help="read_committed waits for the end of open transactions, and leaves out the records of aborted ones.",
)  # fmt: skip
@click.option(
    "--format", "form", metavar="TEXT", default=DEFAULT_FORMAT, show_default=True, callback=_parse_format,
    help=r"With {topic} {partition} {offset} {timestamp} {key} {value} {headers}, \t and \n.",
)  # fmt: skip
@broker_options
def consume(
    session: Session,
    topics: Sequence[str],
    include: re.Pattern[str] | None,
    group: str | None,
    from_beginning: bool,
    offset: int | None,
    since_ms: int | None,
    to_offset: int | None,
    until_ms: int | None,
    partitions: Sequence[int],
    max_messages: int | None,
    idle_s: float | None,
    exit_at_end: bool,
    isolation: str,
    form: RecordFormat,
) -> None:
    """Print records as they arrive, until Ctrl-C or a limit. Bytes that are not UTF-8 are printed as base64.

    With --json, each record is a JSON object on a line of its own.
    """
    if not topics and include is None:
        raise click.UsageError("name a topic, or give --include")
    start = Start(from_beginning=from_beginning, since_ms=since_ms, offset=offset)
    stop = Stop(at_end=exit_at_end, before_offset=to_offset, until_ms=until_ms)
    if group is not None and (partitions or start != Start(from_beginning=from_beginning) or stop != Stop()):
        wrong = "--partition, --offset, --since, --to-offset, --until or --exit-at-end"
        raise click.UsageError(f"--group cannot be combined with {wrong}")
    if from_beginning + (offset is not None) + (since_ms is not None) > 1:
        raise click.UsageError("--from-beginning, --offset and --since cannot be combined")
    source = RecordSource(
        tuple(dict.fromkeys(topics)),
        include,
        group,
        tuple(sorted(set(partitions))),
        start=start,
        stop=stop,
        committed_only=isolation == READ_COMMITTED,
    )
    write: WriteRecord = JsonLine() if session.output.as_json else form

    def print_records(records: Sequence[Any]) -> bool:
        return session.output.pieces([f"{write(record)}\n".encode() for record in records])

    run_to_end(consume_records(session.config, source, Limits(max_messages, idle_s), print_records))
