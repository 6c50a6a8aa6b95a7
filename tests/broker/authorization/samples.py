"""One request or more of every API, with which of its row's needs (`Api.needs`) each of them has.

The requests name the topic orders, the group crew and the transactional id pay.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.server.apis import APIS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_offsets_to_txn as offsets_to_txn
from ottla.protocol.messages import add_partitions_to_txn as partitions_to_txn
from ottla.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    create_acls,
    create_partitions,
    delete_acls,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_config_resources,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    txn_offset_commit,
    unregister_broker,
    update_features,
)
from ottla.protocol.messages import alter_partition_reassignments as reassignments
from ottla.protocol.messages import alter_user_scram_credentials as alter_users
from ottla.protocol.messages import create_topics as topics
from ottla.protocol.messages import describe_user_scram_credentials as describe_users
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages import metadata as metadata_messages
from ottla.protocol.messages import offset_fetch as offsets
from ottla.protocol.messages import write_txn_markers as markers
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.security.acl import ResourceType
from tests.broker.requests import (
    commit,
    delete_offsets,
    delete_records,
    describe_configs,
    heartbeat,
    join,
    leave,
    list_offsets,
    sync,
)
from tests.broker.wire import batch

ORDERS, CREW, PAY = "orders", "crew", "pay"
NEW = "new-orders"
"""A topic that does not exist."""
_SEEN = (("DESCRIBE", ResourceType.TOPIC, NEW),)
TOPIC_DENIED, GROUP_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED, ID_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
Make = Callable[[int, bytes], Any]
"""(version, id of the topic orders) to the request."""


class Sample(NamedTuple):
    key: int
    what: str
    make: Make
    refusals: dict[int, ErrorCode | str]
    """By the number of a need of the row, the one code of the response where it is missing; or what else is to be seen:
    `dropped`: the name of the resource is not in the response; `zero`: nor are the cluster's operations."""
    versions: tuple[int, int] | None = None
    also: tuple[tuple[str, ResourceType, str], ...] = ()
    """What it needs beside its subject."""
    topic: str = "orders"
    """The one that it names."""

    def served_versions(self) -> range:
        api = APIS[self.key]
        low, high = self.versions or (api.min_version, api.max_version)
        return range(low, high + 1)

    def __str__(self) -> str:
        return f"{APIS[self.key].name}-{self.what}"


def samples() -> Iterator[Sample]:
    yield from _about_records()
    yield from _about_metadata()
    yield from _about_groups()
    yield from _about_transactions()
    yield from _about_topics()
    yield from _about_configs()
    yield from _about_the_cluster()


def _produce(version: int, topic_id: bytes, *, is_transactional: bool = False) -> ProduceRequest:
    records = batch(b"x")
    if is_transactional:
        records = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(
        name=ORDERS if version < 13 else "",
        topic_id=bytes(16) if version < 13 else topic_id,
        partition_data=[data],
    )
    transactional_id = PAY if is_transactional else None
    return ProduceRequest(acks=1, timeout_ms=1000, transactional_id=transactional_id, topic_data=[topic])


def _fetch(version: int, topic_id: bytes, replica: int = -1) -> FetchRequest:
    topic = FetchTopic(
        topic=ORDERS if version < 13 else "",
        topic_id=bytes(16) if version < 13 else topic_id,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=-1, topics=[topic])
    if version < 15:
        request.replica_id = replica
    else:
        request.replica_state = ReplicaState(replica_id=replica, replica_epoch=-1)
    return request


def _epochs(version: int, topic_id: bytes) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=ORDERS, partitions=[partition])]
    )


