"""What `ottla cluster health` finds: whether all brokers of a cluster are there and ready, and why not.

Any cluster is asked by Kafka's protocol. A broker that has an admin listener is also asked whether it is ready.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLContext, SSLError, create_default_context
from typing import Any

from ottla.cli.client import Client, ClientConfig
from ottla.cli.failures import ClientError
from ottla.cli.operations.brokers import broker_configs
from ottla.cli.operations.cluster import ClusterStatus, cluster_status
from ottla.protocol.address import Address, parse_address
from ottla.security.tls_failure import tls_failure

ADMIN_LISTENER = "ottla.admin.listener"
ADMIN_KEYSTORE = "ottla.admin.ssl.keystore.location"
"""Where it is set, the listener speaks TLS."""
WILDCARDS = ("0.0.0.0", "::", "")
PAGE_WITHIN_S = 3.0
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """`reasons` say why the cluster is not healthy, `remarks` what else is not as it should be."""

    brokers: int
    live: int
    reasons: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return not self.reasons


async def health_over_time(config: ClientConfig, *, within_s: float) -> AsyncIterator[ClusterHealth]:
    """The health now, and then whenever it has changed, until it is good or the time is over."""
    deadline = asyncio.get_running_loop().time() + within_s
    last: ClusterHealth | None = None
    while True:
        health = await cluster_health(config)
        if health != last:
            yield health
        last = health
        if health.is_healthy or asyncio.get_running_loop().time() + PAUSE_S > deadline:
            return
        await asyncio.sleep(PAUSE_S)


async def cluster_health(config: ClientConfig) -> ClusterHealth:
    """That no broker can be asked is a reason too."""
    try:
        async with config.client() as client:
            status = await cluster_status(client)
            reasons = _of_cluster(status)
            remarks: list[str] = []
            for node_id in client.brokers:
                wrong, odd = await _of_broker(client, node_id, config.tls)
                reasons += wrong
                remarks += odd
    except ClientError as error:
        return ClusterHealth(0, 0, (str(error),))
    live = sum(broker.is_live for broker in status.brokers)
    return ClusterHealth(len(status.brokers), live, tuple(reasons), tuple(remarks))


def _of_cluster(status: ClusterStatus) -> list[str]:
    found = [f"broker {broker.node_id} is down" for broker in status.brokers if not broker.is_live]
    if status.controller is None:
        found.append("there is no controller")
    offline = sum(each.is_offline for each in status.partitions)
    under = sum(each.is_under_replicated and not each.is_offline for each in status.partitions)
    if offline:
        found.append(f"{offline:,} partitions have no leader")
    if under:
        found.append(f"{under:,} partitions lack in-sync replicas")
    return found


async def _of_broker(client: Client, node_id: int, tls: SSLContext | None) -> tuple[list[str], list[str]]:
    """Why it is not ready, and what is degraded; without an admin listener, only that it answers. `tls`: what brokers
    are asked with, and their admin listeners too."""
    try:
        configs = await broker_configs(client, node_id)
    except ClientError as error:
        return [f"broker {node_id}: {error}"], []
    found = {row.name: row.value for row in configs}
    address = reachable_admin(found.get(ADMIN_LISTENER) or "off", client.brokers[node_id].host)
    if address is None:
        return [], []
    context = admin_context(found, tls)
    try:
        page = await asyncio.to_thread(_ready_page, address, node_id, context)
    except SSLError as error:
        return [f"broker {node_id}: no TLS with its admin listener at {address}: {tls_failure(error)}"], []
    if page is None:
        return [f"broker {node_id}: its admin listener at {address} does not answer"], []
    wrong = [f"broker {node_id}: {check['name']}: {check['text']}" for check in page["checks"] if not check["ok"]]
    return ([], wrong) if page["status"] in ("ready", "degraded") else (wrong, [])


def reachable_admin(text: str, host: str) -> Address | None:
    """The property's value from outside: all interfaces are those of the host that the broker advertises."""
    try:
        address = parse_address(text, host_required=False)
    except ValueError:
        return None
    return Address(host, address.port) if address.host in WILDCARDS else address


def admin_context(configs: Mapping[str, str | None], tls: SSLContext | None) -> SSLContext | None:
    """With what an admin listener is asked whose broker has these properties; None: without TLS. `tls` is what brokers
    are asked with."""
    return (tls or create_default_context()) if configs.get(ADMIN_KEYSTORE) else None


def _ready_page(address: Address, node_id: int, tls: SSLContext | None) -> Any:
    """What /health/ready says of the broker; None where nothing does. Raises SSLError."""
    connection = (
        HTTPConnection(*address, timeout=PAGE_WITHIN_S)
        if tls is None
        else HTTPSConnection(*address, timeout=PAGE_WITHIN_S, context=tls)
    )
    try:
        connection.request("GET", f"/health/ready?broker={node_id}")
        page = json.loads(connection.getresponse().read())
    except SSLError:
        raise
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return page if "checks" in page else None
