"""Requests in few words."""

from typing import Any

from ottla.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire import batch

SUBSCRIBED_TO_ORDERS = bytes.fromhex("0000 00000001 0006 6f7264657273 ffffffff")


def join(
    group_id: str,
    member_id: str = "",
    *,
    session_timeout_ms: int = 1_800_000,
    group_instance_id: str | None = None,
    protocol_type: str = "consumer",
    protocols: list[str] | None = None,
) -> JoinGroupRequest:
    names = ["range"] if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=SUBSCRIBED_TO_ORDERS) for name in names],
    )


def sync(
    group_id: str,
    member_id: str,
    generation: int,
    assignments: list[SyncGroupRequestAssignment] | None = None,
    **fields: Any,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id, member_id=member_id, generation_id=generation, assignments=assignments or [], **fields
    )


def heartbeat(group_id: str, member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group_id, member_id=member_id, generation_id=generation)


def leave(group_id: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    leaving = [
        MemberIdentity(member_id=member_id, group_instance_id=group_instance_id)
        for member_id, group_instance_id in members
    ]
    return LeaveGroupRequest(group_id=group_id, members=leaving)


def commit(
    group_id: str,
    topic_name: str,
    generation: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
    *,
    partition: int = 0,
    offset: int = 1,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[OffsetCommitRequestTopic(name=topic_name, partitions=[committed])],
    )


def fetch_offsets(group_id: str, topic_name: str) -> OffsetFetchRequest:
    wanted = [OffsetFetchRequestTopic(name=topic_name, partition_indexes=[0, 9])]
    return OffsetFetchRequest(group_id=group_id, topics=wanted)


def offsets_of_group(group_id: str, member_id: str | None = None, member_epoch: int = -1) -> OffsetFetchRequestGroup:
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 9])]
    return OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics)


def delete_offsets(group_id: str, topic_name: str, index: int = 0) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index)]
    topics = [OffsetDeleteRequestTopic(name=topic_name, partitions=partitions)]
    return OffsetDeleteRequest(group_id=group_id, topics=topics)


def topic(
    name: str, partitions: int = 1, *, replicas: int = 1, configs: dict[str, str | None] | None = None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def assigned(name: str, replicas: dict[int, list[int]]) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in replicas.items()
    ]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def grown(count: int, replicas: list[list[int]]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas]
    return CreatePartitionsTopic(name="orders", count=count, assignments=assignments)


def describe_configs(kind: int, *names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
    )


def produce(topic_name: str, *, index: int = 0, acks: int = 1, records: bytes | None = batch(b"x")) -> ProduceRequest:
    partition = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic_name, partition_data=[partition])]
    )


def with_magic(magic: int) -> bytes:
    records = bytearray(batch(b"x"))
    records[16] = magic
    return bytes(records)


def fetch(topic_name: str, *, offset: int = 0, index: int = 0, epoch: int = -1, **fields: Any) -> FetchRequest:
    partition = _fetch_partition(index, offset, epoch)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic_name, partitions=[partition])], **fields)


def fetch_by_id(topic_id: bytes) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[_fetch_partition(0, 0, -1)])])


def _fetch_partition(index: int, offset: int, epoch: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)


def list_offsets(topic_name: str, *indexes: int, timestamp: int = -1, epoch: int = -1) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index in indexes or (0,)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic_name, partitions=partitions)])


def epoch_end(topic_name: str, index: int, *, leader_epoch: int = 0, current: int = -1) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=leader_epoch)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic_name, partitions=[partition])])


def delete_records(topic_name: str, index: int, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic_name, partitions=[partition])], timeout_ms=5000)


def metadata(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)
