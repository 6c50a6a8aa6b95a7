"""What `ottla brokers` does, as functions of a client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.client import Client
from ottla.cli.failures import ClientError, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BROKER_RESOURCE = 4
SET, DELETE = 0, 1
# Kafka's names of where a value comes from.
SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "file", 5: "default", 6: "broker logger", 7: "group"}
FROM_DEFAULT = 5
# The configs of all brokers that have none of their own.
ALL_BROKERS = ""
# Kafka's APIs in order of their keys, from 0 on.
_NAMES = """
Produce Fetch ListOffsets Metadata LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown OffsetCommit OffsetFetch
FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups SaslHandshake ApiVersions
CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn
WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs
DescribeLogDirs SaslAuthenticate CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken
DescribeDelegationToken DeleteGroups ElectLeaders IncrementalAlterConfigs AlterPartitionReassignments
ListPartitionReassignments OffsetDelete DescribeClientQuotas AlterClientQuotas DescribeUserScramCredentials
AlterUserScramCredentials Vote BeginQuorumEpoch EndQuorumEpoch DescribeQuorum AlterPartition UpdateFeatures Envelope
FetchSnapshot DescribeCluster DescribeProducers BrokerRegistration BrokerHeartbeat UnregisterBroker
DescribeTransactions ListTransactions AllocateProducerIds ConsumerGroupHeartbeat ConsumerGroupDescribe
ControllerRegistration GetTelemetrySubscriptions PushTelemetry AssignReplicasToDirs ListConfigResources
DescribeTopicPartitions ShareGroupHeartbeat ShareGroupDescribe ShareFetch ShareAcknowledge AddRaftVoter
RemoveRaftVoter UpdateRaftVoter InitializeShareGroupState ReadShareGroupState WriteShareGroupState
DeleteShareGroupState ReadShareGroupStateSummary StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets
AlterShareGroupOffsets DeleteShareGroupOffsets
"""
API_NAMES = tuple(_NAMES.split())


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """`value` is None for a secret."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    broker: int
    directory: str
    error: str | None
    replicas: int
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    partitions: tuple["LogSize", ...]


@dataclass(frozen=True, slots=True)
class LogSize:
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class ApiRange:
    """The versions of a request that a broker knows."""

    key: int
    name: str
    min_version: int
    max_version: int


async def broker_ids(client: Client, wanted: Sequence[int]) -> list[int]:
    """Those that are named, or all live ones; raises ClientError for one that is not live."""
    await client.metadata([])
    for node_id in wanted:
        if node_id not in client.brokers:
            raise ClientError(f"broker {node_id} is not live; {', '.join(map(str, sorted(client.brokers)))} are")
    return sorted(set(wanted)) or sorted(client.brokers)


async def broker_configs(client: Client, node_id: int) -> list[BrokerConfig]:
    """The properties of a broker, in order of their names."""
    address = client.brokers[node_id]
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    result = (await client.ask_at(address, request, DescribeConfigsResponse)).results[0]
    check(f"cannot read the configs of broker {node_id}", result.error_code, result.error_message)
    return [
        BrokerConfig(
            row.name,
            row.value,
            SOURCES.get(row.config_source, "unknown"),
            row.config_source == FROM_DEFAULT,
            row.read_only,
        )
        for row in sorted(result.configs, key=lambda row: row.name)
    ]


async def alter_broker_configs(
    client: Client, node_id: int | None, *, set_to: Mapping[str, str], unset: Sequence[str]
) -> None:
    """Of one broker, or of all for None. Raises Refused where a property cannot be altered at run time."""
    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in set_to.items()]
    changes += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in unset]
    name = ALL_BROKERS if node_id is None else str(node_id)
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    who = "all brokers" if node_id is None else f"broker {node_id}"

    async def attempt() -> None:
        if node_id is None:
            response = await client.ask_controller(request, IncrementalAlterConfigsResponse)
        else:
            response = await client.ask_at(client.brokers[node_id], request, IncrementalAlterConfigsResponse)
        check(f"cannot alter {who}", response.responses[0].error_code, response.responses[0].error_message)

    await client.retrying(attempt)


async def log_directories(client: Client, node_id: int) -> list[LogDirDescription]:
    """With the size of each replica."""
    response = await client.ask_at(
        client.brokers[node_id], DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
    )
    check(f"cannot describe the log directories of broker {node_id}", response.error_code)
    found: list[LogDirDescription] = []
    for result in response.results:
        partitions = tuple(
            LogSize(topic.name, row.partition_index, row.partition_size, row.offset_lag, row.is_future_key)
            for topic in sorted(result.topics, key=lambda topic: topic.name)
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        )
        found.append(
            LogDirDescription(
                broker=node_id,
                directory=result.log_dir,
                error=_error_name(result.error_code),
                replicas=len(partitions),
                size_bytes=sum(each.size_bytes for each in partitions),
                total_bytes=_known(result.total_bytes),
                usable_bytes=_known(result.usable_bytes),
                partitions=partitions,
            )
        )
    return found


async def api_versions(client: Client, node_id: int) -> list[ApiRange]:
    """In order of their keys."""
    ranges = await client.versions_at(client.brokers[node_id])
    return [ApiRange(key, _api_name(key), *ranges[key]) for key in sorted(ranges)]


def _api_name(key: int) -> str:
    return API_NAMES[key] if key < len(API_NAMES) else f"key {key}"


def _error_name(code: int) -> str | None:
    if code == ErrorCode.NONE:
        return None
    return ErrorCode(code).name if code in {*ErrorCode} else f"error {code}"


def _known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None
