"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client or follower can find where its log diverges.

v2 brings the caller's current leader epoch, v3 its replica id. §14.3.3
"""

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    replicas: ReplicaManager,
    context: RequestContext,  # noqa: ARG001
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(replicas, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replicas.partition(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=int(error.code))
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
