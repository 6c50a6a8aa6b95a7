"""Requests that need a right to the cluster alone: ACLs, users, quotas, elections (§62.5)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ottla.cli.operations.acls import creation_of, deletion_of
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.security.acl import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType
from tests.simulation.cluster.principals.asks import CLUSTER_CODE, NOT_ASKED, NOWHERE, Ask, Deed, Draw, codes_in
from tests.simulation.cluster.principals.rights import Seen

ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
PUPPET = "User:puppet"
"""Whose ACLs intruders try to change; no client is it."""


class ClusterNeed(NamedTuple):
    """A request that is refused as a whole, and what it needs; what it asks for does no harm."""

    request: Callable[[], Any]
    highest_version: int
    operations: tuple[AclOperation, ...]
    """Any of them will do."""
    lowest_version: int = 0
    content: str | None = None
    """A field that is empty in a refusal."""


def _quota() -> EntryData:
    entity = [EntityData(entity_type="client-id", entity_name="none")]
    return EntryData(entity=entity, ops=[OpData(key="request_percentage", value=50.0)])


def _marker() -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=NOWHERE, partition_indexes=[0])]
    return WritableTxnMarker(producer_id=1 << 40, producer_epoch=0, topics=topics)


NEEDS = [
    ClusterNeed(lambda: ListConfigResourcesRequest(), 1, (DESCRIBE_CONFIGS,), content="config_resources"),
    ClusterNeed(lambda: DescribeClientQuotasRequest(), 1, (DESCRIBE_CONFIGS,), content="entries"),
    ClusterNeed(lambda: AlterClientQuotasRequest(entries=[_quota()], validate_only=True), 1, (ALTER_CONFIGS,)),
    ClusterNeed(lambda: DescribeLogDirsRequest(topics=[]), 4, (DESCRIBE,), lowest_version=3, content="results"),
    ClusterNeed(lambda: ListPartitionReassignmentsRequest(topics=None), 0, (DESCRIBE,), content="topics"),
    ClusterNeed(lambda: DescribeUserScramCredentialsRequest(users=[UserName(name="no user")]), 0, (DESCRIBE,)),
    ClusterNeed(
        lambda: DescribeQuorumRequest(
            topics=[QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition(partition_index=0)])]
        ),
        2,
        (DESCRIBE,),
        content="topics",
    ),
    ClusterNeed(
        lambda: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=NOWHERE, partitions=[0])]),
        2,
        (ALTER,),
        lowest_version=1,
    ),
    ClusterNeed(
        lambda: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=NOWHERE, partitions=[ReassignablePartition(replicas=[1])])]
        ),
        1,
        (ALTER,),
    ),
    ClusterNeed(
        lambda: AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="no user", mechanism=1)]),
        0,
        (ALTER,),
    ),
    ClusterNeed(
        lambda: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name=NOWHERE, partitions=[0])])]
        ),
        2,
        (ALTER,),
        lowest_version=1,
    ),
    ClusterNeed(lambda: UnregisterBrokerRequest(broker_id=99), 0, (ALTER,)),
    ClusterNeed(
        lambda: WriteTxnMarkersRequest(markers=[_marker()]),
        1,
        (ALTER, AclOperation.CLUSTER_ACTION),
        lowest_version=1,
    ),
]


def ask_of_the_cluster(draw: Draw) -> Ask:
    need = draw.rng.choice(NEEDS)
    return Ask(need.request(), draw.version(need.lowest_version, need.highest_version), partial(_wrong_answer, need))


def _wrong_answer(need: ClusterNeed, seen: Seen, response: Any) -> str | None:
    """All codes of a refusal are the same."""
    what, codes = type(response).__name__, set(codes_in(response))
    if any(seen.cluster(operation) for operation in need.operations):
        return f"{what} has refusals, though it is allowed" if CLUSTER_CODE in codes else None
    if codes != {CLUSTER_CODE}:
        return f"{what} is denied and has the codes {codes}"
    if need.content is not None and getattr(response, need.content):
        return f"{what} is denied and shows {need.content}"
    return None


def describe_cluster(draw: Draw) -> Ask:
    asks = draw.rng.random() < 0.5

    def wrong(seen: Seen, response: Any) -> str | None:
        expected = seen.bits(ResourceType.CLUSTER, "kafka-cluster") if seen.cluster(DESCRIBE) else 0
        shown = response.cluster_authorized_operations
        if response.error_code or shown == (expected if asks else NOT_ASKED):
            return None
        return f"operations on the cluster are {shown}, allowed are {expected}"

    return Ask(DescribeClusterRequest(include_cluster_authorized_operations=asks), draw.version(0, 2), wrong)


# ACLs.


def describe_acls(draw: Draw) -> Ask:
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=Permission.ANY,
    )

    need = ClusterNeed(lambda: request, 3, (DESCRIBE,), content="resources")
    return Ask(request, draw.version(1, 3), partial(_wrong_answer, need), described=True)


def create_acls(draw: Draw) -> Ask:
    name = f"theatre-{draw.number()}"
    acl = AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, PUPPET, "*", AclOperation.ALL, Permission.ALLOW)
    need = ClusterNeed(lambda: None, 3, (ALTER,))
    return Ask(
        creation_of([acl]), draw.version(1, 3), partial(_wrong_answer, need), deeds=[Deed(("create", acl), _may_alter)]
    )


def delete_acls(draw: Draw) -> Ask:
    one = AclFilter(principal=PUPPET)
    need = ClusterNeed(lambda: None, 3, (ALTER,))
    deed = Deed(("filter", one), _may_alter)
    return Ask(deletion_of([one]), draw.version(1, 3), partial(_wrong_answer, need), deeds=[deed])


def _may_alter(seen: Seen) -> bool:
    return seen.cluster(ALTER)


ASKS: list[Callable[[Draw], Ask]] = [
    ask_of_the_cluster,
    ask_of_the_cluster,
    ask_of_the_cluster,
    describe_cluster,
    describe_acls,
    create_acls,
    delete_acls,
]
