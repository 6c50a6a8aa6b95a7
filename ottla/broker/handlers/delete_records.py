"""DeleteRecords: partitions forget everything before an offset (§15.6)."""

from ottla.broker.context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.protocol.errors import InvalidTopicException, KafkaError, OffsetOutOfRange, PolicyViolation
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_result(context, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _result(context: RequestContext, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _delete(context, topic, asked.partition_index, asked.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=int(error.code)
        )
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> int:
    """The log start offset afterwards, which with one replica is the low watermark too."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicException(f"the records of {topic} belong to the broker")
    replicas = context.broker.replicas
    partition = replicas.partition(topic, index)
    partition.check_leader()
    if not partition.log.config.deletes_old_segments:
        raise PolicyViolation(f"topic {topic} keeps records by key, its cleanup.policy does not delete")
    # What was appended by earlier requests of this read event counts.
    replicas.flush_appends()
    before = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= before <= partition.high_watermark:
        raise OffsetOutOfRange(f"offset {before} of {topic}-{index} is above its high watermark")
    partition.log.delete_records_before(before)
    return partition.log.log_start_offset
