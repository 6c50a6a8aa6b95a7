"""DescribeTopicPartitions: topics and their partitions in pages; a cursor says where the next page begins (KIP-966)."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.current_leader import Node, nodes_for, reachable_leader
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import TOPIC_OPERATIONS, RequestContext
from ottla.cluster.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, InvalidTopicException
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class _Start(NamedTuple):
    topic: str
    partition: int


def handle(
    metadata: ClusterMetadata, runtime: Runtime, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = metadata.image
    if not _is_in_topics(request.cursor, request):
        return _refused(request)
    cursor = request.cursor
    start = _Start("", 0) if cursor is None else _Start(cursor.topic_name, cursor.partition_index)
    # As in Kafka, a page has room for at least one partition.
    room = max(min(request.response_partition_limit, runtime.config.max_request_partition_size_limit), 1)
    nodes = nodes_for(context.connection.listener_name, image.live_brokers)
    response = DescribeTopicPartitionsResponse()
    for name in _names(image, request, start):
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topic(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = start.partition if name == start.topic else 0
        page = range(first, min(first + room, len(topic.partitions)))
        response.topics.append(_described(image, topic, page, nodes))
        room -= len(page)
        if page.stop < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=page.stop)
            break
    return response


def _is_in_topics(cursor: Cursor | None, request: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor stands at a partition of one of the topics that are asked for."""
    if cursor is None:
        return True
    is_asked = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return is_asked and cursor.partition_index >= 0


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The response has no error of its own, only those of topics."""
    error_code = int(ErrorCode.INVALID_REQUEST)
    topics = [DescribeTopicPartitionsResponseTopic(error_code=error_code, name=topic.name) for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=topics)


def _names(image: MetadataImage, request: DescribeTopicPartitionsRequest, start: _Start) -> Iterator[str]:
    """From the cursor on, in the order of names, which stays the same from page to page. No names means all topics."""
    asked = {topic.name for topic in request.topics} or set(image.topics)
    return (name for name in sorted(asked) if name >= start.topic)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except InvalidTopicException as invalid:
        error = invalid.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(error), name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(
    image: MetadataImage, topic: TopicInfo, page: range, nodes: dict[int, Node]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(image, index, topic.partitions[index], nodes) for index in page],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    image: MetadataImage, index: int, state: PartitionInfo, nodes: dict[int, Node]
) -> DescribeTopicPartitionsResponsePartition:
    leader, error = reachable_leader(state.leader, nodes, image)
    return DescribeTopicPartitionsResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=[replica for replica in state.replicas if replica not in nodes],
    )
