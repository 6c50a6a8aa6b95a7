"""Produce: record batches into partitions.

v3 is the oldest with batches of magic 2; v7 allows zstd, v8 names the records that are wrong, v9 is flexible, v10 names
the leader and its address to a client that asked the wrong broker, v13 has topic ids instead of names. Versions 0 to 2
are advertised and not served (see the table of APIs).

The answer leaves after the appends of the whole read event have been written; a write that fails still changes it.
With acks=all it waits for the followers too, if there are any (`DelayedProduce`).
With acks=0 the client waits for no answer, so an error closes the connection, and the client asks for metadata again.
A sequence that does not follow, or an epoch that is not the coordinator's, is for good, so only a leader whose session
lasts says it: the successor of another may have the batches that it misses, or have begun the transaction.
A request with the first batch of a transaction waits for the transaction's coordinator, parked unless that is this
broker and has the answer at hand; since v12 the leader registers the partition there, v11 knows TRANSACTION_ABORTABLE
(KIP-890).
One that names very many partitions is parked too, and appends to some of them in each step of the loop. Its connection
handles nothing else before that is done.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice

from ottla.broker.replicas.current_leader import in_doubt
from ottla.broker.replicas.delayed_produce import DelayedProduce, ProducePartitionStatus, name_leader
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.transaction_verification import (
    TransactionalBatch,
    TransactionOperation,
    TransactionVerification,
    Verified,
)
from ottla.broker.runtime import ITEMS_PER_SLICE, ONE_SLICE_BYTES, Runtime, in_slices
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
from ottla.protocol.records.batch import (
    BATCH_HEADER_SIZE,
    LOW_ATTRIBUTES,
    TRANSACTIONAL_BIT,
    parse_batch_header,
)
from ottla.replication.partition import ACKS_ALL
from ottla.storage.validation import NotOneBatch, RecordsRefused

NO_ACKS = 0
VALID_ACKS = (-1, 0, 1)
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
NO_OFFSET = -1
NO_RESPONSE = b""
# What the log itself refuses is answered with where the log begins.
REFUSED_BY_LOG = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


def handle(
    replicas: ReplicaManager,
    runtime: Runtime,
    transaction_verification: TransactionVerification,
    context: RequestContext,
    request: ProduceRequest,
) -> ProduceResponse | None:
    if context.api_version >= TOPIC_IDS_SINCE:
        _name_topics(replicas.image, request.topic_data)
    if request.acks not in VALID_ACKS:
        why = f"acks={request.acks}, expected one of {VALID_ACKS}"
        return _refused(replicas, context, request, ErrorCode.INVALID_REQUIRED_ACKS, why)
    for topic in request.topic_data:
        for data in topic.partition_data:
            # Almost no request is transactional: no function is called to see that.
            records = data.records
            if records is not None and len(records) > LOW_ATTRIBUTES and records[LOW_ATTRIBUTES] & TRANSACTIONAL_BIT:
                return _in_transaction(replicas, runtime, transaction_verification, context, request)
    if context.size_bytes > ONE_SLICE_BYTES and _names_many(request):
        _keep_records(request)
        context.respond_later(runtime, _append_in_slices(replicas, runtime, context, request, None))
        return None
    return _append_all(replicas, runtime, context, request, None)


def _append_all(
    replicas: ReplicaManager,
    runtime: Runtime,
    context: RequestContext,
    request: ProduceRequest,
    verified: Verified | None,
) -> ProduceResponse | None:
    """Of a request without transactional batches, nothing is `verified`."""
    awaited: list[ProducePartitionStatus] = []
    response = ProduceResponse()
    topics: Sequence[TopicProduceData] = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        topics = _named_once(topics)
    acks = request.acks
    for topic in topics:
        name = topic.name
        answers = [
            _append(replicas, context, response, acks, awaited, verified, name, data) for data in topic.partition_data
        ]
        response.responses.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    if acks == NO_ACKS:
        _close_on_error(context, response)
        return None
    if awaited and _waits(replicas, awaited):
        deadline_ms = runtime.clock.now_ms() + max(request.timeout_ms, 0)
        DelayedProduce(replicas, context, response, awaited, deadline_ms).start()
        return None
    return response


def _names_many(request: ProduceRequest) -> bool:
    return sum(len(topic.partition_data) for topic in request.topic_data) > ITEMS_PER_SLICE


def _keep_records(request: ProduceRequest) -> None:
    """Their place in the receive buffer is needed for what comes next."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


