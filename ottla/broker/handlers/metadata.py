"""Metadata: the brokers, and who leads the partitions of topics.

v0 asks for all topics with an empty list, later versions with null. v4 lets the client forbid the creation of topics,
v8 asks for permitted operations, v9 is flexible, v10 brings topic ids, v12 asks by id. A request that asks for one
topic by its id asks for all by id: names beside it are ignored. Before v12 an id, or no name, spoils the whole request.

Clients ask for the same again and again: an answer that is made of the image alone is kept, as bytes, until the image
changes. With an authorizer none is, for it would show one client what another may see. Topics that are created because
a client asks for them are created together, in few transactions.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ottla.broker.metadata.auto_topic_creation import AutoTopicCreationManager
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.current_leader import Node, nodes_for, reachable_leader
from ottla.broker.runtime import ITEMS_PER_SLICE, Runtime, in_slices, next_step
from ottla.broker.server.dispatch import PreparedFrame, PreparedFrames
from ottla.broker.server.request_context import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, RequestContext
from ottla.cluster.image import ZERO_ID, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.topics import check_topic_name
from ottla.protocol.errors import ErrorCode, InvalidTopicException
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BY_ID_SINCE = 12
NULL_MEANS_ALL_SINCE = 1
# Older clients get an unavailable leader instead.
LISTENER_NOT_FOUND_SINCE = 6


def handle(
    metadata: ClusterMetadata,
    runtime: Runtime,
    metadata_answers: PreparedFrames,
    auto_topic_creation: AutoTopicCreationManager,
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse | PreparedFrame | None:
    image = metadata.image
    key = _key(context, request)
    known = metadata_answers.get(image, key)
    if known is not None:
        return known
    if len(image.topics if request.topics is None else request.topics) > ITEMS_PER_SLICE:
        context.respond_later(
            runtime, _long_response(metadata, metadata_answers, auto_topic_creation, context, request, key)
        )
        return None
    to_create = _to_create(image, request) if request.allow_auto_topic_creation else []
    if to_create:
        created = _created_response(metadata, auto_topic_creation, to_create, context, request)
        context.respond_later(runtime, created)
        return None
    nodes = _nodes(context, image)
    make, asked = _topics(context, image, request, nodes, {})
    response = _response(image, request, nodes, [make(each) for each in asked])
    if context.access is not None or any(topic.error_code for topic in response.topics):
        return response
    frame = PreparedFrame(context.route.build_frame(response, 0))
    metadata_answers.put(image, key, frame)
    return frame


async def _created_response(
    metadata: ClusterMetadata,
    auto_topic_creation: AutoTopicCreationManager,
    names: "Iterable[str]",
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse:
    quota = None if context.quotas is None else context.quotas.creation()
    codes = await auto_topic_creation.create(names, quota)
    image = metadata.image
    nodes = _nodes(context, image)
    topics = await in_slices(*_topics(context, image, request, nodes, codes))
    return _response(image, request, nodes, topics)


async def _long_response(
    metadata: ClusterMetadata,
    metadata_answers: PreparedFrames,
    auto_topic_creation: AutoTopicCreationManager,
    context: RequestContext,
    request: MetadataRequest,
    key: Any,
) -> MetadataResponse | PreparedFrame:
    """As the other, about so many topics that their names are looked at in a step of its own."""
    await next_step()
    image = metadata.image
    to_create = _to_create(image, request) if request.allow_auto_topic_creation else []
    if to_create:
        return await _created_response(metadata, auto_topic_creation, to_create, context, request)
    nodes = _nodes(context, image)
    topics = await in_slices(*_topics(context, image, request, nodes, {}))
    response = _response(image, request, nodes, topics)
    if context.access is not None or any(topic.error_code for topic in topics):
        return response
    frame = PreparedFrame(await context.built(response, 0))
    metadata_answers.put(image, key, frame)
    return frame


def _to_create(image: MetadataImage, request: MetadataRequest) -> list[str]:
    """The topics asked for by a name that no topic has, and that one may have."""
    if any(topic.topic_id != ZERO_ID for topic in request.topics or ()):
        return []
    names = (topic.name for topic in request.topics or () if topic.name)
    return [name for name in dict.fromkeys(names) if image.topic(name) is None and _is_topic_name(name)]


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicException:
        return False
    return True


def _key(context: RequestContext, request: MetadataRequest) -> Any:
    topics = None if request.topics is None else tuple((topic.name, topic.topic_id) for topic in request.topics)
    wants_operations = request.include_cluster_authorized_operations, request.include_topic_authorized_operations
    return context.api_version, context.connection.listener_name, topics, wants_operations


def _nodes(context: RequestContext, image: MetadataImage) -> dict[int, Node]:
    return nodes_for(context.connection.listener_name, image.live_brokers)


def _topics(
    context: RequestContext,
    image: MetadataImage,
    request: MetadataRequest,
    nodes: dict[int, Node],
    codes: Mapping[str, ErrorCode],
) -> tuple[Callable[[Any], MetadataResponseTopic], Iterable[Any]]:
    """What makes the entry of a topic, and the topics. `codes` are those of topics that were to be created."""
    topic_operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    asked = request.topics
    if asked is None or (not asked and context.api_version < NULL_MEANS_ALL_SINCE):
        return partial(_known_topic, context, image, nodes, topic_operations), image.topics.values()
    by_id = [topic for topic in asked if topic.topic_id != ZERO_ID]
    if context.api_version < BY_ID_SINCE and (by_id or any(topic.name is None for topic in asked)):
        return _refused_topic, _distinct(asked)
    return partial(_topic, context, image, nodes, topic_operations, codes), _distinct(by_id or asked)


def _response(
    image: MetadataImage,
    request: MetadataRequest,
    nodes: dict[int, Node],
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in nodes.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _distinct(asked: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.name, topic.topic_id): topic for topic in asked}.values())


def _refused_topic(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=asked.name or "", topic_id=asked.topic_id, error_code=int(ErrorCode.INVALID_REQUEST)
    )


def _topic(
    context: RequestContext,
    image: MetadataImage,
    nodes: dict[int, Node],
    topic_operations: int,
    codes: Mapping[str, ErrorCode],
    asked: MetadataRequestTopic,
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_ID:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(name=None, topic_id=asked.topic_id, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
        return _known_topic(context, image, nodes, topic_operations, topic)
    name = asked.name or ""
    topic = image.topic(name)
    if topic is None:
        code = int(_error_of(name, codes))
        return MetadataResponseTopic(name=name, error_code=code, topic_authorized_operations=topic_operations)
    return _known_topic(context, image, nodes, topic_operations, topic)


def _error_of(name: str, codes: Mapping[str, ErrorCode]) -> ErrorCode:
    if not _is_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    # One that was created and deleted since is unknown too.
    return codes.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _known_topic(
    context: RequestContext, image: MetadataImage, nodes: dict[int, Node], topic_operations: int, topic: TopicInfo
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(context, image, index, each, nodes) for index, each in enumerate(topic.partitions)],
        topic_authorized_operations=topic_operations,
    )


def _partition(
    context: RequestContext, image: MetadataImage, index: int, state: PartitionInfo, nodes: dict[int, Node]
) -> MetadataResponsePartition:
    leader, error = reachable_leader(state.leader, nodes, image)
    if error is ErrorCode.LISTENER_NOT_FOUND and context.api_version < LISTENER_NOT_FOUND_SINCE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in nodes],
    )
