"""`ottla topics offsets`, `ottla topics delete-records` and `ottla partitions producers`: what leaders know of logs."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from ottla.cli.arguments import checked, parse_moment, parse_topics
from ottla.cli.client import Client, TopicPartition
from ottla.cli.names import complete_topics
from ottla.cli.operations import leaders as operations
from ottla.cli.output import Output, confirm
from ottla.cli.records import utc_moment
from ottla.cli.session import Session, broker_options


def _parse_time(text: str) -> int:
    special = operations.SPECIAL_TIMES.get(text)
    return parse_moment(text) if special is None else special


PLACES = click.argument(
    "places", metavar="TOPIC[:P,...]...", nargs=-1, required=True, callback=checked(parse_topics),
    shell_complete=complete_topics,
)  # fmt: skip


@click.command("offsets")
@PLACES
@click.option(
    "--time", "timestamp", metavar="TIME", default="latest", show_default=True, callback=checked(_parse_time),
    help="earliest, latest, max-timestamp, a time like 2026-03-01T12:00, or 30m, 12h or 7d ago.",
)  # fmt: skip
@broker_options
def topic_offsets(session: Session, places: dict[str, list[int]], timestamp: int) -> None:
    """Show the offset of the first record at or after a time, partition by partition.

    "latest" is the log end offset, "max-timestamp" the record with the largest timestamp.
    """

    async def found(client: Client) -> list[operations.OffsetAtTime]:
        return await operations.offsets_at(client, await operations.named_partitions(client, places), timestamp)

    offsets = session.run(found)
    if session.output.as_json:
        session.output.json([asdict(each) for each in offsets])
        return
    rows = [(each.topic, each.partition, each.offset, _moment(each.timestamp)) for each in offsets]
    session.output.table(("topic", "partition", "offset", "timestamp"), rows)


@click.command("delete-records")
@PLACES
@click.option("--before-offset", metavar="OFFSET", type=click.IntRange(min=0), help="Delete the records before OFFSET.")
@click.option(
    "--before", "before_ms", metavar="TIME", callback=checked(parse_moment),
    help="Delete what is before the first record at or after TIME: 2026-03-01T12:00, or 30m, 12h or 7d ago.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Delete all records up to the high watermark.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def delete_records(
    session: Session,
    places: dict[str, list[int]],
    before_offset: int | None,
    before_ms: int | None,
    everything: bool,
    yes: bool,
) -> None:
    """Delete records from the beginning of partitions, and keep the later ones."""
    if (before_offset is not None) + (before_ms is not None) + everything != 1:
        raise click.UsageError("give exactly one of --before-offset, --before and --all")
    confirm(f"Delete records of {', '.join(places)}?", yes=yes)

    async def deleted(client: Client) -> list[operations.LogStart]:
        partitions = await operations.named_partitions(client, places)
        before: dict[TopicPartition, int] = dict.fromkeys(partitions, operations.HIGH_WATERMARK)
        if before_offset is not None:
            before = dict.fromkeys(partitions, before_offset)
        elif before_ms is not None:
            found = await operations.offsets_at(client, partitions, before_ms)
            before |= {(each.topic, each.partition): each.offset for each in found if each.offset is not None}
        return await operations.delete_records(client, before)

    starts = session.run(deleted)
    if session.output.as_json:
        session.output.json([asdict(each) for each in starts])
        return
    rows = [(each.topic, each.partition, each.log_start_offset) for each in starts]
    session.output.table(("topic", "partition", "start offset"), rows)


@click.command("producers")
@PLACES
@broker_options
def producers(session: Session, places: dict[str, list[int]]) -> None:
    """Show the idempotent and transactional producers that the leaders of partitions know."""

    async def found(client: Client) -> list[operations.ActiveProducer]:
        return await operations.active_producers(client, await operations.named_partitions(client, places))

    print_producers(session.output, session.run(found))


def print_producers(output: Output, active: Sequence[operations.ActiveProducer]) -> None:
    if output.as_json:
        output.json([asdict(each) for each in active])
        return
    fields = (
        "topic",
        "partition",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "last_sequence",
        "transaction_start_offset",
    )
    rows: list[Sequence[object]] = [
        [*(getattr(each, name) for name in fields), _moment(each.last_timestamp)] for each in active
    ]
    output.table([*(name.replace("_", " ") for name in fields), "last timestamp"], rows)


def _moment(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None or timestamp_ms < 0 else utc_moment(timestamp_ms)
