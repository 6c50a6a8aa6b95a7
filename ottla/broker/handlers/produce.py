"""Produce: record batches into partitions.

v3 is the oldest with batches of magic 2; v7 allows zstd, v8 names the records that are wrong, v9 is flexible, v10 names
the leader and its address to a client that asked the wrong broker, v13 has topic ids instead of names. Versions 0 to 2
are advertised and not served (see the table of APIs).

The answer leaves after the appends of the whole read event have been written; a write that fails still changes it.
With acks=all it waits for the followers too, if there are any (`DelayedProduce`).
With acks=0 the client waits for no answer, so an error closes the connection, and the client asks for metadata again.
"""

from collections.abc import Sequence

from ottla.broker.replicas.delayed_produce import DelayedProduce, ProducePartitionStatus, name_leader
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS, MetadataImage
from ottla.protocol.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidTopicException,
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.replication.partition import ACKS_ALL
from ottla.storage.validation import NotOneBatch, RecordsRefused

NO_ACKS = 0
VALID_ACKS = (-1, 0, 1)
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
NO_OFFSET = -1
# What the log itself refuses is answered with where the log begins.
REFUSED_BY_LOG = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


def handle(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | None:
    if context.api_version >= TOPIC_IDS_SINCE:
        _name_topics(replicas.image, request.topic_data)
    refusal = _refusal(runtime, request)
    if refusal is not None:
        response = _refused(replicas, context, request, *refusal)
        if request.acks != NO_ACKS:
            return response
        _close_on_error(context, response)
        return None
    awaited: list[ProducePartitionStatus] = []
    response = ProduceResponse()
    topics: Sequence[TopicProduceData] = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        topics = _named_once(topics)
    response.responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _append(replicas, context, response, request.acks, topic.name, data, awaited)
                for data in topic.partition_data
            ],
        )
        for topic in topics
    ]
    if request.acks == NO_ACKS:
        _close_on_error(context, response)
        return None
    if awaited and _waits(replicas, awaited):
        deadline_ms = runtime.clock.now_ms() + max(request.timeout_ms, 0)
        DelayedProduce(replicas, context, response, awaited, deadline_ms).start()
        return None
    return response


def _name_topics(image: MetadataImage, topics: Sequence[TopicProduceData]) -> None:
    """The names of the topics whose ids the request has; an unknown one stays without."""
    for topic in topics:
        known = image.topic_by_id(topic.topic_id)
        if known is not None:
            topic.name = known.name


def _named_once(topics: Sequence[TopicProduceData]) -> Sequence[TopicProduceData]:
    """As in Kafka, of a partition that is named twice the last data counts, and a topic without partitions does not."""
    partitions = [(topic.name, topic.topic_id, data.index) for topic in topics for data in topic.partition_data]
    if len(set(partitions)) == len(partitions) and all(topic.partition_data for topic in topics):
        return topics
    last: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        for data in topic.partition_data:
            last.setdefault((topic.name, topic.topic_id), {})[data.index] = data
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(of_topic.values()))
        for (name, topic_id), of_topic in last.items()
    ]


def _waits(replicas: ReplicaManager, awaited: list[ProducePartitionStatus]) -> bool:
    if any(each.needs_replicas for each in awaited):
        return True
    # Whether a sync is due, the log knows when it has written.
    replicas.flush_and_notify()
    return any(each.partition.log.needs_flush for each in awaited)


def _append(
    replicas: ReplicaManager,
    context: RequestContext,
    response: ProduceResponse,
    acks: int,
    topic: str,
    data: PartitionProduceData,
    awaited: list[ProducePartitionStatus],
) -> PartitionProduceResponse:
    index = data.index
    answer = PartitionProduceResponse(index=index)
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"{topic} is written by the broker alone")
        partition = replicas.partition(topic, index)
        records = data.records
        if records is None:
            raise CorruptMessage("the partition's data holds no batch")
        info = replicas.append(partition, records, acks, answer, zstd_allowed=context.api_version >= ZSTD_SINCE)
    except KafkaError as refused:
        error = refused if topic else _nameless(context, refused)
        _describe_failure(answer, error)
        context.route.errors[int(error.code)] += 1
        if error.code in REFUSED_BY_LOG and not isinstance(error, NotOneBatch):
            answer.log_start_offset = replicas.partition(topic, index).log.log_start_offset
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            name_leader(replicas, context, response, topic, answer)
        return answer
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.log_append_time
    answer.log_start_offset = info.log_start_offset
    needs_replicas = acks == ACKS_ALL and partition.has_followers
    if needs_replicas or partition.log.waits_for_sync:
        awaited.append(ProducePartitionStatus(partition, info, answer, partition.leader_epoch, needs_replicas))
    return answer


def _nameless(context: RequestContext, error: KafkaError) -> KafkaError:
    """Of a topic without a name, the id is what is unknown in versions that have ids."""
    return error if context.api_version < TOPIC_IDS_SINCE else UnknownTopicId("no topic has this id")


def _close_on_error(context: RequestContext, response: ProduceResponse) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                code = ErrorCode(answer.error_code)
                context.close_connection(f"produce with acks=0 to {topic.name}-{answer.index} failed: {code.name}")
                return


def _refusal(runtime: Runtime, request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    """Why the whole request is refused, or None."""
    if request.acks not in VALID_ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}, expected one of {VALID_ACKS}"
    if request.transactional_id is not None:
        runtime.log.warning("transactions are not supported", transactional_id=request.transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions"
    return None


def _refused(
    replicas: ReplicaManager, context: RequestContext, request: ProduceRequest, code: ErrorCode, why: str
) -> ProduceResponse:
    refusal = error_for(code, why)

    def answers(topic: TopicProduceData) -> list[PartitionProduceResponse]:
        return [_refused_partition(replicas, context, topic.name, data.index, refusal) for data in topic.partition_data]

    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers(topic))
            for topic in _named_once(request.topic_data)
        ]
    )


def _refused_partition(
    replicas: ReplicaManager, context: RequestContext, topic: str, index: int, error: KafkaError
) -> PartitionProduceResponse:
    """Whether there is such a partition is looked at first."""
    if replicas.image.partition(topic, index) is None:
        absent = UnknownTopicOrPartition("there is no such partition")
        error = absent if topic else _nameless(context, absent)
    return PartitionProduceResponse(
        index=index, error_code=int(error.code), base_offset=NO_OFFSET, error_message=str(error)
    )


def _describe_failure(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = int(error.code)
    answer.base_offset = NO_OFFSET
    answer.error_message = str(error)
    if isinstance(error, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in error.record_errors
        ]
