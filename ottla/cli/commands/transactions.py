"""`ottla transactions`: list and describe transactions, find those that hang, and abort them."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from time import time
from typing import Any

import click

from ottla.cli.arguments import checked, parse_age, parse_partition, parse_pattern, parse_topics
from ottla.cli.client import Client, TopicPartition
from ottla.cli.commands.offsets import print_producers
from ottla.cli.names import CommandGroup, complete_topics, complete_transactional_ids
from ottla.cli.operations import hanging_transactions as hanging
from ottla.cli.operations import transactions as operations
from ottla.cli.operations.hanging_transactions import AbortTarget
from ottla.cli.operations.leaders import ActiveProducer, named_partitions
from ottla.cli.output import Output, confirm, progress
from ottla.cli.records import utc_moment
from ottla.cli.session import Session, broker_options

# In the order in which a transaction passes through them.
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
)


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List and describe transactions, find those that hang, and abort them."""


@transactions.command("list")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True,
    help="Only those in this state; repeatable.",
)  # fmt: skip
@click.option(
    "--producer-id", "producer_ids", metavar="ID", type=click.IntRange(min=0), multiple=True,
    help="Only that of this producer id; repeatable.",
)  # fmt: skip
@click.option(
    "--open-for", "open_longer_than_ms", metavar="DURATION", callback=checked(parse_age),
    help="Only those that have been open for longer than a duration like 30s or 5m.",
)  # fmt: skip
@click.option(
    "--include", "pattern", metavar="REGEX", callback=checked(parse_pattern),
    help="Only the transactional ids that match as a whole.",
)  # fmt: skip
@broker_options
def list_transactions(
    session: Session,
    states: Sequence[str],
    producer_ids: Sequence[int],
    open_longer_than_ms: int | None,
    pattern: re.Pattern[str] | None,
) -> None:
    """List the transactional ids of a cluster."""
    wanted = operations.TransactionFilter(tuple(states), tuple(producer_ids), open_longer_than_ms, pattern)
    listed = session.run(lambda client: operations.list_transactions(client, wanted))
    if session.output.as_json:
        session.output.json([asdict(each) for each in listed])
        return
    columns = ("transactional id", "state", "producer id", "coordinator")
    rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator) for each in listed]
    session.output.table(columns, rows)


@transactions.command("describe")
@click.argument(
    "transactional_ids", metavar="TRANSACTIONAL-ID...", nargs=-1, required=True,
    shell_complete=complete_transactional_ids,
)  # fmt: skip
@broker_options
def describe_transactions(session: Session, transactional_ids: Sequence[str]) -> None:
    """Show state, producer, timeout and partitions.

    Of a transaction that is ending, only the partitions that still lack its marker.
    """

    async def describe(client: Client) -> list[operations.TransactionDescription]:
        wanted = progress(transactional_ids, "describing")
        return [await operations.describe_transaction(client, each) for each in wanted]

    described = session.run(describe)
    if session.output.as_json:
        session.output.json([{**asdict(each), "partitions": _as_json(each.partitions)} for each in described])
        return
    for each in described:
        _print_transaction(session.output, each)


def _as_json(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _print_transaction(output: Output, each: operations.TransactionDescription) -> None:
    facts = [
        ("state", each.state),
        ("coordinator", each.coordinator),
        ("producer id", str(each.producer_id)),
        ("producer epoch", str(each.producer_epoch)),
        ("timeout", f"{each.transaction_timeout_ms} ms"),
        ("last begun", "-" if each.transaction_start_ms is None else utc_moment(each.transaction_start_ms)),
    ]
    output.facts(f"transactional id {each.transactional_id}", facts)
    if each.partitions:
        output.table(("topic", "partition"), each.partitions)


@transactions.command("find-hanging")
@click.argument(
    "places", metavar="[TOPIC[:P,...]]...", nargs=-1, callback=checked(parse_topics), shell_complete=complete_topics
)
@click.option(
    "--open-for", "open_longer_than_ms", metavar="DURATION", default="15m", show_default=True,
    callback=checked(parse_age),
    help="Only those without a record for longer than this: give the longest timeout that producers may have.",
)  # fmt: skip
@broker_options
def find_hanging(session: Session, places: dict[str, list[int]], open_longer_than_ms: int) -> None:
    """Find transactions that no coordinator is going to end.

    They keep consumers of committed records from reading on. Without TOPIC, all topics are searched.
    """

    async def find(client: Client) -> list[ActiveProducer]:
        before_ms = round(time() * 1000) - open_longer_than_ms
        wanted = await named_partitions(client, places)
        return await hanging.find_hanging(client, wanted, last_record_before_ms=before_ms)

    print_producers(session.output, session.run(find))


@transactions.command("abort")
@click.argument("place", metavar="TOPIC:PARTITION", shell_complete=complete_topics)
@click.option("--start-offset", metavar="N", type=click.IntRange(min=0), help="First offset of the transaction.")
@click.option("--producer-id", metavar="ID", type=click.IntRange(min=0), help="Its producer.")
@click.option("--producer-epoch", metavar="N", type=click.IntRange(min=0), help="The epoch of its producer.")
@click.option("--force", is_flag=True, help="Abort it even if its coordinator knows it and is going to end it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def abort(
    session: Session,
    place: str,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    force: bool,
    yes: bool,
) -> None:
    """Abort a hanging transaction in one partition, so that consumers of committed records read on."""
    partition = parse_partition(place)
    if partition.partition is None:
        raise click.UsageError(f"{place!r} is not TOPIC:PARTITION")
    if (start_offset is None) == (producer_id is None) or (producer_id is None) != (producer_epoch is None):
        raise click.UsageError("give either --start-offset, or --producer-id and --producer-epoch")
    target = AbortTarget(partition.key, start_offset, producer_id, producer_epoch)
    confirm(f"Abort the transaction in {target.name}?", yes=yes)
    aborted = session.run(lambda client: hanging.abort_transaction(client, target, force=force))
    if session.output.as_json:
        session.output.json(asdict(aborted))
    session.output.say(f"aborted the transaction of producer {aborted.producer_id} in {target.name}")