async def _append_in_slices(
    replicas: ReplicaManager,
    runtime: Runtime,
    context: RequestContext,
    request: ProduceRequest,
    verified: Verified | None,
) -> ProduceResponse | None:
    """As `_append_all`, of a request that is parked. What a slice has appended is written at the end of the slice."""
    awaited: list[ProducePartitionStatus] = []
    response = ProduceResponse()
    topics = _named_once(request.topic_data)
    named = ((topic.name, data) for topic in topics for data in topic.partition_data)
    append = partial(_append, replicas, context, response, request.acks, awaited, verified)
    answers = iter(await in_slices(lambda pair: append(*pair), named))
    response.responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=list(islice(answers, len(topic.partition_data))),
        )
        for topic in topics
    ]
    replicas.flush_and_notify()
    if request.acks == NO_ACKS:
        _close_on_error(context, response)
        context.complete(None, NO_RESPONSE)
    elif awaited and _waits(replicas, awaited):
        deadline_ms = runtime.clock.now_ms() + max(request.timeout_ms, 0)
        DelayedProduce(replicas, context, response, awaited, deadline_ms).start()
    else:
        return response
    return None


def _in_transaction(
    replicas: ReplicaManager,
    runtime: Runtime,
    transaction_verification: TransactionVerification,
    context: RequestContext,
    request: ProduceRequest,
) -> ProduceResponse | None:
    """A request with transactional batches: what their coordinator says of them comes first (§40)."""
    if request.transactional_id is None:
        why = "a transactional batch needs a transactional id"
        return _refused(replicas, context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
    batches = _transactional_batches(request)
    if len({(batch.producer_id, batch.producer_epoch) for batch in batches}) > 1:
        why = "the transactional batches of a request are of one producer"
        return _refused(replicas, context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
    pending = transaction_verification.begin(
        request.transactional_id, batches, TransactionOperation.of_produce(context.api_version)
    )
    is_long = _names_many(request)
    if pending.known is not None and not is_long:
        return _append_all(replicas, runtime, context, request, pending.known)
    _keep_records(request)
    context.park()
    pending.when_known(partial(_go_on_in_slices if is_long else _go_on, replicas, runtime, context, request))
    return None


def _transactional_batches(request: ProduceRequest) -> list[TransactionalBatch]:
    found: list[TransactionalBatch] = []
    for topic in _named_once(request.topic_data):
        for data in topic.partition_data:
            if data.records is None or len(data.records) < BATCH_HEADER_SIZE or topic.name in INTERNAL_TOPICS:
                continue
            header = parse_batch_header(data.records)
            if header.is_transactional and not header.is_control and header.producer_id >= 0:
                found.append(
                    TransactionalBatch(
                        topic.name, data.index, header.producer_id, header.producer_epoch, header.base_sequence
                    )
                )
    return found


def _go_on(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: ProduceRequest, verified: Verified
) -> None:
    """The coordinator has answered."""
    response = _append_all(replicas, runtime, context, request, verified)
    if request.acks == NO_ACKS:
        context.complete(None, NO_RESPONSE)
    elif response is not None:
        replicas.flush_and_notify()
        context.complete(response)


def _go_on_in_slices(
    replicas: ReplicaManager, runtime: Runtime, context: RequestContext, request: ProduceRequest, verified: Verified
) -> None:
    context.complete_later(runtime.spawn, _append_in_slices(replicas, runtime, context, request, verified))


def _name_topics(image: MetadataImage, topics: Sequence[TopicProduceData]) -> None:
    """The names of the topics whose ids the request has; an unknown one stays without."""
    for topic in topics:
        topic.name = image.name_of(topic.topic_id)


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
    awaited: list[ProducePartitionStatus],
    verified: Verified | None,
    topic: str,
    data: PartitionProduceData,
) -> PartitionProduceResponse:
    index = data.index
    answer = PartitionProduceResponse(index=index)
    guard = None
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"{topic} is written by the broker alone")
        if verified is not None:
            guard = verified.guard_for(topic, index)
        partition = replicas.partition(topic, index)
        records = data.records
        if records is None:
            raise CorruptMessage("the partition's data holds no batch")
        info = replicas.append(partition, records, acks, answer, context.api_version >= ZSTD_SINCE, guard)
    except KafkaError as refused:
        error = in_doubt(replicas, refused) if topic else _nameless(context, refused)
        _describe_failure(answer, error)
        context.route.errors[int(error.code)] += 1
        reached_log = verified is None or (topic, index) not in verified.errors
        if error.code in REFUSED_BY_LOG and reached_log and not isinstance(error, NotOneBatch):
            refuser = replicas.find(topic, index)
            if refuser is not None:
                answer.log_start_offset = refuser.log.log_start_offset
        if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
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


def _refused(
    replicas: ReplicaManager, context: RequestContext, request: ProduceRequest, code: ErrorCode, why: str
) -> ProduceResponse | None:
    """The whole request is refused."""
    refusal = error_for(code, why)

    def answers(topic: TopicProduceData) -> list[PartitionProduceResponse]:
        return [_refused_partition(replicas, context, topic.name, data.index, refusal) for data in topic.partition_data]

    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers(topic))
            for topic in _named_once(request.topic_data)
        ]
    )
    if request.acks != NO_ACKS:
        return response
    _close_on_error(context, response)
    return None


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
