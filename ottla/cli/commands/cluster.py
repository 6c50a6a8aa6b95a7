"""`ottla cluster`: the state of brokers and partitions."""

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from ottla.cli.names import CommandGroup
from ottla.cli.operations import cluster as operations
from ottla.cli.operations.cluster import BrokerStatus, ClusterStatus, PartitionStatus
from ottla.cli.operations.cluster_health import health_over_time
from ottla.cli.output import NOTHING, Output, confirm
from ottla.cli.session import Session, broker_options, run_to_end

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


@cluster.command("health")
@click.option("--exit-when-healthy", is_flag=True, help="Wait until the cluster is healthy, and say why it is not.")
@click.option(
    "--within", "within_s", metavar="SECONDS", type=click.FloatRange(min=0), default=300, show_default=True,
    help="Stop waiting after SECONDS.",
)  # fmt: skip
@broker_options
def health(session: Session, exit_when_healthy: bool, within_s: float) -> None:
    """Say whether all brokers are there and ready, and why not.

    Every registered broker is alive, there is a controller, every partition has all its replicas in sync, and each
    broker with an admin listener says that it is ready. The exit status is 1 when the cluster is not healthy.
    """
    is_healthy = run_to_end(_watched(session, within_s if exit_when_healthy else 0.0))
    if not is_healthy:
        sys.exit(1)


async def _watched(session: Session, within_s: float) -> bool:
    is_healthy = False
    async for found in health_over_time(session.config, within_s=within_s):
        is_healthy = found.is_healthy
        if session.output.as_json:
            session.output.lines([json.dumps({"healthy": is_healthy, **asdict(found)})])
            continue
        state = "healthy" if is_healthy else "not healthy"
        session.output.say("; ".join([f"{state}: {found.live} of {found.brokers} brokers live", *found.reasons]))
        for remark in found.remarks:
            session.output.say(f"degraded: {remark}")
    return is_healthy


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
