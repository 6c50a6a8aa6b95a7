"""What `ottla cluster` and `ottla ping` do, as functions of a client."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.client import Client, ClientConfig, TopicPartition
from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import NoAnswer, check
from ottla.cli.operations.replica_progress import LogEnds, lags, log_ends
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

TOPIC_RESOURCE = 2
MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """`address` is None for a broker that is known only from the replicas it should have. `lag` counts the records that
    it lacks in the partition it is furthest behind in; None: it follows nothing, or the lag is unknown."""

    node_id: int
    address: str | None
    rack: str | None
    is_live: bool
    leads: int
    replicas: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """`min_isr` and the values of `lag`, by follower, are None where they are not known."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None
    lag: Mapping[int, int | None]

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return self.min_isr is not None and len(self.isr) < self.min_isr

    @property
    def is_degraded(self) -> bool:
        return self.is_offline or self.is_under_replicated or self.is_under_min_isr


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerStatus, ...]
    topics: int
    partitions: tuple[PartitionStatus, ...]


async def cluster_status(client: Client) -> ClusterStatus:
    """Asks every live broker for its log end offsets."""
    metadata = await client.metadata(None)
    min_isr = await _min_isr(client, [str(topic.name) for topic in metadata.topics])
    rows = {
        (str(topic.name), row.partition_index): row
        for topic in metadata.topics
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    }
    ends = await log_ends(client, {partition: row.replica_nodes for partition, row in rows.items()})
    partitions = tuple(_partition(key, row, ends, min_isr.get(key[0])) for key, row in sorted(rows.items()))
    return ClusterStatus(
        cluster_id=metadata.cluster_id,
        controller=_known(metadata.controller_id),
        brokers=await _brokers(client, metadata, partitions),
        topics=len(metadata.topics),
        partitions=partitions,
    )


def _partition(
    key: TopicPartition, row: MetadataResponsePartition, ends: LogEnds, min_isr: int | None
) -> PartitionStatus:
    leader = _known(row.leader_id)
    return PartitionStatus(
        topic=key[0],
        partition=key[1],
        leader=leader,
        replicas=tuple(row.replica_nodes),
        isr=tuple(row.isr_nodes),
        min_isr=min_isr,
        lag=lags(ends, key, leader, row.replica_nodes),
    )


async def _brokers(
    client: Client, metadata: MetadataResponse, partitions: Sequence[PartitionStatus]
) -> tuple[BrokerStatus, ...]:
    racks = {broker.node_id: broker.rack for broker in metadata.brokers}
    addresses = {node_id: str(address) for node_id, address in client.brokers.items()}
    for node_id, address, rack in await _fenced_brokers(client):
        racks.setdefault(node_id, rack)
        addresses.setdefault(node_id, address)
    node_ids = {*addresses, *(replica for each in partitions for replica in each.replicas)}
    return tuple(
        BrokerStatus(
            node_id=node_id,
            address=addresses.get(node_id),
            rack=racks.get(node_id),
            is_live=node_id in client.brokers,
            leads=sum(each.leader == node_id for each in partitions),
            replicas=sum(node_id in each.replicas for each in partitions),
            lag=_greatest(each.lag[node_id] for each in partitions if node_id in each.lag),
        )
        for node_id in sorted(node_ids)
    )


def _greatest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


async def _fenced_brokers(client: Client) -> list[tuple[int, str, str | None]]:
    """Brokers that are registered and not live, if the cluster lists them (KIP-1073)."""
    if await client.version_at_controller(DescribeClusterRequest) is None:
        return []
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = await client.ask_any(request, DescribeClusterResponse)
    return [
        (row.broker_id, str(Address(row.host, row.port)), row.rack)
        for row in response.brokers
        if row.is_fenced and row.broker_id not in client.brokers
    ]


async def _min_isr(client: Client, topics: Sequence[str]) -> dict[str, int]:
    """`min.insync.replicas` of the topics that can be described."""
    if not topics:
        return {}
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_ISR])
        for name in topics
    ]
    response = await client.ask_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    return {
        result.resource_name: int(config.value)
        for result in response.results
        for config in result.configs
        if result.error_code == ErrorCode.NONE and config.name == MIN_ISR and config.value is not None
    }


def _known(node_id: int) -> int | None:
    return node_id if node_id >= 0 else None


async def unregister_broker(client: Client, node_id: int) -> None:
    """Unregister a broker; raises Refused when none with this id is registered."""

    async def attempt() -> None:
        request = UnregisterBrokerRequest(broker_id=node_id)
        response = await client.ask_controller(request, UnregisterBrokerResponse)
        check(f"cannot unregister broker {node_id}", response.error_code, response.error_message)

    await client.retrying(attempt)


async def first_answer(config: ClientConfig) -> tuple[str, float]:
    """The first broker that answers, and after how many milliseconds. Raises NoAnswer when none does."""
    last: NoAnswer | None = None
    for address in config.bootstrap:
        asked_at = asyncio.get_running_loop().time()
        try:
            connection = await BrokerConnection.open(address, config.timeout_s, config.login, config.tls)
        except NoAnswer as error:
            last = error
            continue
        await connection.close()
        return str(address), round((asyncio.get_running_loop().time() - asked_at) * 1000, 1)
    assert last is not None, "there is at least one bootstrap address"
    raise last
