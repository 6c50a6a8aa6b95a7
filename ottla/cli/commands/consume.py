"""`ottla consume`: records to standard output."""

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.operations.consume import Limits, RecordSource, consume_records
from ottla.cli.records import JsonLine, RecordFormat, WriteRecord, parse_format
from ottla.cli.session import Session, broker_options, run_to_end

DEFAULT_FORMAT = "{value}"


def _parse_format(context: click.Context, parameter: click.Parameter, value: str) -> RecordFormat:
    try:
        return parse_format(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command()
@click.argument("topic")
@click.option("--group", help="Consume as a member of this group, and commit.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the first record; in a group, only where it has no committed offset.",
)
@click.option("--offset", metavar="N", type=int, help="Start at this offset, or N records before the end if negative.")
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
    "--format", "form", metavar="TEXT", default=DEFAULT_FORMAT, show_default=True, callback=_parse_format,
    help=r"With {topic} {partition} {offset} {timestamp} {key} {value} {headers}, \t and \n.",
)  # fmt: skip
@broker_options
def consume(
    session: Session,
    topic: str,
    group: str | None,
    from_beginning: bool,
    offset: int | None,
    partitions: Sequence[int],
    max_messages: int | None,
    idle_s: float | None,
    exit_at_end: bool,
    form: RecordFormat,
) -> None:
    """Print records as they arrive, until Ctrl-C or a limit. Bytes that are not UTF-8 are printed as base64.

    With --json, each record is a JSON object on a line of its own.
    """
    if group is not None and (partitions or offset is not None or exit_at_end):
        raise click.UsageError("--group cannot be combined with --partition, --offset or --exit-at-end")
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset cannot be combined")
    source = RecordSource(topic, group, tuple(sorted(set(partitions))), from_beginning=from_beginning, offset=offset)
    limits = Limits(max_messages, idle_s, exit_at_end=exit_at_end)
    write: WriteRecord = JsonLine() if session.output.as_json else form

    def print_records(records: Sequence[Any]) -> bool:
        return session.output.lines([write(record) for record in records])

    run_to_end(consume_records(session.config, source, limits, print_records))
