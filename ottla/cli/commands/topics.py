"""`ottla topics`: list, create, describe, alter and delete topics."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from ottla.cli.arguments import parse_assignments, parse_settings
from ottla.cli.client import Client
from ottla.cli.commands.offsets import delete_records, topic_offsets
from ottla.cli.failures import ClientError
from ottla.cli.names import CommandGroup, complete_topics
from ottla.cli.operations import topics as operations
from ottla.cli.output import Output, confirm, progress
from ottla.cli.session import Session, broker_options


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, create, describe, alter and delete topics."""


@topics.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@broker_options
def list_topics(session: Session, internal: bool) -> None:
    """List the topics of a cluster."""
    listed = [topic for topic in session.run(operations.list_topics) if internal or not topic.is_internal]
    if session.output.as_json:
        session.output.json([asdict(topic) for topic in listed])
        return
    columns = ("topic", "partitions", "replication factor", "internal")
    rows = [(topic.name, topic.partitions, topic.replication_factor, topic.is_internal) for topic in listed]
    session.output.table(columns, rows)


@topics.command("create")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", metavar="N", type=click.IntRange(min=1), help="Default: the broker's num.partitions.")
@click.option(
    "--replication-factor", metavar="N", type=click.IntRange(min=1), help="Default: the broker's own default."
)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_settings,
    help="A topic config; repeatable.",
)
@click.option(
    "--assignment",
    metavar="PARTITION=ID,ID,...",
    multiple=True,
    callback=parse_assignments,
    help="Replicas of a partition, the first one preferred; repeat for every partition.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing for a topic that exists.")
@broker_options
def create_topics(
    session: Session,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    assignment: dict[int, tuple[int, ...]],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    if assignment and not (partitions is None and replication_factor is None):
        raise click.UsageError("--assignment cannot be combined with --partitions or --replication-factor")
    created: list[str] = []

    async def create(client: Client) -> None:
        for name in progress(names, "creating"):
            try:
                await operations.create_topic(
                    client,
                    name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    assignment=assignment,
                    configs=configs,
                )
            except ClientError as error:
                if not (if_not_exists and operations.exists_already(error)):
                    raise
            else:
                created.append(name)
                session.output.say(f"created topic {name}")

    session.run(create)
    if session.output.as_json:
        session.output.json({"created": created})


@topics.command("describe")
@click.argument("names", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@broker_options
def describe_topics(session: Session, names: Sequence[str]) -> None:
    """Show partitions, leaders, offsets and configs.

    Without TOPIC, all topics except internal ones.
    """

    async def describe(client: Client) -> list[operations.TopicDescription]:
        wanted = names or [topic.name for topic in await operations.list_topics(client) if not topic.is_internal]
        return [await operations.describe_topic(client, name) for name in progress(wanted, "describing")]

    described = session.run(describe)
    if session.output.as_json:
        session.output.json([asdict(topic) for topic in described])
        return
    for topic in described:
        _print_topic(session.output, topic)


def _print_topic(output: Output, topic: operations.TopicDescription) -> None:
    facts = [("replication factor", str(topic.replication_factor))]
    facts += [(key, "" if value is None else value) for key, value in topic.configs.items()]
    output.facts(f"topic {topic.name}" + (" (internal)" if topic.is_internal else ""), facts)
    columns = ("partition", "leader", "epoch", "replicas", "isr", "start offset", "end offset")
    rows = [
        (p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.log_start_offset, p.log_end_offset)
        for p in topic.partitions
    ]
    output.table(columns, rows)


@topics.command("alter")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--partitions", metavar="N", type=click.IntRange(min=1), help="Increase the number of partitions to N.")
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_settings,
    help="A topic config; repeatable.",
)
@click.option("--unset", metavar="KEY", multiple=True, help="Reset a config to the broker's value; repeatable.")
@broker_options
def alter_topic(
    session: Session, name: str, partitions: int | None, configs: dict[str, str], unset: Sequence[str]
) -> None:
    """Add partitions to a topic, set and unset its configs."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to alter: give --partitions, --config or --unset")
    both = sorted(set(configs) & set(unset))
    if both:
        raise click.UsageError(f"{both[0]} is both set and unset")

    async def alter(client: Client) -> None:
        if configs or unset:
            await operations.alter_configs(client, name, set_to=configs, unset=unset)
        if partitions is not None:
            await operations.add_partitions(client, name, partitions)

    session.run(alter)
    if session.output.as_json:
        session.output.json({"altered": name})
    session.output.say(f"altered topic {name}")


@topics.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def delete_topics(session: Session, names: Sequence[str], yes: bool) -> None:
    """Delete topics and their records."""
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)

    async def delete(client: Client) -> None:
        for name in progress(names, "deleting"):
            await operations.delete_topic(client, name)
            session.output.say(f"deleted topic {name}")

    session.run(delete)
    if session.output.as_json:
        session.output.json({"deleted": list(names)})


topics.add_command(topic_offsets)
topics.add_command(delete_records)
