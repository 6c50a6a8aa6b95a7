"""`ottla cluster`: the state of brokers and partitions."""

import sys
from dataclasses import asdict
from typing import Any

import click

from ottla.cli.names import CommandGroup
from ottla.cli.operations import cluster as operations
from ottla.cli.operations.cluster import BrokerStatus, ClusterStatus, PartitionStatus
from ottla.cli.output import NOTHING, Output, confirm
from ottla.cli.session import Session, broker_options

TITLES = {
    "partitions": "partitions",
    "under_replicated": "under-replicated",
    "under_min_isr": "under min ISR",
    "offline": "offline",
}


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the state of a cluster, unregister brokers."""


@cluster.command("status")
@broker_options
def status(session: Session) -> None:
    """Show brokers, controller and degraded partitions.

    A follower's lag is counted in records; a broker's lag is the largest of its partitions. The exit status is 1 when a
    partition is offline, under-replicated or under its min ISR.
    """
    found = session.run(operations.cluster_status)
    if session.output.as_json:
        session.output.json(_as_json(found))
    else:
        _print_status(session.output, found)
    if any(each.is_degraded for each in found.partitions):
        sys.exit(1)


def _print_status(output: Output, found: ClusterStatus) -> None:
    facts = [
        ("controller", NOTHING if found.controller is None else str(found.controller)),
        ("topics", str(found.topics)),
        *((TITLES[name], str(count)) for name, count in _counts(found).items()),
    ]
    output.facts(f"cluster {found.cluster_id or NOTHING}", facts)
    output.table(
        ("broker", "address", "rack", "state", "leads", "replicas", "lag"),
        [_broker_row(each) for each in found.brokers],
    )
    degraded = [each for each in found.partitions if each.is_degraded]
    if degraded:
        columns = ("topic", "partition", "leader", "replicas", "isr", "state", "lag")
        output.table(columns, [_degraded_row(each) for each in degraded])


def _broker_row(each: BrokerStatus) -> tuple[object, ...]:
    state = "live" if each.is_live else "down"
    return (each.node_id, each.address, each.rack, state, each.leads, each.replicas, each.lag)


def _degraded_row(each: PartitionStatus) -> tuple[object, ...]:
    lag = NOTHING if each.is_offline else _lags(each)
    return (each.topic, each.partition, each.leader, each.replicas, each.isr, _state(each), lag)


def _state(each: PartitionStatus) -> str:
    if each.is_offline:
        return "offline"
    return f"under min ISR {each.min_isr}" if each.is_under_min_isr else "under-replicated"


def _lags(each: PartitionStatus) -> str:
    """Of the followers that are out of sync or behind."""
    behind = {node_id: lag for node_id, lag in each.lag.items() if lag != 0 or node_id not in each.isr}
    return ",".join(f"{node_id}:{'?' if lag is None else lag}" for node_id, lag in behind.items())


def _counts(found: ClusterStatus) -> dict[str, int]:
    return {
        "partitions": len(found.partitions),
        "under_replicated": sum(each.is_under_replicated for each in found.partitions),
        "under_min_isr": sum(each.is_under_min_isr for each in found.partitions),
        "offline": sum(each.is_offline for each in found.partitions),
    }


def _as_json(found: ClusterStatus) -> dict[str, Any]:
    """Only degraded partitions: `ottla partitions describe` lists all."""
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [asdict(each) for each in found.brokers],
        "topics": found.topics,
        **_counts(found),
        "degraded": [
            {
                **asdict(each),
                "offline": each.is_offline,
                "under_replicated": each.is_under_replicated,
                "under_min_isr": each.is_under_min_isr,
            }
            for each in found.partitions
            if each.is_degraded
        ],
    }


@cluster.command("unregister")
@click.argument("node_id", metavar="NODE-ID", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def unregister(session: Session, node_id: int, yes: bool) -> None:
    """Unregister a broker that will not come back.

    Its replicas remain assigned to it until `ottla partitions reassign` moves them.
    """
    confirm(f"Unregister broker {node_id}?", yes=yes)
    session.run(lambda client: operations.unregister_broker(client, node_id))
    if session.output.as_json:
        session.output.json({"unregistered": node_id})
    session.output.say(f"unregistered broker {node_id}")
