"""`ottla partitions`: describe partitions, elect their leaders, move them to other brokers."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import click

from ottla.cli.arguments import PartitionArgument, checked, parse_node_ids, parse_partition
from ottla.cli.client import Client, TopicPartition
from ottla.cli.commands.offsets import producers
from ottla.cli.names import CommandGroup, complete_topics
from ottla.cli.operations import partitions as operations
from ottla.cli.operations.partitions import ElectionType, MoveProgress, PartitionOutcome
from ottla.cli.operations.throttles import remove_throttles, throttle
from ottla.cli.output import progress_bar
from ottla.cli.session import Session, broker_options
from ottla.protocol.errors import ErrorCode


@click.group(cls=CommandGroup)
def partitions() -> None:
    """Describe partitions, elect their leaders, move them to other brokers."""


@partitions.command("describe")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@broker_options
def describe(session: Session, topics: Sequence[str]) -> None:
    """Show leaders, replicas and ISR.

    Without TOPIC, all topics except internal ones. ELR are the eligible leader replicas, which have left the ISR but
    have all acknowledged records; "moving" shows the replicas that a reassignment adds (+) and removes (-).
    """
    described = session.run(lambda client: operations.describe_partitions(client, topics))
    if session.output.as_json:
        session.output.json([asdict(each) for each in described])
        return
    columns = ("topic", "partition", "leader", "epoch", "replicas", "isr", "elr", "offline", "moving")
    rows = [
        (p.topic, p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.elr, p.offline, _moving(p))
        for p in described
    ]
    session.output.table(columns, rows)


def _moving(state: operations.PartitionState) -> str:
    return ",".join([f"+{replica}" for replica in state.adding] + [f"-{replica}" for replica in state.removing])


partitions.add_command(producers)


@partitions.command("elect")
@click.argument("places", metavar="[TOPIC[:PARTITION]...]", nargs=-1, shell_complete=complete_topics)
@click.option("--all", "everywhere", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--preferred",
    "election",
    flag_value="PREFERRED",
    help="Elect the preferred (first) replica if it is live and in sync.",
)
@click.option(
    "--unclean",
    "election",
    flag_value="UNCLEAN",
    help="Elect any live replica of a partition without a leader; records that only other replicas have are lost.",
)
@broker_options
def elect(session: Session, places: Sequence[str], everywhere: bool, election: str | None) -> None:
    """Elect leaders of partitions."""
    if election is None:
        raise click.UsageError("give --preferred or --unclean")
    if everywhere == bool(places):
        raise click.UsageError("name topics or partitions, or give --all")
    wanted = [_without_replicas(parse_partition(place)) for place in places]

    async def elected(client: Client) -> list[PartitionOutcome]:
        if everywhere:
            return await operations.elect_leaders(client, ElectionType[election], None)
        keys, topics = _split(wanted)
        keys += await operations.partitions_of(client, topics)
        return await operations.elect_leaders(client, ElectionType[election], dict.fromkeys(keys))

    outcomes = session.run(elected)
    _report(session, outcomes, done="elected", passing={ErrorCode.ELECTION_NOT_NEEDED: "no election needed"})


@partitions.command("plan")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "--brokers", "node_ids", metavar="ID,ID,...", callback=checked(parse_node_ids),
    help="The brokers to use; default: all that are live.",
)  # fmt: skip
@broker_options
def plan(session: Session, topics: Sequence[str], node_ids: tuple[int, ...] | None) -> None:
    """Propose replicas that are spread evenly over brokers, with as few moves as possible, and change nothing.

    In a pipe, what it prints is what `ottla partitions reassign` takes: reassign $(ottla partitions plan TOPIC). What
    is even already is left out.
    """
    moves = session.run(lambda client: operations.plan_moves(client, topics, node_ids))
    if not moves:
        click.echo("nothing to move, replicas and preferred leaders are spread evenly", err=True)
    if session.output.as_json:
        session.output.json([asdict(each) for each in moves])
    elif sys.stdout.isatty():
        columns = ("topic", "partition", "replicas", "proposed")
        session.output.table(columns, [(each.topic, each.partition, each.replicas, each.proposed) for each in moves])
    else:
        session.output.lines(f"{each.topic}:{each.partition}={_written(each.proposed)}" for each in moves)


@partitions.command("reassign")
@click.argument("places", metavar="TOPIC:PARTITION=ID,ID,...", nargs=-1, required=True)
@click.option("--cancel", is_flag=True, help="Cancel reassignments under way; then write TOPIC or TOPIC:PARTITION.")
@click.option("--wait", is_flag=True, help="Wait until the reassignments are complete.")
@click.option(
    "--timeout",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop waiting after SECONDS; the reassignment continues.",
)
@click.option(
    "--throttle",
    "bytes_per_s",
    metavar="BYTES",
    type=click.IntRange(min=1),
    help="Copy at most BYTES a second from and to each broker, until --wait, --verify or --cancel ends it.",
)
@click.option("--verify", is_flag=True, help="Move nothing: say whether it is done, and if so, end the throttle.")
@broker_options
def reassign(
    session: Session,
    places: Sequence[str],
    cancel: bool,
    wait: bool,
    wait_s: float | None,
    bytes_per_s: int | None,
    verify: bool,
) -> None:
    """Move partitions to other brokers.

    The brokers become the replicas of the partition, the first of them the preferred one. The old replicas are removed
    when the new ones are in sync.
    """
    if wait_s is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if cancel + verify + wait > 1 or (bytes_per_s is not None and (cancel or verify)):
        raise click.UsageError("--cancel and --verify go with no other option")
    arguments = [parse_partition(place) for place in places]
    if cancel:
        _cancel(session, [_without_replicas(argument) for argument in arguments])
        return
    targets = _targets(arguments)
    if not verify:
        if bytes_per_s is not None:
            session.run(lambda client: throttle(client, targets, bytes_per_s))
        outcomes = session.run(lambda client: operations.reassign(client, targets))
        _report(session, outcomes, done="moving", quiet=wait)
    if wait or verify:
        replicas = session.run(
            lambda client: operations.replicas_of(client, targets) if verify else _moved(client, targets, wait_s)
        )
        if verify or bytes_per_s is not None:
            session.run(lambda client: remove_throttles(client, {name for name, _ in targets}))
        _report_moves(session, targets, replicas)


async def _moved(
    client: Client, targets: Mapping[TopicPartition, tuple[int, ...]], wait_s: float | None
) -> dict[TopicPartition, tuple[int, ...]]:
    progress = MoveProgress(len(targets))

    def state() -> tuple[int, str]:
        to_copy = "" if progress.records_to_copy is None else f", {progress.records_to_copy:,} records to copy"
        return progress.moved, f"{progress.moved} of {progress.partitions} partitions moved{to_copy}"

    async with progress_bar(len(targets), state):
        return await operations.wait_for_moves(client, targets, wait_s, progress)


def _cancel(session: Session, arguments: Sequence[PartitionArgument]) -> None:
    keys, topics = _split(arguments)
    outcomes = session.run(lambda client: operations.cancel_reassignments(client, keys, topics))
    session.run(lambda client: remove_throttles(client, {*topics, *(name for name, _ in keys)}))
    _report(session, outcomes, done="cancelled")


def _targets(arguments: Iterable[PartitionArgument]) -> dict[TopicPartition, tuple[int, ...]]:
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for argument in arguments:
        if argument.partition is None or argument.replicas is None:
            raise click.UsageError(f"{argument.topic} has no new replicas: write TOPIC:PARTITION=ID,ID,...")
        if argument.key in targets:
            raise click.UsageError(f"{argument.topic}:{argument.partition} is given twice")
        targets[argument.key] = argument.replicas
    return targets


def _without_replicas(argument: PartitionArgument) -> PartitionArgument:
    if argument.replicas is not None:
        raise click.UsageError(f"{argument.topic}:{argument.partition} takes no replicas here")
    return argument


def _split(arguments: Iterable[PartitionArgument]) -> tuple[list[TopicPartition], list[str]]:
    """The partitions, and the topics that are named as a whole."""
    arguments = list(arguments)
    return (
        [argument.key for argument in arguments if argument.partition is not None],
        [argument.topic for argument in arguments if argument.partition is None],
    )


def _report(
    session: Session,
    outcomes: Sequence[PartitionOutcome],
    *,
    done: str,
    passing: Mapping[int, str] | None = None,
    quiet: bool = False,
) -> None:
    """Print the outcome of each partition. Raises ClickException for an error that is not in `passing`."""
    passing = passing or {}
    failures = [each for each in outcomes if each.error is not None and each.code not in passing]
    if session.output.as_json and not (quiet and not failures):
        session.output.json(
            [{"topic": each.topic, "partition": each.partition, "error": each.error} for each in outcomes]
        )
    for each in outcomes:
        if each not in failures and not quiet:
            session.output.say(f"{each.topic}:{each.partition} {passing.get(each.code, done)}")
    if failures:
        raise click.ClickException("; ".join(str(each.error) for each in failures))


def _report_moves(
    session: Session,
    targets: Mapping[TopicPartition, tuple[int, ...]],
    replicas: Mapping[TopicPartition, tuple[int, ...]],
) -> None:
    """Raises ClickException if a partition has not been moved."""
    late = [key for key, target in targets.items() if replicas.get(key) != target]
    if session.output.as_json:
        session.output.json(
            [
                {"topic": key[0], "partition": key[1], "replicas": replicas.get(key), "moved": key not in late}
                for key in targets
            ]
        )
    for key in targets:
        if key not in late:
            session.output.say(f"{key[0]}:{key[1]} moved to {_written(replicas[key])}")
    if late:
        name, index = late[0]
        now = f"{name}:{index} has replicas {_written(replicas.get(late[0], ()))}"
        raise click.ClickException(f"{len(late)} of {len(targets)} partitions have not been moved: {now}")


def _written(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas)) or "none"
