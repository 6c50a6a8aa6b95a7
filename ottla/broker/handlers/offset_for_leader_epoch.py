"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client or follower can find where its log diverges.

v2 brings the caller's current leader epoch, v3 its replica id. §14.3.3
"""

from functools import partial

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ONE_SLICE_BYTES, Runtime, in_slices_by_topic
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
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | None:
    if context.size_bytes > ONE_SLICE_BYTES:
        context.respond_later(runtime, _long_response(replicas, request))
        return None
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(replicas, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _long_response(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    asked = ((topic.topic, topic.partitions) for topic in request.topics)
    topics = await in_slices_by_topic(partial(_end_offset, replicas), asked)
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic=name, partitions=partitions) for name, partitions in topics]
    )


def _end_offset(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replicas.partition(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=int(error.code))
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
