"""DeleteRecords: partitions forget everything before an offset (§15.6).

The leader moves its log start at once; the answer waits for the followers, who learn of it with their next fetch.
"""

import asyncio

from ottla.broker.replicas.current_leader import in_doubt
from ottla.broker.replicas.delayed_delete_records import (
    NO_LOW_WATERMARK,
    DelayedDeleteRecords,
    DeleteRecordsPartitionStatus,
)
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import ONE_SLICE_BYTES, Runtime, complete, in_slices_by_topic
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.protocol.errors import InvalidTopicException, KafkaError, OffsetOutOfRange, PolicyViolation
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition

TO_HIGH_WATERMARK = -1


def handle(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | None:
    if context.size_bytes > ONE_SLICE_BYTES:
        context.respond_later(runtime, _long_response(replicas, runtime, request))
        return None
    awaited: list[DeleteRecordsPartitionStatus] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_result(replicas, topic.name, partition, awaited) for partition in topic.partitions],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )
    if not awaited:
        return response
    deadline_ms = runtime.clock.now_ms() + max(request.timeout_ms, 0)
    delayed = DelayedDeleteRecords(replicas, lambda: context.complete(response), awaited, deadline_ms)
    context.park()
    context.on_disconnect = lambda: replicas.delayed_delete_records.cancel(delayed)
    delayed.start()
    return None


async def _long_response(
    replicas: ReplicaManager, runtime: Runtime, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    awaited: list[DeleteRecordsPartitionStatus] = []
    asked = ((topic.name, topic.partitions) for topic in request.topics if topic.partitions)
    topics = await in_slices_by_topic(lambda name, partition: _result(replicas, name, partition, awaited), asked)
    if awaited:
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline_ms = runtime.clock.now_ms() + max(request.timeout_ms, 0)
        DelayedDeleteRecords(replicas, lambda: complete(known, None), awaited, deadline_ms).start()
        await known
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=results) for name, results in topics]
    )


def _result(
    replicas: ReplicaManager, topic: str, asked: DeleteRecordsPartition, awaited: list[DeleteRecordsPartitionStatus]
) -> DeleteRecordsPartitionResult:
    try:
        partition, offset = _delete(replicas, topic, asked.partition_index, asked.offset)
    except KafkaError as error:
        code = int(in_doubt(replicas, error).code)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=code
        )
    low_watermark = partition.log.log_start_offset
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)
    if partition.has_followers:
        awaited.append(DeleteRecordsPartitionStatus(partition, offset, result))
    return result


def _delete(replicas: ReplicaManager, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """The partition, and what its replicas are to begin at. Raises the KafkaError of the answer."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicException(f"the records of {topic} belong to the broker")
    partition = replicas.partition(topic, index)
    partition.check_leader()
    if not partition.log.config.deletes_old_segments:
        raise PolicyViolation(f"topic {topic} keeps records by key, its cleanup.policy does not delete")
    # What was appended by earlier requests of this read event counts.
    replicas.flush_and_notify()
    before = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= before <= partition.high_watermark:
        raise OffsetOutOfRange(f"offset {before} of {topic}-{index} is above its high watermark")
    partition.log.delete_records_before(before)
    replicas.log_start_rose(partition)
    return partition, before