def _about_records() -> Iterator[Sample]:
    yield Sample(0, "plain", _produce, {1: TOPIC_DENIED})
    yield Sample(
        0,
        "in a transaction",
        lambda version, known: _produce(version, known, is_transactional=True),
        {0: ID_DENIED},
        also=(("WRITE", ResourceType.TOPIC, ORDERS),),
    )
    yield Sample(1, "consumer", _fetch, {1: TOPIC_DENIED})
    yield Sample(1, "follower", lambda version, known: _fetch(version, known, replica=7), {0: TOPIC_DENIED})
    yield Sample(2, "latest", lambda *_: list_offsets(ORDERS, 0), {0: TOPIC_DENIED})
    yield Sample(21, "some", lambda *_: delete_records(ORDERS, 0, 0), {0: TOPIC_DENIED})
    yield Sample(23, "some", _epochs, {0: TOPIC_DENIED})
    asked = describe_producers.TopicRequest(name=ORDERS, partition_indexes=[0])
    yield Sample(61, "some", lambda *_: describe_producers.DescribeProducersRequest(topics=[asked]), {0: TOPIC_DENIED})


def _metadata(*asked: str, topic_id: bytes = bytes(16), create: bool = False, **fields: bool) -> Any:
    named = [metadata_messages.MetadataRequestTopic(name=name, topic_id=topic_id) for name in asked]
    return metadata_messages.MetadataRequest(topics=named, allow_auto_topic_creation=create, **fields)


def _all_topics(version: int, topic_id: bytes) -> Any:
    return metadata_messages.MetadataRequest(topics=None if version else [], allow_auto_topic_creation=False)


def _about_metadata() -> Iterator[Sample]:
    yield Sample(3, "by name", lambda *_: _metadata(ORDERS), {0: TOPIC_DENIED})
    yield Sample(3, "by id", lambda _, known: _metadata("", topic_id=known), {0: TOPIC_DENIED}, (12, 13))
    yield Sample(3, "all", _all_topics, {0: "dropped"})
    yield Sample(3, "missing", lambda *_: _metadata(NEW, create=True), {1: TOPIC_DENIED}, (4, 13), _SEEN, NEW)
    cluster = {"include_cluster_authorized_operations": True}
    yield Sample(3, "operations", lambda *_: _metadata(**cluster), {2: "zero"}, (8, 10))
    named = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=ORDERS)]
    )
    yield Sample(75, "named", lambda *_: named, {0: TOPIC_DENIED})
    yield Sample(75, "all", lambda *_: describe_topic_partitions.DescribeTopicPartitionsRequest(), {0: "dropped"})
    yield Sample(60, "operations", lambda *_: describe_cluster.DescribeClusterRequest(**cluster), {0: "zero"})


def _fetch_offsets(version: int, *, names: bool) -> Any:
    if version >= 8:
        of_group = [offsets.OffsetFetchRequestTopics(name=ORDERS, partition_indexes=[0])] if names else None
        group = offsets.OffsetFetchRequestGroup(group_id=CREW, topics=of_group)
        return offsets.OffsetFetchRequest(groups=[group])
    asked = [offsets.OffsetFetchRequestTopic(name=ORDERS, partition_indexes=[0])] if names else None
    return offsets.OffsetFetchRequest(group_id=CREW, topics=asked)


def _coordinator(kind: int, key: str) -> Make:
    def make(version: int, topic_id: bytes) -> Any:
        keys = [key] if version >= 4 else []
        return find_coordinator.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=keys)

    return make


def _describe_groups(version: int, topic_id: bytes) -> Any:
    return describe_groups.DescribeGroupsRequest(groups=[CREW], include_authorized_operations=version >= 3)


