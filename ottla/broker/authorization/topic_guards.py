"""Guards of the APIs about topics and their records (§62.2)."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

from ottla.broker.authorization.access import DECISIONS_PER_STEP, Access
from ottla.broker.authorization.refusals import SENTENCE_OF, count_refusals, refused_partition
from ottla.broker.server.apis import FETCH, METADATA, PRODUCE
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import ZERO_ID
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, InvalidTopicException
from ottla.protocol.messages import delete_records as records_messages
from ottla.protocol.messages import describe_producers as producers_messages
from ottla.protocol.messages import list_offsets as offsets_messages
from ottla.protocol.messages import offset_for_leader_epoch as epochs_messages
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import LOW_ATTRIBUTES, TRANSACTIONAL_BIT
from ottla.security.acl import CLUSTER_NAME, OPERATIONS_OF, AclOperation, ResourceType

TOPIC_CODE = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_OFFSET = -1
NO_ACKS = 0
NULL_MEANS_ALL_SINCE = 1
BY_ID_SINCE = 12
TOPICS_PER_STEP = DECISIONS_PER_STEP // len(OPERATIONS_OF[ResourceType.TOPIC])
# Members of an enum are looked up by name, which takes a tenth of what a guard does.
_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
_WRITE_TOPIC = _WRITE, _TOPIC


# Produce.


def guard_produce(
    access: Access, context: RequestContext, request: ProduceRequest
) -> Callable[[], ProduceResponse] | None:
    """Batches say whether the request is transactional, and not its field (CVE-2018-17196)."""
    topics = request.topic_data
    names: list[str] = []
    is_transactional = False
    for topic in topics:
        if not topic.name:
            topic.name = access.image.name_of(topic.topic_id)
        # One that is still without is of an unknown id, which is no secret.
        if topic.name:
            names.append(topic.name)
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) > LOW_ATTRIBUTES and records[LOW_ATTRIBUTES] & TRANSACTIONAL_BIT:
                is_transactional = True
    if is_transactional:
        name = request.transactional_id
        if not name or not access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if request.acks != NO_ACKS:
                return _refusing_all(context, topics, code)
            request.topic_data = []
            _close_without_response(access, code)
            return None
    # What is known to be allowed is looked at here, without a call.
    if access.view.allowed[_WRITE_TOPIC].issuperset(names):
        return None
    denied = access.denied_names(_WRITE, _TOPIC, names)
    return _refusing_some(access, context, request, denied) if denied else None


def _refusing_some(
    access: Access, context: RequestContext, request: ProduceRequest, denied: set[str]
) -> Callable[[], ProduceResponse] | None:
    code, topics = ErrorCode.TOPIC_AUTHORIZATION_FAILED, request.topic_data
    refused = [topic for topic in topics if topic.name in denied]
    request.topic_data = [topic for topic in topics if topic.name not in denied]
    if request.acks == NO_ACKS:
        _close_without_response(access, code)
    elif not request.topic_data:
        return _refusing_all(context, refused, code)
    responses = _refused_produce(context, refused, code)
    access.amend(lambda response: response.responses.extend(responses))
    return None


def _refusing_all(
    context: RequestContext, topics: list[TopicProduceData], code: ErrorCode
) -> Callable[[], ProduceResponse]:
    for topic in topics:
        for data in topic.partition_data:
            # Their place in the receive buffer is needed for what comes next.
            data.records = None
    return lambda: ProduceResponse(responses=_refused_produce(context, topics, code))


def _close_without_response(access: Access, code: ErrorCode) -> None:
    """The client waits for no response: what is allowed is appended, and the connection closes."""
    access.closes_with = f"produce with acks=0 was denied: {code.name}"


def _refused_produce(
    context: RequestContext, topics: Iterable[TopicProduceData], code: ErrorCode
) -> list[TopicProduceResponse]:
    results: dict[tuple[str, bytes], TopicProduceResponse] = {}
    # Refusals are only written: those of one index are one.
    refusal_of = cache(partial(_refused_data, code))
    count = 0
    for topic in topics:
        key = topic.name, topic.topic_id
        result = results.get(key)
        if result is None:
            result = results[key] = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        count += len(topic.partition_data)
        result.partition_responses += [refusal_of(data.index) for data in topic.partition_data]
    count_refusals(context, code, count)
    for result in results.values():
        if len(result.partition_responses) > 1:
            result.partition_responses = list({each.index: each for each in result.partition_responses}.values())
    return [each for each in results.values() if each.partition_responses]


def _refused_data(code: ErrorCode, index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=int(code), base_offset=NO_OFFSET)


# Fetch.


def guard_fetch(access: Access, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    """Of a follower. What a consumer may read is looked at when its session has said what it fetches."""
    state = request.replica_state
    if request.replica_id < 0 and (state is None or state.replica_id < 0):
        return None
    if access.allows_cluster(AclOperation.CLUSTER_ACTION):
        return None
    count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1)
    # Refusals are only written: those of one index are one.
    refusal_of = cache(refused_partition)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[refusal_of(asked.partition) for asked in topic.partitions],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


# Metadata.


def guard_metadata(access: Access, context: RequestContext, request: MetadataRequest) -> None:
    asked = request.topics
    asks_for_all = asked is None or (not asked and context.api_version < NULL_MEANS_ALL_SINCE)
    if asks_for_all:
        access.amend(
            lambda response: access.drop_denied(AclOperation.DESCRIBE, _TOPIC, response.topics, lambda each: each.name)
        )
    if request.include_topic_authorized_operations:
        access.amend(lambda response: _set_topic_operations(access, response.topics))
    if request.include_cluster_authorized_operations:
        access.amend(lambda response: _set_cluster_operations(access, response))
    if asked is None or asks_for_all:
        return
    by_id = any(topic.topic_id != ZERO_ID for topic in asked)
    if context.api_version < BY_ID_SINCE and (by_id or any(topic.name is None for topic in asked)):
        # The handler refuses all of them, and shows nothing.
        return
    if by_id:
        # The names beside ids are ignored; where all ids are denied, they must not become what is asked for.
        asked[:] = [topic for topic in asked if topic.topic_id != ZERO_ID]
    refused = _take_denied_topics(access, asked, by_id=by_id)
    if request.allow_auto_topic_creation and access.creates_topics and not by_id:
        refused += _take_denied_creations(access, asked)
    if not refused:
        return
    count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(refused))
    names_none = not asked and context.api_version < NULL_MEANS_ALL_SINCE

    def add_refused(response: MetadataResponse) -> None:
        if names_none:
            # Of that version an empty list asks for all topics.
            response.topics.clear()
        response.topics.extend(refused)

    access.amend(add_refused)


def _take_denied_topics(
    access: Access, asked: list[MetadataRequestTopic], *, by_id: bool
) -> list[MetadataResponseTopic]:
    """Those that may not be described. An unknown id is answered as such: ids are no secret."""

    def name(topic: MetadataRequestTopic) -> str:
        return access.image.name_of(topic.topic_id) if by_id else topic.name or ""

    denied = access.denied_names(AclOperation.DESCRIBE, ResourceType.TOPIC, [*filter(None, map(name, asked))])
    refused = [topic for topic in asked if name(topic) in denied]
    asked[:] = [topic for topic in asked if name(topic) not in denied]
    if by_id:
        ids = dict.fromkeys(topic.topic_id for topic in refused)
        return [MetadataResponseTopic(name=None, topic_id=topic_id, error_code=TOPIC_CODE) for topic_id in ids]
    names = dict.fromkeys(topic.name for topic in refused)
    return [MetadataResponseTopic(name=each, error_code=TOPIC_CODE) for each in names]


def _take_denied_creations(access: Access, asked: list[MetadataRequestTopic]) -> list[MetadataResponseTopic]:
    """Those that do not exist, and that may not be created."""
    missing = [topic.name for topic in asked if topic.name and access.image.topic(topic.name) is None]
    if not missing or access.allows_cluster(AclOperation.CREATE, is_logged=False):
        return []
    denied = access.denied_names(AclOperation.CREATE, ResourceType.TOPIC, missing)
    asked[:] = [topic for topic in asked if topic.name not in denied]
    names = (name for name in dict.fromkeys(missing) if name in denied)
    return [MetadataResponseTopic(name=name, error_code=TOPIC_CODE) for name in names]


def _set_topic_operations(access: Access, topics: Iterable[Any]) -> Iterator[None]:
    """All that means something for a topic is decided about each of them."""
    for number, topic in enumerate(topics, 1):
        if topic.name:
            topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        if number % TOPICS_PER_STEP == 0:
            yield


def _set_cluster_operations(access: Access, response: Any) -> None:
    response.cluster_authorized_operations = cluster_operations(access)


def cluster_operations(access: Access) -> int:
    """For the field of a response; none of who may not describe the cluster."""
    may_describe = access.allows_cluster(AclOperation.DESCRIBE, is_logged=False)
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_describe else 0


def guard_topic_partitions(
    access: Access,
    context: RequestContext,  # noqa: ARG001
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse | None:
    access.amend(lambda response: _set_topic_operations(access, response.topics))
    cursor, asks_for_all = request.cursor, not request.topics
    if asks_for_all and cursor is not None and cursor.partition_index < 0:
        # The handler refuses it, and shows nothing.
        return None
    names = list(access.image.topics) if asks_for_all else [topic.name for topic in request.topics]
    denied = access.denied_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=not asks_for_all)
    if not denied:
        return None
    if cursor is not None and cursor.partition_index >= 0 and (asks_for_all or cursor.topic_name in denied):
        # What comes after it goes on where it would, whether there is such a topic or not.
        names = [name for name in names if name >= cursor.topic_name]
        if cursor.topic_name in denied or access.image.topic(cursor.topic_name) is None:
            request.cursor = None
    refused = [
        DescribeTopicPartitionsResponseTopic(error_code=TOPIC_CODE, name=name)
        for name in sorted(denied.intersection(names))
        if not asks_for_all
    ]
    request.topics = [TopicRequest(name=name) for name in names if name not in denied]
    if not request.topics:
        # An empty list would ask for all.
        return DescribeTopicPartitionsResponse(topics=refused)
    access.amend(lambda response: response.topics.extend(refused))
    return None


# Requests that name topics with partitions, and are answered in the same shape.


def _of_partitions(
    operation: AclOperation, name: str, topic_result: Callable[[Any], Any], *, or_cluster: AclOperation | None = None
) -> Callable[[Access, RequestContext, Any], None]:
    """`name`: the field of a topic that has it; `or_cluster`: an operation on the cluster that suffices."""

    def guard(access: Access, context: RequestContext, request: Any) -> None:
        if or_cluster is not None and access.allows_cluster(or_cluster, is_logged=False):
            return
        denied = access.take_denied(
            operation, ResourceType.TOPIC, request.topics, lambda topic: str(getattr(topic, name))
        )
        if not denied:
            return
        count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(denied))
        access.amend(lambda response: response.topics.extend(map(topic_result, denied)))

    return guard


def _refused_offsets(topic: Any) -> Any:
    partitions = [
        offsets_messages.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=TOPIC_CODE)
        for each in topic.partitions
    ]
    return offsets_messages.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _refused_deletion(topic: Any) -> Any:
    partitions = [
        records_messages.DeleteRecordsPartitionResult(
            partition_index=each.partition_index, low_watermark=NO_OFFSET, error_code=TOPIC_CODE
        )
        for each in topic.partitions
    ]
    return records_messages.DeleteRecordsTopicResult(name=topic.name, partitions=partitions)


def _refused_epochs(topic: Any) -> Any:
    partitions = [
        epochs_messages.EpochEndOffset(partition=each.partition, error_code=TOPIC_CODE) for each in topic.partitions
    ]
    return epochs_messages.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


def guard_describe_producers(access: Access, context: RequestContext, request: Any) -> None:
    """A name that no topic can have is answered as such."""
    valid = [topic.name for topic in request.topics if _is_topic_name(topic.name)]
    denied = access.denied_names(AclOperation.READ, ResourceType.TOPIC, valid)
    if not denied:
        return
    refused = [topic for topic in request.topics if topic.name in denied]
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    count_refusals(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, len(refused))
    access.amend(lambda response: response.topics.extend(map(_refused_producers, refused)))


def _refused_producers(topic: Any) -> Any:
    partitions = [
        producers_messages.PartitionResponse(
            partition_index=index,
            error_code=TOPIC_CODE,
            error_message=SENTENCE_OF[ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        )
        for index in topic.partition_indexes
    ]
    return producers_messages.TopicResponse(name=topic.name, partitions=partitions)


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicException:
        return False
    return True


GUARDS: dict[int, Callable[[Access, RequestContext, Any], Any | None]] = {
    PRODUCE: guard_produce,
    FETCH: guard_fetch,
    2: _of_partitions(AclOperation.DESCRIBE, "name", _refused_offsets),
    METADATA: guard_metadata,
    21: _of_partitions(AclOperation.DELETE, "name", _refused_deletion),
    23: _of_partitions(AclOperation.DESCRIBE, "topic", _refused_epochs, or_cluster=AclOperation.CLUSTER_ACTION),
    61: guard_describe_producers,
    75: guard_topic_partitions,
}
