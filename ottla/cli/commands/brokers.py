"""`ottla brokers`: the configs, log directories and API versions of brokers."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from ottla.cli.arguments import parse_settings
from ottla.cli.client import Client
from ottla.cli.names import CommandGroup
from ottla.cli.operations import brokers as operations
from ottla.cli.session import Session, broker_options


@click.group(cls=CommandGroup)
def brokers() -> None:
    """Show and alter the configs of brokers, their log directories and API versions."""


@brokers.command("configs")
@click.argument("node_ids", metavar="[NODE-ID...]", nargs=-1, type=click.IntRange(min=0))
@click.option("--all", "everything", is_flag=True, help="Also the properties that have their defaults.")
@broker_options
def configs(session: Session, node_ids: Sequence[int], everything: bool) -> None:
    """Show the properties of brokers and where their values come from.

    Without NODE-ID, of all live brokers. With --json, all properties.
    """

    async def described(client: Client) -> dict[int, list[operations.BrokerConfig]]:
        wanted = await operations.broker_ids(client, node_ids)
        return {node_id: await operations.broker_configs(client, node_id) for node_id in wanted}

    found = session.run(described)
    if session.output.as_json:
        session.output.json([{"broker": node_id, **asdict(row)} for node_id, rows in found.items() for row in rows])
        return
    shown = [
        (node_id, row.name, row.value, row.source, "no" if row.read_only else "yes")
        for node_id, rows in found.items()
        for row in rows
        if everything or not row.is_default
    ]
    session.output.table(("broker", "property", "value", "from", "dynamic"), shown)


@brokers.command("alter")
@click.argument("node_id", metavar="[NODE-ID]", type=click.IntRange(min=0), required=False)
@click.option("--all", "everywhere", is_flag=True, help="Alter all brokers.")
@click.option(
    "--config", "configs", metavar="KEY=VALUE", multiple=True, callback=parse_settings, help="A property; repeatable."
)
@click.option("--unset", metavar="KEY", multiple=True, help="Reset a property to the broker's file; repeatable.")
@broker_options
def alter(
    session: Session, node_id: int | None, everywhere: bool, configs: dict[str, str], unset: Sequence[str]
) -> None:
    """Set and unset properties of a broker, or of all, while they run."""
    if (node_id is None) != everywhere:
        raise click.UsageError("give either a NODE-ID or --all")
    if not configs and not unset:
        raise click.UsageError("nothing to alter: give --config or --unset")

    async def altered(client: Client) -> None:
        if node_id is not None:
            await operations.broker_ids(client, [node_id])
        await operations.alter_broker_configs(client, node_id, set_to=configs, unset=unset)

    session.run(altered)
    if session.output.as_json:
        session.output.json({"altered": node_id})
    session.output.say("altered all brokers" if node_id is None else f"altered broker {node_id}")


@brokers.command("log-dirs")
@click.argument("node_ids", metavar="[NODE-ID...]", nargs=-1, type=click.IntRange(min=0))
@click.option("--replicas", "by_replica", is_flag=True, help="Show every replica and its size.")
@broker_options
def log_dirs(session: Session, node_ids: Sequence[int], by_replica: bool) -> None:
    """Show the log directories of brokers: their replicas, sizes, and the space that is left.

    Without NODE-ID, of all live brokers. With --json, also every replica.
    """

    async def described(client: Client) -> list[operations.LogDirDescription]:
        wanted = await operations.broker_ids(client, node_ids)
        return [each for node_id in wanted for each in await operations.log_directories(client, node_id)]

    found = session.run(described)
    if session.output.as_json:
        session.output.json([asdict(each) for each in found])
    elif by_replica:
        columns = ("broker", "directory", "topic", "partition", "bytes", "offset lag", "future")
        rows = [
            (each.broker, each.directory, row.topic, row.partition, row.size_bytes, row.offset_lag, row.is_future)
            for each in found
            for row in each.partitions
        ]
        session.output.table(columns, rows)
    else:
        names = ("broker", "directory", "error", "replicas", "bytes", "total bytes", "usable bytes")
        fields = ("broker", "directory", "error", "replicas", "size_bytes", "total_bytes", "usable_bytes")
        session.output.table(names, [[getattr(each, field) for field in fields] for each in found])


@brokers.command("api-versions")
@click.argument("node_ids", metavar="[NODE-ID...]", nargs=-1, type=click.IntRange(min=0))
@broker_options
def api_versions(session: Session, node_ids: Sequence[int]) -> None:
    """Show the versions of each API that brokers know.

    Without NODE-ID, of all live brokers.
    """

    async def described(client: Client) -> dict[int, list[operations.ApiRange]]:
        wanted = await operations.broker_ids(client, node_ids)
        return {node_id: await operations.api_versions(client, node_id) for node_id in wanted}

    found = session.run(described)
    if session.output.as_json:
        session.output.json([{"broker": node_id, **asdict(row)} for node_id, rows in found.items() for row in rows])
        return
    columns = ("broker", "key", "api", "lowest", "highest")
    rows = [(i, row.key, row.name, row.min_version, row.max_version) for i, rows in found.items() for row in rows]
    session.output.table(columns, rows)