def _about_groups() -> Iterator[Sample]:
    yield Sample(8, "some", lambda *_: commit(CREW, ORDERS, 5), {0: GROUP_DENIED, 1: TOPIC_DENIED})
    named = {0: GROUP_DENIED, 1: TOPIC_DENIED}
    yield Sample(9, "named", lambda version, _: _fetch_offsets(version, names=True), named)
    every = {0: GROUP_DENIED, 1: "dropped"}
    yield Sample(9, "all", lambda version, _: _fetch_offsets(version, names=False), every, (2, 9))
    yield Sample(10, "group", _coordinator(0, CREW), {0: GROUP_DENIED})
    yield Sample(10, "transactional id", _coordinator(1, PAY), {1: ID_DENIED}, (1, 6))
    yield Sample(10, "share", _coordinator(2, "crew:orders:0"), {2: CLUSTER_DENIED}, (6, 6))
    yield Sample(11, "unknown member", lambda *_: join(CREW, "stranger"), {0: GROUP_DENIED})
    yield Sample(12, "unknown member", lambda *_: heartbeat(CREW, "stranger", 1), {0: GROUP_DENIED})
    yield Sample(13, "unknown member", lambda *_: leave(CREW, ("stranger", None)), {0: GROUP_DENIED})
    yield Sample(
        14,
        "unknown member",
        lambda *_: sync(CREW, "stranger", 1, protocol_type="consumer", protocol_name="range"),
        {0: GROUP_DENIED},
    )
    yield Sample(15, "one", _describe_groups, {0: GROUP_DENIED})
    yield Sample(16, "all", lambda *_: list_groups.ListGroupsRequest(), {0: "dropped"})
    yield Sample(42, "one", lambda *_: delete_groups.DeleteGroupsRequest(groups_names=[CREW]), {0: GROUP_DENIED})
    yield Sample(47, "one", lambda *_: delete_offsets(CREW, ORDERS, 9), {0: GROUP_DENIED, 1: TOPIC_DENIED})


def _add_partitions(version: int, topic_id: bytes) -> Any:
    asked = partitions_to_txn.AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])
    producer = {"producer_id": 9, "producer_epoch": 0}
    if version < 4:
        old = {f"v3_and_below_{name}": value for name, value in {**producer, "transactional_id": PAY}.items()}
        return partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_topics=[asked], **old)
    transaction = partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id=PAY, topics=[asked], **producer)
    return partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def _commit_in_transaction(version: int, topic_id: bytes) -> Any:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=ORDERS, partitions=[partition])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=PAY, group_id=CREW, producer_id=9, producer_epoch=0, topics=[topic]
    )


def _markers(version: int, topic_id: bytes) -> Any:
    topic = markers.WritableTxnMarkerTopic(name="missing", partition_indexes=[0])
    marker = markers.WritableTxnMarker(producer_id=9, producer_epoch=0, transaction_result=True, topics=[topic])
    return markers.WriteTxnMarkersRequest(markers=[marker])


def _about_transactions() -> Iterator[Sample]:
    producer = {"transactional_id": PAY, "producer_id": 9, "producer_epoch": 0}
    init = init_producer_id.InitProducerIdRequest
    with_id = init(transactional_id=PAY, transaction_timeout_ms=1000)
    yield Sample(22, "with an id", lambda *_: with_id, {0: ID_DENIED})
    without = init(transactional_id=None, transaction_timeout_ms=1000)
    yield Sample(22, "without an id", lambda *_: without, {1: CLUSTER_DENIED})
    yield Sample(24, "client", _add_partitions, {0: ID_DENIED, 1: TOPIC_DENIED}, (0, 3))
    yield Sample(24, "broker", _add_partitions, {2: CLUSTER_DENIED}, (4, 5))
    offsets_request = offsets_to_txn.AddOffsetsToTxnRequest(group_id=CREW, **producer)
    yield Sample(25, "one", lambda *_: offsets_request, {0: ID_DENIED, 1: GROUP_DENIED})
    yield Sample(26, "one", lambda *_: end_txn.EndTxnRequest(committed=True, **producer), {0: ID_DENIED})
    yield Sample(27, "one", _markers, {0: CLUSTER_DENIED})
    refusals = {0: ID_DENIED, 1: GROUP_DENIED, 2: TOPIC_DENIED}
    yield Sample(28, "one", _commit_in_transaction, refusals)
    described = describe_transactions.DescribeTransactionsRequest(transactional_ids=[PAY])
    yield Sample(65, "one", lambda *_: described, {0: ID_DENIED, 1: "dropped"})
    yield Sample(66, "all", lambda *_: list_transactions.ListTransactionsRequest(), {0: "dropped"})


def _delete_topics(version: int, topic_id: bytes) -> Any:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[ORDERS], timeout_ms=1000)
    asked = delete_topics.DeleteTopicState(name=None, topic_id=topic_id)
    return delete_topics.DeleteTopicsRequest(topics=[asked], timeout_ms=1000)


def _about_topics() -> Iterator[Sample]:
    new = topics.CreatableTopic(name=NEW, num_partitions=1, replication_factor=1)
    create = topics.CreateTopicsRequest(topics=[new], validate_only=True)
    yield Sample(19, "new", lambda *_: create, {0: TOPIC_DENIED}, (2, 4), topic=NEW)
    yield Sample(19, "shown", lambda *_: create, {0: TOPIC_DENIED, 1: TOPIC_DENIED}, (5, 7), topic=NEW)
    yield Sample(20, "one", _delete_topics, {0: TOPIC_DENIED})
    grown = create_partitions.CreatePartitionsTopic(name=ORDERS, count=2, assignments=None)
    partitions = create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=True)
    yield Sample(37, "one", lambda *_: partitions, {0: TOPIC_DENIED})


_RESOURCES = ((4, "1", 0, CLUSTER_DENIED), (2, ORDERS, 1, TOPIC_DENIED), (32, CREW, 2, GROUP_DENIED))


def _about_configs() -> Iterator[Sample]:
    for kind, name, need, code in _RESOURCES:
        what = f"of type {kind}"
        yield Sample(32, what, lambda *_, kind=kind, name=name: describe_configs(kind, name), {need: code})
        old = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
        request = alter_configs.AlterConfigsRequest(resources=[old], validate_only=True)
        yield Sample(33, what, lambda *_, request=request: request, {need: code})
        resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name)
        altered = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        yield Sample(44, what, lambda *_, request=altered: request, {need: code})


def _about_the_cluster() -> Iterator[Sample]:
    denied: dict[int, ErrorCode | str] = {0: CLUSTER_DENIED}

    def sample(key: int, request: Any, versions: tuple[int, int] | None = None) -> Sample:
        return Sample(key, "one", lambda *_: request, denied, versions)

    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    yield sample(29, describe_acls.DescribeAclsRequest(**every))
    creation = create_acls.AclCreation(
        resource_type=2, resource_name="x", principal="User:x", host="*", operation=3, permission_type=3
    )
    yield sample(30, create_acls.CreateAclsRequest(creations=[creation]))
    yield sample(
        31,
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**every | {"resource_name_filter": "x"})]),
    )
    component = describe_client_quotas.ComponentData(entity_type="user", match_type=2, match=None)
    yield sample(48, describe_client_quotas.DescribeClientQuotasRequest(components=[component]))
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name="x")
    op = alter_client_quotas.OpData(key="producer_byte_rate", value=1024.0)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[op])
    yield sample(49, alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True))
    moved = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=ORDERS, partitions=[0])
    directory = alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[moved])
    yield sample(34, alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory]))
    yield sample(35, describe_log_dirs.DescribeLogDirsRequest(topics=None), (3, 4))
    elected = elect_leaders.TopicPartitions(topic=ORDERS, partitions=[0])
    yield sample(43, elect_leaders.ElectLeadersRequest(topic_partitions=[elected]))
    partition = reassignments.ReassignablePartition(partition_index=0, replicas=None)
    topic = reassignments.ReassignableTopic(name=ORDERS, partitions=[partition])
    yield sample(45, reassignments.AlterPartitionReassignmentsRequest(topics=[topic]))
    yield sample(46, list_partition_reassignments.ListPartitionReassignmentsRequest())
    user = describe_users.UserName(name="carol")
    yield sample(50, describe_users.DescribeUserScramCredentialsRequest(users=[user]))
    deletion = alter_users.ScramCredentialDeletion(name="carol", mechanism=1)
    yield sample(51, alter_users.AlterUserScramCredentialsRequest(deletions=[deletion]))
    yield sample(55, describe_quorum.DescribeQuorumRequest())
    yield sample(57, update_features.UpdateFeaturesRequest())
    yield sample(64, unregister_broker.UnregisterBrokerRequest(broker_id=99))
    yield sample(74, list_config_resources.ListConfigResourcesRequest())
